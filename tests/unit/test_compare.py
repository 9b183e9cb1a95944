"""Comparisons of records whose true speed-up is known."""

import numpy as np
import pytest

from harness.measure.calls import calls_of
from harness.measure.compare import compare
from harness.measure.compare_findings import Side
from harness.measure.pairs import LegHeadline
from harness.records import TaskOutcome
from harness.results import FindingName, Reason
from tests.generating import World, legs
from tests.making import S, a_task

C, F, T = TaskOutcome.COMPLETED, TaskOutcome.FAILED, TaskOutcome.TIMEOUT
A, X = TaskOutcome.ABANDONED, TaskOutcome.CUT
RATIOS = ("speedup_p10", "speedup_p50", "speedup_p90", "ratio_p50", "ratio_p90", "ratio_total")


def a_side(backend, seconds, outcomes=None, **said):
    """Tasks 0, 1, ... of their own sessions, all scheduled at 0."""
    outcomes = outcomes or [C] * len(seconds)
    return Side(
        backend,
        "w",
        [
            a_task(
                task_id=f"{backend}/w/{k}", k=k, session=k, backend=backend, ended_ns=round(s * S), outcome=o
            )
            for k, (s, o) in enumerate(zip(seconds, outcomes, strict=True))
        ],
        calls_of([]),
        **said,
    )


def compared(baseline, candidate, *, open_loop=False, seed=1, **said):
    return compare(baseline, candidate, generator=np.random.default_rng(seed), open_loop=open_loop, **said)


DECODE_S = [5.0 + k * k % 23 for k in range(40)]


def test_decode_14_times_faster_and_nothing_else_is_a_speed_up_of_14():
    summary, findings = compared(a_side("a", DECODE_S), a_side("b", [s / 14 for s in DECODE_S]))
    for name in RATIOS:
        told = getattr(summary, name)
        assert told.value == pytest.approx(14, rel=1e-6), name
        assert told.low <= told.value <= told.high, name
        assert told.high - told.low < 1e-6 or name.startswith("ratio_p"), name
    assert (summary.pairs, summary.pairs_bounded, summary.pairs_lost) == (40, 0, 0)
    assert findings == []


def test_with_tools_for_half_of_the_time_the_speed_up_is_the_closed_form():
    """1 / (tools + decode / 14) with both a half: 1.87; the ceiling at infinite decode is 2."""
    baseline = a_side("a", [2 * s for s in DECODE_S])
    summary, _ = compared(baseline, a_side("b", [s + s / 14 for s in DECODE_S]))
    for name in RATIOS:
        assert getattr(summary, name).value == pytest.approx(1 / (0.5 + 0.5 / 14), rel=1e-6), name


def test_numbers_by_hand():
    """Ratios 1, 2, 3, 4, 5 and 0 (the last candidate failed); saved 0, 1, 4, 9, 16 s and -inf."""
    ours = a_side("a", [1, 2, 6, 12, 20, 3])
    theirs = a_side("b", [1, 1, 2, 3, 4, 3], [C, C, C, C, C, F])
    summary, _ = compared(ours, theirs)
    assert summary.speedup_p50.value == 2
    assert summary.seconds_saved_p50.value == 1
    assert summary.ratio_total.value == 41 / 11  # of the five pairs where both completed
    assert summary.ratio_total.n == 5
    assert summary.ratio_p50.value == 3 / 2  # 3 of 6 are done at 3 s; 3 of 6 at 2 s, the failed one never
    assert summary.speedup_p10.reason is Reason.TOO_FEW
    assert summary.ratio_p90.reason is Reason.TOO_FEW
    assert (summary.pairs, summary.pairs_bounded, summary.pairs_lost) == (6, 0, 0)


def test_a_curve_that_does_not_reach_the_quantile_gives_no_ratio_of_quantiles():
    ours = a_side("a", [*range(1, 31), *[40] * 10], [*[C] * 30, *[T] * 10])
    summary, _ = compared(ours, a_side("b", [0.5 * k for k in range(1, 41)]))
    assert (summary.ratio_p90.value, summary.ratio_p90.reason) == (None, Reason.NOT_REACHED)
    assert summary.ratio_p50.value == 2
    assert summary.pairs_bounded == 10
    assert summary.speedup_p50.value == 2


def test_cut_legs_make_a_range_where_they_decide():
    summary, _ = compared(a_side("a", [30] * 10, [C] * 4 + [X] * 6), a_side("b", [10] * 10))
    told = summary.speedup_p50
    assert (told.value, told.low, told.high, told.reason) == (None, 3, None, Reason.UNKNOWN)
    assert summary.seconds_saved_p50.low == 20


def test_no_tasks_at_all():
    summary, findings = compared(a_side("a", []), a_side("b", []))
    assert (summary.pairs, summary.pairs_lost) == (0, 0)
    assert summary.speedup_p50.reason is Reason.TOO_FEW
    assert summary.ratio_total.reason is Reason.UNKNOWN
    assert findings == []


def test_another_headline_moves_speed_ups_only():
    share = LegHeadline(lambda task: 0.2 if task.backend == "a" else 0.8, better="higher")
    summary, _ = compared(a_side("a", [2] * 8), a_side("b", [1] * 8), headline=share)
    assert summary.speedup_p50.value == pytest.approx(4)
    assert summary.ratio_p50.value == 2
    assert summary.ratio_total.value == 2


def arriving(backend, durations_s):
    tasks = [
        a_task(k=k, session=k, backend=backend, scheduled_ns=k * S, ended_ns=round((k + s) * S))
        for k, s in enumerate(durations_s)
    ]
    return Side(backend, "w", tasks, calls_of([]))


