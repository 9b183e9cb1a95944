"""Stages of opening a connection, on a clock that is turned by hand."""

import pytest

from harness.client.marks import Marks


class Ticking:
    """Each reading is 10 later than the one before."""

    def __init__(self):
        self.now = 0

    def now_ns(self):
        self.now += 10
        return self.now


def told(*stages):
    marks = Marks(Ticking())
    for stage, *words in stages:
        getattr(marks, stage)(*words)
    return marks


def test_the_first_touch_is_looking_up_connecting_or_sending_whichever_is_first():
    assert told(("sent",), ("sent",)).sent_ns == 10
    assert told(("connecting",), ("connected", 0), ("opened",), ("sent",)).sent_ns == 10
    assert told(("resolving",), ("connecting",)).sent_ns == 10
    assert told().sent_ns == 0


@pytest.mark.parametrize(
    ("tries", "handshake_ns", "connect_ns"),
    [
        pytest.param(1, 7, 7, id="the kernel's word"),
        pytest.param(1, 0, 10, id="the kernel does not tell"),
        pytest.param(1, 99, 10, id="never more than was seen"),
        pytest.param(2, 7, 10, id="several addresses"),
    ],
)
def test_connecting_took(tries, handshake_ns, connect_ns):
    marks = told(*[("connecting",)] * tries, ("connected", handshake_ns))
    assert marks.connect_ns() == connect_ns


def test_stages_of_an_open_connection_took_nothing():
    marks = told(("sent",), ("sent",))
    assert (marks.dns_ns(), marks.connect_ns(), marks.secure_ns()) == (0, 0, 0)
