"""Numbers with their intervals: quantiles and shares over units that are resampled together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from harness.measure import histogram as histograms
from harness.measure.curve import (
    CENSORED,
    Curve,
    at_risk_at,
    completion_curve,
    share_at,
    share_replicates,
    time_at,
)
from harness.measure.histogram import Histogram
from harness.measure.intervals import (
    Resampling,
    effective,
    levels,
    needed,
    resampling,
)
from harness.measure.intervals import share_replicates as plain_replicates
from harness.measure.metrics.task import task_time_ns
from harness.records import TaskOutcome, TaskRecord
from harness.results import Estimate, Reason

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Units:
    """What is resampled: sessions in the order in which they began; a session of one task is a task.

    place: task_id -> unit.
    """

    place: Mapping[str, int]
    n: int
    resampled: Resampling


def units_of(
    tasks: Sequence[TaskRecord], *, generator: np.random.Generator, runs: Mapping[str, int] | None = None
) -> Units:
    """Lay tasks into units. `runs`: task_id -> number of its run, where several are put together."""
    place: dict[str, int] = {}
    seen: dict[tuple[int, int], int] = {}
    of_unit: list[int] = []
    for task in sorted(tasks, key=lambda one: (runs[one.task_id] if runs else 0, one.scheduled_ns, one.k)):
        run = runs[task.task_id] if runs else 0
        unit = seen.setdefault((run, task.session), len(seen))
        if unit == len(of_unit):
            of_unit.append(run)
        place[task.task_id] = unit
    resampled = resampling(len(seen), generator=generator, runs=np.array(of_unit) if runs else None)
    return Units(place, len(seen), resampled)


def quantile_estimate(values: Sequence[float], places: Sequence[int], units: Units, q: float) -> Estimate:
    """Give the smallest observed value with F >= q, and the interval of its order statistics.

    places[i]: the unit of values[i].
    """
    n = len(values)
    if not n:
        return Estimate(value=None, reason=Reason.UNKNOWN)
    if n < needed(q):
        return Estimate(value=None, n=n, reason=Reason.TOO_FEW, needed=needed(q))
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    point = ordered[ceil(q * n - 1e-9) - 1]
    where = np.asarray(places)
    counts = np.bincount(where, minlength=units.n).astype(np.float64)
    below = np.asarray(np.asarray(values) <= point, dtype=np.float64)
    hits = np.bincount(where, weights=below, minlength=units.n).astype(np.float64)
    low, high = _level_ends(float(hits.sum()) / n, q, hits, counts, units)
    return Estimate(
        value=float(point),
        low=float(ordered[max(1, ceil(low * n)) - 1]),
        high=float(ordered[min(n, ceil(high * n)) - 1]),
        n=n,
    )


@dataclass(frozen=True, slots=True)
class Gaps:
    """Pooled gaps in us, and where each bucket's counts came from: three parallel arrays."""

    pooled: Histogram
    unit: Ints
    bucket: Ints
    count: Ints
    units: Units


def gaps_of(per_call: Mapping[str, Histogram], places: Mapping[str, int], units: Units) -> Gaps:
    """Prepare the gaps of calls for `gap_estimate`; `places`: call_id -> unit."""
    found = list(per_call.values())
    nothing = np.empty(0, dtype=np.int64)
    return Gaps(
        pooled=histograms.merged(found),
        unit=np.repeat([places[call_id] for call_id in per_call], [len(one.buckets) for one in found])
        if found
        else nothing,
        bucket=np.concatenate([one.buckets for one in found]) if found else nothing,
        count=np.concatenate([one.counts for one in found]) if found else nothing,
        units=units,
    )


def gap_estimate(gaps: Gaps, q: float) -> Estimate:
    """Give a quantile of the pooled gaps in us."""
    n = gaps.pooled.total
    if not n:
        return Estimate(value=None, reason=Reason.UNKNOWN)
    if n < needed(q):
        return Estimate(value=None, n=n, reason=Reason.TOO_FEW, needed=needed(q))
    point = histograms.quantile(gaps.pooled, q)
    if point is None:  # it lies among values that fit into no bucket
        return Estimate(value=None, n=n, reason=Reason.UNKNOWN)
    below = gaps.bucket <= histograms.bucket(np.array([int(point)]))[0]
    counts = np.bincount(gaps.unit, weights=gaps.count, minlength=gaps.units.n).astype(np.float64)
    hits = np.bincount(gaps.unit[below], weights=gaps.count[below], minlength=gaps.units.n).astype(np.float64)
    low, high = _level_ends(float(hits.sum() / counts.sum()), q, hits, counts, gaps.units)
    ends = histograms.quantile(gaps.pooled, low), histograms.quantile(gaps.pooled, high)
    return Estimate(point, low=ends[0], high=ends[1], n=n)