@pytest.mark.parametrize(("open_loop", "void"), [(True, True), (False, False)])
def test_no_speed_up_where_a_queue_grows_in_an_open_loop(open_loop, void):
    growing, steady = arriving("a", [1 + k for k in range(60)]), arriving("b", [1] * 60)
    for ours, theirs in ((growing, steady), (steady, growing)):
        summary, findings = compared(ours, theirs, open_loop=open_loop)
        told = [getattr(summary, name) for name in (*RATIOS, "seconds_saved_p50")]
        assert all((one.reason is Reason.NOT_APPLICABLE) is void for one in told)
        assert all((one.value is None) is void for one in told)
        assert [(f.name, f.backend) for f in findings] == [(FindingName.GROWING_QUEUE, "a")] * void
        assert summary.pairs == 60


def test_a_faster_side_that_got_further_keeps_its_own_tasks():
    """Forty tasks against four hundred: every resample has as many of each, so both curves stay."""
    summary, _ = compared(
        a_side("a", [20 + k % 7 for k in range(40)]), a_side("b", [2 + k % 7 / 10 for k in range(400)])
    )
    assert (summary.pairs, summary.pairs_lost) == (40, 360)
    assert summary.ratio_p50.value == 10
    assert 9 <= summary.ratio_p50.low <= summary.ratio_p50.high <= 11
    assert 9 <= summary.ratio_p90.low <= summary.ratio_p90.high <= 11


def pooled(backend, speeds):
    """Twenty tasks in each of several runs, the backend's speed by run; and the run of each task."""
    tasks, runs = [], {}
    for run, speed in enumerate(speeds):
        for k in range(20):
            name = f"{run}/{backend}/{k}"
            ended_ns = round((10 + k) / speed * S)
            tasks.append(a_task(task_id=name, k=k, session=k, backend=backend, ended_ns=ended_ns))
            runs[name] = run
    return Side(backend, "w", tasks, calls_of([])), runs


def test_from_five_runs_on_runs_are_resampled():
    """Six runs whose speed-ups are 1 to 6: six things were seen, so the interval goes over all of them."""
    ours, our_runs = pooled("a", [1] * 6)
    theirs, their_runs = pooled("b", [1, 2, 3, 4, 5, 6])
    summary, _ = compared(ours, theirs, runs=our_runs | their_runs)
    assert summary.pairs == 120
    assert (summary.speedup_p50.low, summary.speedup_p50.high) == (pytest.approx(1), pytest.approx(6))
    for name in ("ratio_p50", "ratio_total"):
        told = getattr(summary, name)
        assert told.high / told.low > 2.2, name


def test_the_same_generator_gives_the_same_summary():
    ours, theirs = (Side(name, "w", *legs(World(tasks=60), name, seed=3)) for name in "ab")
    assert compared(ours, theirs, seed=5) == compared(ours, theirs, seed=5)


def test_two_equal_backends_are_told_as_equal():
    """2-M3: the interval of the speed-up contains 1 in at least 90 of 100 fixed seeds.

    120 tasks by 8 users, eight times the memory of the load noise long; noise shared by both backends
    and of each one's own, as strong as a real one's bad minutes (10 to 20 % of the task time).
    """
    holds = 0
    for seed in range(100):
        ours, theirs = (Side(name, "w", *legs(World(), name, seed=seed)) for name in "ab")
        told = compared(ours, theirs, seed=seed)[0].speedup_p50
        holds += told.low <= 1 <= told.high
    assert holds >= 90


def timed(times_s, outcomes, backend):
    return [
        a_task(
            task_id=f"{backend}/{k}",
            backend=backend,
            k=k,
            session=k,
            scheduled_ns=k * S,
            started_ns=k * S,
            ended_ns=k * S + round(seconds * S),
            outcome=outcome,
        )
        for k, (seconds, outcome) in enumerate(zip(times_s, outcomes, strict=True))
    ]


def compared_sides(base, cand):
    sides = (Side("base", "w", base, calls_of([])), Side("cand", "w", cand, calls_of([])))
    return compare(*sides, generator=np.random.default_rng(1), open_loop=False)[0]


def test_a_quantile_that_a_limit_hid_bounds_the_ratio_and_claims_no_more():
    done = [TaskOutcome.COMPLETED] * 60
    base = timed([10.0 + k / 100 for k in range(60)], done, "base")
    hidden = [TaskOutcome.COMPLETED] * 30 + [TaskOutcome.TIMEOUT] * 30
    cand = timed([1.0 + k / 100 for k in range(30)] + [5.0] * 30, hidden, "cand")
    found = compared_sides(base, cand).ratio_p90
    assert (found.value, found.reason, found.low) == (None, Reason.NOT_REACHED, None)
    assert found.high == pytest.approx(10.53 / 5.0)  # its p90 lies beyond 5 s, that is all that is known
    mirrored = compared_sides(cand, base).ratio_p90
    assert (mirrored.value, mirrored.high) == (None, None)
    assert mirrored.low == pytest.approx(5.0 / 10.53)


def test_tasks_that_take_no_time_have_no_ratio():
    done = [TaskOutcome.COMPLETED] * 40
    nothing = compared_sides(timed([1.0] * 40, done, "base"), timed([0.0] * 40, done, "cand"))
    for estimate in (nothing.ratio_p50, nothing.ratio_p90, nothing.ratio_total):
        assert (estimate.value, estimate.reason) == (None, Reason.UNKNOWN)
