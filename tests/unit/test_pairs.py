"""Pairs against ratios worked out by hand, for every combination of outcomes."""

from math import inf

import numpy as np
import pytest

from harness.measure.pairs import LegHeadline, Pairing, pair, resampled_pairs, savings, speedup_quantile
from harness.records import TaskOutcome, TaskRecord
from harness.results import Estimate, Reason
from tests.making import S, a_task

C, F, T = TaskOutcome.COMPLETED, TaskOutcome.FAILED, TaskOutcome.TIMEOUT
A, X = TaskOutcome.ABANDONED, TaskOutcome.CUT


def a_leg(k: int, seconds: float, outcome: TaskOutcome = C, **said) -> TaskRecord:
    return a_task(k=k, session=k, ended_ns=round(seconds * S), outcome=outcome, **said)


def bounds(pairing: Pairing) -> list[tuple[float, float]]:
    return list(zip(pairing.low.tolist(), pairing.high.tolist(), strict=True))


# baseline 30 s, candidate 10 s, each with any outcome: bounds of the ratio, of the seconds saved
COMBINATIONS = [
    pytest.param(C, C, (3, 3), (20, 20), id="both completed"),
    pytest.param(C, F, (0, 0), (-inf, -inf), id="candidate failed"),
    pytest.param(C, A, (0, 0), (-inf, -inf), id="candidate abandoned: as failed"),
    pytest.param(C, X, (0, 3), (-inf, 20), id="candidate cut: at most the ratio so far"),
    pytest.param(C, T, (0, 3), (-inf, 20), id="candidate timed out: as cut"),
    pytest.param(F, C, (inf, inf), (inf, inf), id="baseline failed"),
    pytest.param(A, C, (inf, inf), (inf, inf), id="baseline abandoned"),
    pytest.param(X, C, (3, inf), (20, inf), id="baseline cut: at least the ratio so far"),
    pytest.param(T, C, (3, inf), (20, inf), id="baseline timed out"),
    pytest.param(X, X, (0, inf), (-inf, inf), id="both cut: anything"),
    pytest.param(T, X, (0, inf), (-inf, inf), id="one timed out, one cut"),
    pytest.param(T, T, (0, inf), (-inf, inf), id="both timed out"),
    pytest.param(X, F, (0, 0), (-inf, -inf), id="baseline cut, candidate never completes"),
    pytest.param(T, A, (0, 0), (-inf, -inf), id="baseline timed out, candidate abandoned"),
    pytest.param(F, X, (inf, inf), (inf, inf), id="candidate cut, baseline never completes"),
    pytest.param(A, T, (inf, inf), (inf, inf), id="candidate timed out, baseline abandoned"),
]


@pytest.mark.parametrize(("ours", "theirs", "ratio", "saved"), COMBINATIONS)
def test_bounds_of_a_pair(ours, theirs, ratio, saved):
    baseline, candidate = [a_leg(0, 30, ours)], [a_leg(0, 10, theirs)]
    pairing = pair(baseline, candidate)
    assert bounds(pairing) == [ratio]
    assert pairing.lost == 0
    assert pairing.censored.tolist() == [bool({ours, theirs} & {X, T})]
    assert bounds(savings(baseline, candidate)) == [saved]


@pytest.mark.parametrize(("ours", "theirs"), [(F, F), (F, A), (A, F), (A, A)])
def test_both_failed_is_no_pair_and_lost(ours, theirs):
    pairing = pair([a_leg(0, 30, ours)], [a_leg(0, 10, theirs)])
    assert len(pairing.ks) == 0
    assert pairing.lost == 1


def test_tasks_without_partner_are_lost_and_the_rest_stand_in_the_order_of_k():
    pairing = pair([a_leg(k, 10 * (k + 1)) for k in (2, 0, 1)], [a_leg(k, 10) for k in (1, 3, 4, 2)])
    assert pairing.ks.tolist() == [1, 2]
    assert bounds(pairing) == [(2, 2), (3, 3)]
    assert pairing.lost == 3  # 0 has no candidate, 3 and 4 have no baseline


def test_a_number_that_comes_twice_is_refused():
    with pytest.raises(ValueError, match="2 tasks of one workload have only 1 numbers"):
        pair([a_leg(0, 1), a_leg(0, 2)], [a_leg(0, 1)])


def test_the_same_number_in_two_runs_is_two_pairs():
    baseline = [a_leg(0, 20, task_id="one/a/0"), a_leg(0, 30, task_id="two/a/0")]
    candidate = [a_leg(0, 10, task_id="two/b/0"), a_leg(0, 10, task_id="one/b/0")]
    runs = {"one/a/0": 1, "two/a/0": 2, "one/b/0": 1, "two/b/0": 2}
    assert bounds(pair(baseline, candidate, runs=runs)) == [(2, 2), (3, 3)]


def test_human_time_and_a_late_start_are_handled_as_task_time_says():
    baseline = [a_leg(0, 30, scheduled_ns=5 * S, started_ns=9 * S, human_ns=5 * S)]
    assert bounds(pair(baseline, [a_leg(0, 10)])) == [(2, 2)]


