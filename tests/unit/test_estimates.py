"""Estimates with intervals: what they say of truth that is known."""

import numpy as np
import pytest

from harness.measure.estimates import (
    curve_estimates,
    gap_estimates,
    quantile_estimates,
    tasks_of,
    units_of,
)
from harness.measure.gaps import Gaps
from harness.records import TaskOutcome
from harness.results import Reason
from tests.making import S, a_task


def dice(seed=1):
    return np.random.default_rng(seed)


def some_tasks(times_s, outcomes=None, *, session=None):
    outcomes = outcomes or [TaskOutcome.COMPLETED] * len(times_s)
    return [
        a_task(
            task_id=f"b/w/{k}",
            k=k,
            session=k if session is None else session(k),
            scheduled_ns=k * S,
            started_ns=k * S,
            ended_ns=k * S + round(seconds * S),
            outcome=outcome,
        )
        for k, (seconds, outcome) in enumerate(zip(times_s, outcomes, strict=True))
    ]


def prepared(tasks):
    return tasks_of(tasks, units_of(tasks, generator=dice()))


def time_estimate(tasks, q):
    return curve_estimates(tasks, qs=[q])[0][0]


def within_estimate(tasks, limit_s):
    return curve_estimates(tasks, limits_s=[limit_s])[1][0]


