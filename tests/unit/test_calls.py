"""Calls by columns say what their records say."""

from dataclasses import replace
from math import nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measure.calls import calls_of
from harness.measure.metrics.call import streamed_tokens, tpot_ns
from harness.measure.metrics.recorded import call_tpot_ns
from harness.records import CallOutcome
from harness.values import CallError, ErrorKind
from tests.making import MS, S, a_call

counts = st.none() | st.integers(0, 5)
FAILED = {"outcome": CallOutcome.FAILED, "error": CallError(ErrorKind.RESET, "the connection was reset")}


@st.composite
def calls(draw):
    return a_call(
        first_output_ns=draw(st.none() | st.integers(0, S)),
        last_output_ns=draw(st.none() | st.integers(S, 2 * S)),
        output_tokens=draw(counts),
        hidden_tokens=draw(counts),
        first_event_tokens=draw(counts),
        streamed_events=draw(st.integers(0, 3)),
    )


@given(st.lists(calls(), max_size=5))
def test_tpot_is_the_same_formula_for_one_call_and_for_many(records):
    def alone(call):
        both = call.first_output_ns is not None and call.last_output_ns is not None
        return tpot_ns(
            call.last_output_ns - call.first_output_ns if both and call.streamed_events > 1 else None,
            streamed=streamed_tokens(call.output_tokens, call.hidden_tokens),
            first=call.first_event_tokens,
        )

    expected = [nan if (one := alone(call)) is None else one for call in records]
    assert np.array_equal(call_tpot_ns(calls_of(records)), np.array(expected), equal_nan=True)


def test_numbers_are_exact_and_unknown_where_the_record_does_not_tell():
    found = calls_of([a_call(sent_ns=2**53 - 1, cached_tokens=None), a_call(sent_ns=1, cached_tokens=0)])
    assert found.sent_ns.tolist() == [2**53 - 1, 1]
    assert np.isnan(found.cached_tokens).tolist() == [True, False]
    assert len(found) == 2


def test_words_are_counted_in_the_order_in_which_they_first_come():
    tiers = ["z", None, "a", "z", "a", "z"]
    found = calls_of([a_call(tier_served=tier) for tier in tiers]).tier_served
    assert list(found.counted().items()) == [("z", 3), (None, 1), ("a", 2)]
    assert found.are(("a", None)).tolist() == [False, True, True, False, True, False]
    assert found[found.are(("a",))].counted() == {"a": 2}


@pytest.mark.parametrize(
    ("asked", "served", "charged"),
    [("fast", "slow", "slow"), ("fast", None, "fast"), ("fast", "", "fast"), (None, None, None)],
)
def test_the_tier_to_be_charged_is_the_one_served_else_the_one_asked(asked, served, charged):
    assert list(calls_of([a_call(tier_asked=asked, tier_served=served)]).tier.counted()) == [charged]


def test_errors_and_attempts():
    attempts = [{"sent_ns": 0, "done_ns": 30 * MS}, {"sent_ns": 50 * MS, "done_ns": 60 * MS}]
    found = calls_of([a_call(**FAILED, sent_ns=50 * MS, attempts=attempts), a_call()])
    assert found.error_kind.counted() == {"reset": 1, None: 1}
    assert found.error_message.counted() == {"the connection was reset": 1, None: 1}
    assert found.attempts_ns.tolist() == [30 * MS, 0]
    assert found.ok.tolist() == [False, True]


def test_calls_of_some_tasks_and_sums_of_each():
    records = [
        a_call(task_id=name, output_tokens=n) for name, n in (("x", 1), ("y", 2), ("x", 4), ("z", None))
    ]
    found = calls_of(records)
    sums = found.per_task(found.output_tokens)
    assert (sums["x"], sums["y"]) == (5, 2)
    assert np.isnan(sums["z"])
    part = found.of_tasks({"x", "z", "nobody"})
    assert part.task_id.counted() == {"x": 2, "z": 1}
    assert list(part.per_task(part.sent_ns)) == ["x", "z"]
    assert part.task_id.each({"x": 7, "z": 9}).tolist() == [7, 7, 9]
    with pytest.raises(KeyError, match="z"):
        part.task_id.each({"x": 7})


def test_no_calls_at_all():
    found = calls_of([])
    assert len(found) == len(found.of_tasks({"x"})) == 0
    assert found.per_task(found.sent_ns) == {}
    assert found.outcome.counted() == {}


def test_a_row_that_is_no_calls_is_refused_and_none_is_taken():
    from harness.measure.calls import KEYS, Gathering

    good = tuple(getattr(a_call(), key) for key in KEYS)
    for key, wrong in (
        ("outcome", "nonsense"),
        ("task_id", None),
        ("task_id", 5),
        ("call_id", 5),
        ("sent_ns", None),
        ("done_ns", "soon"),
        ("input_tokens", [1]),
        ("attempts", [3]),
    ):
        gathering = Gathering()
        bad = tuple(wrong if name == key else value for name, value in zip(KEYS, good, strict=True))
        with pytest.raises((ValueError, TypeError)):
            gathering.add([good, bad])
        gathering.add([good])
        assert len(gathering.calls()) == len(gathering.call_ids) == 1


def test_many_rows_at_a_time_are_one_table():
    from harness.measure.calls import KEYS, Gathering

    records = [a_call(call_id=str(i), task_id=f"t{i % 3}", sent_ns=i) for i in range(10)]
    gathering = Gathering()
    for first in range(0, 10, 4):
        gathering.add([tuple(getattr(one, key) for key in KEYS) for one in records[first : first + 4]])
    found = gathering.calls()
    assert gathering.call_ids == [str(i) for i in range(10)]
    assert found.sent_ns.tolist() == list(range(10))
    assert found.task_id.counted() == {"t0": 4, "t1": 3, "t2": 3}
    assert calls_of([replace(one) for one in records]).task_id.counted() == found.task_id.counted()
