"""Whatever the outcomes: bounds are in order, swapping sides inverts, equal backends are equal."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measure.calls import calls_of
from harness.measure.compare import compare
from harness.measure.compare_findings import Side
from harness.measure.pairs import pair, resampled_pairs, savings, speedup_quantile
from harness.records import TaskOutcome, TaskRecord
from tests.making import a_task

OPEN = (TaskOutcome.CUT, TaskOutcome.TIMEOUT)
times_ns = st.integers(1, 10**12)
legs = st.tuples(times_ns, st.sampled_from(TaskOutcome))
sides = st.dictionaries(st.integers(0, 60), legs, max_size=50)


def tasks_of(side) -> list[TaskRecord]:
    return [a_task(k=k, session=k, ended_ns=ns, outcome=outcome) for k, (ns, outcome) in side.items()]


def inverse(values):
    with np.errstate(divide="ignore"):
        return 1 / values


@given(sides, sides)
def test_bounds_are_in_order_and_every_task_is_counted(ours, theirs):
    pairing = pair(tasks_of(ours), tasks_of(theirs))
    assert (pairing.low <= pairing.high).all()
    assert (pairing.low >= 0).all()
    assert len(pairing.ks) + pairing.lost == len(ours.keys() | theirs.keys())
    assert (np.diff(pairing.ks) > 0).all()
    exact = pairing.low == pairing.high
    assert exact[~pairing.censored].all()


@given(sides, sides)
def test_swapping_sides_inverts(ours, theirs):
    one, other = pair(tasks_of(ours), tasks_of(theirs)), pair(tasks_of(theirs), tasks_of(ours))
    assert one.ks.tolist() == other.ks.tolist()
    assert one.low == pytest.approx(inverse(other.high))
    assert one.high == pytest.approx(inverse(other.low))
    saved, lost = savings(tasks_of(ours), tasks_of(theirs)), savings(tasks_of(theirs), tasks_of(ours))
    assert saved.low.tolist() == (-lost.high).tolist()


@given(st.dictionaries(st.integers(0, 200), times_ns, min_size=6, max_size=60))
def test_a_backend_against_itself_is_1(times):
    tasks = tasks_of({k: (ns, TaskOutcome.COMPLETED) for k, ns in times.items()})
    side = Side("b", "w", tasks, calls_of([]))
    summary, _ = compare(side, side, generator=np.random.default_rng(0), open_loop=False)
    for name in ("speedup_p50", "ratio_p50", "ratio_total"):
        told = getattr(summary, name)
        assert (told.value, told.low, told.high) == (1, 1, 1), name
    assert summary.seconds_saved_p50.value == 0


@given(st.dictionaries(st.integers(0, 200), st.integers(10**8, 10**12), min_size=36, max_size=60))
def test_decode_14_times_faster_and_nothing_else_is_14(decode_ns):
    ours = tasks_of({k: (ns, TaskOutcome.COMPLETED) for k, ns in decode_ns.items()})
    theirs = tasks_of({k: (round(ns / 14), TaskOutcome.COMPLETED) for k, ns in decode_ns.items()})
    pairing = pair(ours, theirs)
    resampled = resampled_pairs(pairing, generator=np.random.default_rng(0))
    for q in (0.1, 0.5, 0.9):
        told = speedup_quantile(pairing, q, resampled=resampled)
        assert told.low <= told.value <= told.high
        assert told.value == pytest.approx(14, rel=1e-6)


@given(st.data())
def test_the_true_ratio_of_legs_that_were_cut_lies_within_the_bounds(data):
    """Cut two legs that would have completed anywhere before their end: the bounds hold what was hidden."""
    whole = data.draw(times_ns), data.draw(times_ns)
    cut = [data.draw(st.none() | st.integers(1, ns)) for ns in whole]
    made = [
        tasks_of({0: (ns, TaskOutcome.COMPLETED) if at is None else (at, data.draw(st.sampled_from(OPEN)))})
        for ns, at in zip(whole, cut, strict=True)
    ]
    pairing = pair(*made)
    assert pairing.low[0] * (1 - 1e-9) <= whole[0] / whole[1] <= pairing.high[0] * (1 + 1e-9)
    assert pairing.censored[0] == any(at is not None for at in cut)


@given(sides, sides, st.sampled_from([0.1, 0.5, 0.9]))
def test_an_estimate_is_in_order_and_has_a_value_or_a_reason(ours, theirs, q):
    pairing = pair(tasks_of(ours), tasks_of(theirs))
    resampled = resampled_pairs(pairing, generator=np.random.default_rng(0))
    told = speedup_quantile(pairing, q, resampled=resampled)
    known = [end for end in (told.low, told.value, told.high) if end is not None]
    assert known == sorted(known)
    assert np.isfinite(known).all()