def test_units_are_sessions_in_order_of_their_beginning():
    tasks = some_tasks([1] * 6, session=lambda k: k // 2)
    units = units_of(list(reversed(tasks)), generator=dice())
    assert [units.place[f"b/w/{k}"] for k in range(6)] == [0, 0, 1, 1, 2, 2]
    assert units.n == 3


def test_m16_a_handful_of_samples_has_a_median_and_no_p99():
    found = prepared(some_tasks(range(1, 9)))
    assert time_estimate(found, 0.5).value == 4
    p99 = time_estimate(found, 0.99)
    assert (p99.value, p99.reason, p99.n, p99.needed) == (None, Reason.TOO_FEW, 8, 368)


def test_2m1_a_limit_below_the_quantile_leaves_it_not_reached():
    # lognormal(2.5, 0.8): true p50 12.2, p95 45.4 (46.0 with the mu of 2.513); cut at 30 s
    true = np.exp(2.513) * np.exp(0.8 * dice(2).standard_normal(5000))
    assert np.quantile(true, 0.95) == pytest.approx(46.0, rel=0.05)
    outcomes = [TaskOutcome.COMPLETED if t <= 30 else TaskOutcome.TIMEOUT for t in true]
    found = prepared(some_tasks(np.minimum(true, 30), outcomes))
    p95 = time_estimate(found, 0.95)
    assert (p95.value, p95.reason) == (None, Reason.NOT_REACHED)
    assert time_estimate(found, 0.5).value == pytest.approx(np.exp(2.513), rel=0.05)


def test_2m1_failures_and_independent_cuts_leave_the_time_of_all_tasks():
    rng = dice(3)
    n = 20_000
    true = np.exp(2.513) * np.exp(0.8 * rng.standard_normal(n))
    fails = rng.random(n) < 0.06
    cut_at = rng.exponential(60, n)
    when = np.where(fails, true * rng.random(n), true)  # a failed task ends before it would be done
    outcomes = [
        TaskOutcome.CUT if c < w else TaskOutcome.FAILED if f else TaskOutcome.COMPLETED
        for w, f, c in zip(when, fails, cut_at, strict=True)
    ]
    found = prepared(some_tasks(np.minimum(when, cut_at), outcomes))
    # 90 % of all tasks are done when 90/94 of those that do not fail are
    truth = np.quantile(np.where(fails, np.inf, true), 0.9, method="inverted_cdf")
    p90 = time_estimate(found, 0.9)
    assert p90.value == pytest.approx(truth, rel=0.03)
    assert p90.low < truth < p90.high
    completed = [w for w, o in zip(when, outcomes, strict=True) if o is TaskOutcome.COMPLETED]
    assert np.quantile(completed, 0.9) < 0.85 * truth  # what a meter of survivors would say


def test_within_has_an_interval_that_holds_it():
    found = within_estimate(prepared(some_tasks(dice().permutation(100) + 1)), 60)
    assert found.value == pytest.approx(0.6)
    assert 0.45 < found.low < 0.6 < found.high < 0.75
    everyone = within_estimate(prepared(some_tasks([1.0] * 50)), 60)
    assert everyone.value == everyone.high == 1
    assert 0.9 < everyone.low < 1


def test_no_tasks_are_unknown():
    found = prepared([])
    assert time_estimate(found, 0.5).reason is Reason.UNKNOWN
    assert within_estimate(found, 10).reason is Reason.UNKNOWN


def test_calls_are_resampled_by_their_task():
    # 30 tasks of 20 equal calls: 600 values, worth 30
    tasks = some_tasks([1.0] * 30)
    units = units_of(tasks, generator=dice())
    level = dice().standard_normal(30)
    values = np.repeat(level, 20)
    places = np.repeat(np.arange(30), 20)
    found = quantile_estimates(values, places, units, [0.5])[0]
    alone = quantile_estimates(level, np.arange(30), units, [0.5])[0]
    assert found.n == 600
    assert found.high - found.low > 0.7 * (alone.high - alone.low)


def test_gaps_agree_with_the_exact_quantile():
    tasks = some_tasks([1.0] * 40)
    units = units_of(tasks, generator=dice())
    gaps = {f"c{i}": np.abs(dice(i).normal(20_000, 3000, 50)).astype(np.int64) for i in range(40)}
    counted = Gaps()
    for i, values in enumerate(gaps.values()):
        counted.add(f"b/w/{i}", values)
        counted.add(f"of another backend {i}", values * 10)
    [found] = gap_estimates(counted, units, [0.95])
    exact = np.quantile(np.concatenate(list(gaps.values())), 0.95)
    assert found.value == pytest.approx(exact, rel=0.01)
    assert found.low < exact < found.high
    assert found.n == 2000


@pytest.mark.parametrize("q", [0.5, 0.9, 0.95])
def test_2m2_the_interval_covers_the_truth_though_load_noise_is_shared(q):
    # AR(1) load noise of ten tasks' memory on top of the tasks' own: docs/method.md has the whole table
    rng = dice(5)
    covered = naive = 0
    rounds, n = 200, 300
    sigma = np.hypot(0.3, 0.6)
    truth = np.exp(2 + sigma * {0.5: 0.0, 0.9: 1.2816, 0.95: 1.6449}[q])
    for _ in range(rounds):
        load = np.empty(n)
        load[0] = rng.standard_normal()
        for i, shock in enumerate(rng.standard_normal(n - 1) * (1 - 0.9**2) ** 0.5):
            load[i + 1] = 0.9 * load[i] + shock
        values = np.exp(2 + 0.3 * load + 0.6 * rng.standard_normal(n))
        tasks = some_tasks(values)
        found = time_estimate(tasks_of(tasks, units_of(tasks, generator=rng)), q)
        covered += found.low <= truth <= found.high
        drawn = np.quantile(rng.choice(values, (200, n)), q, axis=1)
        naive += np.quantile(drawn, 0.025) <= truth <= np.quantile(drawn, 0.975)
    assert 0.90 <= covered / rounds <= 0.98
    assert naive < covered


@pytest.mark.parametrize(("done", "n"), [(9, 10), (27, 30), (81, 90), (133, 140)])
def test_a_share_on_its_limit_is_the_limit(done, n):
    outcomes = [TaskOutcome.COMPLETED] * done + [TaskOutcome.FAILED] * (n - done)
    found = within_estimate(prepared(some_tasks([1.0 + i / 1000 for i in range(n)], outcomes)), 60)
    assert found.value == done / n


def test_beyond_the_last_moment_that_anybody_was_watched_a_share_is_a_range():
    tasks = some_tasks([5.0, 30.0] * 20, [TaskOutcome.COMPLETED, TaskOutcome.CUT] * 20)
    found = within_estimate(prepared(tasks), 60)
    assert (found.value, found.high, found.reason) == (None, 1.0, Reason.UNKNOWN)
    assert 0.3 < found.low <= 0.5
    assert within_estimate(prepared(tasks), 30).value == 0.5


def test_timed_out_tasks_are_misses_at_any_limit():
    outcomes = [TaskOutcome.COMPLETED] * 20 + [TaskOutcome.TIMEOUT] * 20
    found = within_estimate(prepared(some_tasks([5.0] * 20 + [30.0] * 20, outcomes)), 60)
    assert found.value == 0.5


def test_one_survivor_of_a_cut_run_is_too_few():
    outcomes = [TaskOutcome.CUT] * 39 + [TaskOutcome.COMPLETED]
    found = time_estimate(prepared(some_tasks([0.1] * 39 + [6.67], outcomes)), 0.5)
    assert (found.value, found.reason, found.n, found.needed) == (None, Reason.TOO_FEW, 2, 6)