SHARES = {0: 0.8, 1: 0.2, 2: 0.0}


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        pytest.param((0.2, C), (0.8, C), (4, 4), id="higher is better: candidate / baseline"),
        pytest.param((0.0, C), (0.8, C), (inf, inf), id="nothing on the baseline"),
        pytest.param((0.2, C), (0.0, C), (0, 0), id="nothing on the candidate"),
        pytest.param((0.0, C), (0.0, C), (1, 1), id="nothing on both: equal"),
        pytest.param((0.2, C), (1.0, X), (0, 5), id="candidate cut: its best is 1"),
        pytest.param((0.5, X), (0.8, C), (1.6, inf), id="baseline cut: its best is 0.5"),
        pytest.param((0.2, C), (0.8, F), (0, 0), id="candidate failed"),
    ],
)
def test_a_headline_of_which_more_is_better_is_inverted(ours, theirs, expected):
    of = {"a": ours[0], "b": theirs[0]}
    share = LegHeadline(lambda task: of[task.backend], better="higher")
    baseline = [a_leg(0, 1, ours[1], backend="a")]
    candidate = [a_leg(0, 1, theirs[1], backend="b")]
    assert bounds(pair(baseline, candidate, headline=share)) == [pytest.approx(expected)]


def test_a_leg_without_the_headline_is_lost():
    nothing = LegHeadline(lambda task: None if task.k else 1.0)
    pairing = pair([a_leg(0, 1), a_leg(1, 1)], [a_leg(0, 1), a_leg(1, 1)], headline=nothing)
    assert (pairing.ks.tolist(), pairing.lost) == ([0], 1)


def a_pairing(low: list[float], high: list[float] | None = None) -> Pairing:
    high = high or low
    n = len(low)
    return Pairing(
        ks=np.arange(n),
        low=np.array(low, dtype=np.float64),
        high=np.array(high, dtype=np.float64),
        censored=np.array(low) != np.array(high),
        sessions=[(0, k) for k in range(n)],
        lost=0,
    )


def estimate(pairing: Pairing, q: float) -> Estimate:
    dice = np.random.default_rng(1)
    return speedup_quantile(pairing, q, resampled=resampled_pairs(pairing, generator=dice))


def test_a_quantile_is_the_smallest_observed_ratio_that_reaches_it():
    assert estimate(a_pairing([7, 1, 3, 5, 9, 11]), 0.5).value == 5


@pytest.mark.parametrize(("q", "n"), [(0.5, 6), (0.1, 36), (0.9, 36)])
def test_too_few_pairs_tell_how_many_it_takes(q, n):
    few = estimate(a_pairing([2.0] * (n - 1)), q)
    assert (few.value, few.reason, few.n, few.needed) == (None, Reason.TOO_FEW, n - 1, n)
    assert estimate(a_pairing([2.0] * n), q).value == 2


@pytest.mark.parametrize(
    ("low", "high", "value", "ends"),
    [
        pytest.param([2.0] * 8, [2.0] * 8, 2.0, (2, 2), id="exact"),
        pytest.param([2.0] * 8, [2.02] * 8, 2.01, (2, 2.02), id="agree to 1 %: one number"),
        pytest.param([2.0] * 8, [2.03] * 8, None, (2, 2.03), id="further apart: a range"),
        pytest.param([0.0] * 8, [2.0] * 8, None, (0, 2), id="candidate cut in most"),
        pytest.param([2.0] * 8, [inf] * 8, None, (2, None), id="baseline cut in most: no upper end"),
        pytest.param([2.0] + [inf] * 7, [3.0] + [inf] * 7, None, (3, None), id="infinite: from known up"),
        pytest.param([0.0] * 8, [0.0] * 8, 0.0, (0, 0), id="candidate failed in most"),
        pytest.param([inf] * 8, [inf] * 8, None, (None, None), id="baseline always failed"),
        pytest.param([-inf] * 8, [-inf] * 8, None, (None, None), id="savings: candidate always failed"),
    ],
)
def test_values_and_ranges(low, high, value, ends):
    told = estimate(a_pairing(low, high), 0.5)
    assert told.value == (None if value is None else pytest.approx(value))
    assert (told.low, told.high) == ends
    assert told.reason is (Reason.UNKNOWN if value is None else None)
    assert told.n == 8


def test_a_few_cut_pairs_leave_the_median_one_number():
    low, high = [2.0] * 40, [2.0] * 38 + [inf, inf]
    assert estimate(a_pairing(low, high), 0.5).value == 2.0


def test_the_interval_of_a_range_is_the_union_of_both():
    spread = [1.0 + i / 100 for i in range(60)]
    told = estimate(a_pairing(spread, [2 * x for x in spread]), 0.5)
    alone = estimate(a_pairing(spread), 0.5)
    doubled = estimate(a_pairing([2 * x for x in spread]), 0.5)
    assert (told.low, told.high) == (alone.low, doubled.high)


def test_pairs_of_one_session_are_drawn_together():
    """Sixty pairs in six sessions of equal ratios are worth six pairs: the interval spans all of them."""
    low = [float(1 + k // 10) for k in range(60)]
    apart, together = a_pairing(low), a_pairing(low)
    together = Pairing(**{**_fields(together), "sessions": [(0, k // 10) for k in range(60)]})
    assert (estimate(together, 0.5).low, estimate(together, 0.5).high) == (1, 6)
    assert estimate(apart, 0.5).value == 3


def _fields(pairing: Pairing) -> dict:
    return {name: getattr(pairing, name) for name in Pairing.__slots__}