def _level_ends(share: float, q: float, hits: Floats, counts: Floats, units: Units) -> tuple[float, float]:
    """Give the levels between which quantile q lies, by the scatter of the share below its estimate."""
    replicates = plain_replicates(units.resampled, hits, counts)
    independent = effective(share, replicates, drawn=units.resampled.drawn, total=float(counts.sum()))
    return levels(q, independent)


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks as the completion curve sees them, with the unit of each."""

    times_s: Floats
    outcomes: Sequence[TaskOutcome]
    places: Ints
    curve: Curve
    units: Units


def tasks_of(tasks: Sequence[TaskRecord], units: Units) -> Tasks:
    """Prepare measured tasks for `time_estimate` and `within_estimate`."""
    times = np.array([task_time_ns(task) / 1e9 for task in tasks])
    outcomes = [task.outcome for task in tasks]
    places = np.array([units.place[task.task_id] for task in tasks], dtype=np.int64)
    return Tasks(times, outcomes, places, completion_curve(times, outcomes), units)


def time_estimate(tasks: Tasks, q: float) -> Estimate:
    """Give a quantile of the completion curve in seconds; `not_reached` with what is known of its ends.

    Where tasks were cut before it, those still watched there must be as many as q of `needed(q)` tasks
    would leave: else it is `too_few`, n being the number of tasks that the watched ones stand for.
    """
    n = tasks.curve.n
    if not n:
        return Estimate(value=None, reason=Reason.UNKNOWN)
    point = time_at(tasks.curve, q)
    at = point if point is not None else float(tasks.times_s.max())
    worth = min(float(n), _watched(tasks, at, q))
    if worth < needed(q):
        return Estimate(value=None, n=int(worth), reason=Reason.TOO_FEW, needed=needed(q))
    low, high = levels(q, min(worth, _independent(tasks, at)))
    ends = time_at(tasks.curve, low), time_at(tasks.curve, high)
    if point is None:
        return Estimate(value=None, low=ends[0], high=None, n=n, reason=Reason.NOT_REACHED)
    return Estimate(value=point, low=ends[0], high=ends[1], n=n)


def within_estimate(tasks: Tasks, limit_s: float) -> Estimate:
    """Give the share of tasks done by `limit_s`.

    Beyond the last moment that anybody was watched, cut tasks may have been done or not: then it is a
    range, from what was seen to what would be if all of them were. Timed-out tasks are misses.
    """
    if not tasks.curve.n:
        return Estimate(value=None, reason=Reason.UNKNOWN)
    share, n, last = share_at(tasks.curve, limit_s), tasks.curve.n, float(tasks.times_s.max())
    worth = _independent(tasks, limit_s)
    if 0 < share < 1:
        worth = min(worth, max(1.0, _watched(tasks, min(limit_s, last), share)))
    low, high = levels(share, worth)
    open_at_last = [
        outcome
        for time, outcome in zip(tasks.times_s, tasks.outcomes, strict=True)
        if time >= (tasks.curve.times_s[-1] if len(tasks.curve.times_s) else 0.0)
    ]
    if limit_s > last and share < 1 and TaskOutcome.CUT in open_at_last:
        return Estimate(value=None, low=min(low, share), high=1.0, n=n, reason=Reason.UNKNOWN)
    return Estimate(value=share, low=min(low, share), high=max(high, share), n=n)


def _watched(tasks: Tasks, at_s: float, q: float) -> float:
    """Give how many tasks those still watched at `at_s` stand for, if a share q ended before; n uncut.

    Of n tasks nobody cut, n (1 - q) are left there. Tasks cut before make it fewer.
    """
    cut_before = any(
        outcome in CENSORED and time < at_s
        for time, outcome in zip(tasks.times_s, tasks.outcomes, strict=True)
    )
    left = at_risk_at(tasks.times_s, at_s)
    return left / (1 - q) if cut_before and q < 1 else float(tasks.curve.n)


def _independent(tasks: Tasks, at_s: float) -> float:
    """Give how many independent tasks the curve's share at `at_s` is worth."""
    resampled = tasks.units.resampled
    replicates = [
        share_replicates(tasks.times_s, tasks.outcomes, weights[:, tasks.places], at_s)
        for weights in resampled.weights
    ]
    share = share_at(tasks.curve, at_s)
    return effective(share, replicates, drawn=resampled.drawn, total=float(tasks.curve.n))
