"""Messages of the pipe: whole lines only, the same after the way, and nothing of another version."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.link import (
    Began,
    Begin,
    Call,
    Done,
    Drain,
    Drained,
    Finished,
    GaveUp,
    Go,
    Gone,
    Leave,
    Lines,
    Message,
    Ready,
    Refused,
    Settled,
    Start,
    Stop,
    Task,
    message_of,
    packed,
    plain,
    to_line,
    unpacked,
)
from harness.measure.histogram import histogram

ONE_OF_EACH = [
    Begin("s.toml", "schema = 1", {"tasks": 3}, ["http://127.0.0.1:1/v1"], "r", 1, 2, "/d", None, 5.0),
    Go(12, 3.5),
    Start(1, 0),
    Stop(1),
    Leave(1),
    Drain(cut=True),
    Ready(True, "/d/events.1.jsonl", 7, "here"),
    Refused("no key", 2),
    Began("a/w/1", "a", "w", "measure", None),
    Call({"call_id": "a/w/1/1", "error": None}, packed(histogram(np.array([1, 5, 5])))),
    Task({"task_id": "a/w/1"}),
    Done(1, more=False),
    Finished(),
    GaveUp("a", "why\nnot"),
    Drained(1, 2, {"phases": {"measure": 0}}, 0.5, None),
    Gone(),
    Settled(),
]


def test_there_is_one_of_each_kind_here():
    assert {type(message) for message in ONE_OF_EACH} == set(Message.__args__)


@given(st.lists(st.integers(min_value=1, max_value=400), max_size=30))
def test_a_pipe_may_cut_lines_anywhere(cuts):
    whole = b"".join(map(to_line, ONE_OF_EACH))
    lines, got, at = Lines(), [], 0
    for size in [*cuts, len(whole)]:
        got += lines.feed(whole[at : at + size])
        at += size
    assert got == ONE_OF_EACH


def test_a_torn_last_line_is_never_given():
    whole = to_line(Finished()) + to_line(Done(1, more=True))[:-1]
    assert Lines().feed(whole) == [Finished()]


@pytest.mark.parametrize(
    "told", [{}, {"is": "Nothing"}, {"is": "Start", "user": 1}, {"is": "Gone", "more": 1}]
)
def test_what_is_no_message_of_this_version_is_refused(told):
    with pytest.raises(ValueError, match="not a message of this version"):
        message_of(told)


@pytest.mark.parametrize("message", ONE_OF_EACH, ids=lambda one: type(one).__name__)
def test_plain_values_make_the_same_message(message):
    assert message_of(plain(message)) == message


def test_a_histogram_is_the_same_after_the_way():
    counted = histogram(np.array([0, 3, 3, 250, 10**9, -1]))
    back = unpacked(packed(counted))
    assert back.buckets.tolist() == counted.buckets.tolist()
    assert back.counts.tolist() == counted.counts.tolist()
    assert back.overflow == counted.overflow
