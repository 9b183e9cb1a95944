"""Bounds of events, rebuilt from hand-made records."""

import pytest

from harness.measure.events import event_bounds
from harness.records import EventsRecord
from tests.making import MS, S, a_call


def an_events(gaps_us, reads):
    return EventsRecord(
        call_id="b/w/0/1",
        gaps_us=gaps_us,
        kinds=[("text", len(gaps_us))] if gaps_us else [],
        tokens=[(None, len(gaps_us))] if gaps_us else [],
        reads=reads,
    )


@pytest.mark.parametrize(
    ("gaps_us", "reads", "low_ms", "high_ms"),
    [
        pytest.param([0], [1], [1000], [1000], id="one exact event"),
        pytest.param([0], [-1], [900], [1000], id="one event whose read went on"),
        pytest.param([0, 0, 0], [3], [900, 900, 1000], [1000] * 3, id="the last of a read is exact"),
        pytest.param([0, 0], [-2], [900, 900], [1000] * 2, id="no event of the read is exact"),
        pytest.param([0, 20_000], [1, 1], [1000, 1020], [1000, 1020], id="a read each"),
        pytest.param(
            [0, 20_000, 0, 20_000, 0],
            [1, -2, 2],
            [1000, 1000, 1000, 1020, 1040],
            [1000, 1020, 1020, 1040, 1040],
            id="the read before is the lower bound, exact or not",
        ),
    ],
)
def test_bounds(gaps_us, reads, low_ms, high_ms):
    first_low = S if reads[0] == 1 else 900 * MS
    call = a_call(first_output_ns=S, first_output_low_ns=first_low)
    low, high = event_bounds(call, an_events(gaps_us, reads))
    assert high.tolist() == [at * MS + 500 for at in high_ms]
    # what the call's own record holds is not rounded
    assert low.tolist() == [at * MS - (500 if at != 900 else 0) for at in low_ms]


def test_no_output_has_no_bounds():
    call = a_call(first_output_ns=None, first_output_low_ns=None)
    low, high = event_bounds(call, an_events([], []))
    assert (len(low), len(high)) == (0, 0)
