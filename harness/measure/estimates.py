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
    redrawn,
    share_at,
    time_at,
)
from harness.measure.curve import share_replicates as curve_replicates
from harness.measure.gaps import BEYOND, Gaps, clumped_share
from harness.measure.intervals import (
    Resampling,
    effective,
    levels,
    needed,
    resampling,
    share_replicates,
)
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


def quantile_estimates(values: Floats, places: Ints, units: Units, qs: Sequence[float]) -> list[Estimate]:
    """Give the smallest observed value with F >= q, and the interval of its order statistics, for each q.

    places[i]: the unit of values[i].
    """
    n = len(values)
    known = [q for q in qs if n >= needed(q)]
    ordered = np.sort(values)
    points = {q: float(ordered[ceil(q * n - 1e-9) - 1]) for q in known}
    counts = np.bincount(places, minlength=units.n)
    hits = [np.bincount(places[values <= points[q]], minlength=units.n) for q in known]
    ends = dict(zip(known, _level_ends(known, hits, counts, units), strict=True))

    def estimate(q: float) -> Estimate:
        if q not in points:
            return _too_few(n, q)
        low, high = ends[q]
        return Estimate(
            value=points[q],
            low=float(ordered[max(1, ceil(low * n)) - 1]),
            high=float(ordered[min(n, ceil(high * n)) - 1]),
            n=n,
        )

    return [estimate(q) for q in qs]


def _too_few(n: int, q: float) -> Estimate:
    """Say why a quantile of n values has no number."""
    if not n:
        return Estimate(value=None, reason=Reason.UNKNOWN)
    return Estimate(value=None, n=n, reason=Reason.TOO_FEW, needed=needed(q))


def gap_estimates(gaps: Gaps, units: Units, qs: Sequence[float]) -> list[Estimate]:
    """Give quantiles of the pooled gaps in us of tasks that have a unit; none if they came in clumps."""
    placed = gaps.at(units.place)
    pooled = placed.pooled()
    n = pooled.total
    if clumped_share(pooled) is not None:
        return [Estimate(value=None, n=n, reason=Reason.UNKNOWN) for _ in qs]
    points = {q: histograms.quantile(pooled, q) for q in qs if n >= needed(q)}
    known = {q: point for q, point in points.items() if point is not None}
    counts = placed.per_place(units.n, up_to=BEYOND - 1)
    hits = [
        placed.per_place(units.n, up_to=int(histograms.bucket(np.array([int(point)]))[0]))
        for point in known.values()
    ]
    ends = dict(zip(known, _level_ends(list(known), hits, counts, units), strict=True))

    def estimate(q: float) -> Estimate:
        if q not in points:
            return _too_few(n, q)
        if q not in known:  # it lies among values that fit into no bucket
            return Estimate(value=None, n=n, reason=Reason.UNKNOWN)
        low, high = (histograms.quantile(pooled, level) for level in ends[q])
        return Estimate(known[q], low=low, high=high, n=n)

    return [estimate(q) for q in qs]


def _level_ends(
    qs: Sequence[float], hits: Sequence[Ints], counts: Ints, units: Units
) -> list[tuple[float, float]]:
    """Give the levels between which each quantile lies, by the scatter of the share below its estimate.

    hits, counts: values up to the estimate of each q, and all values, of each unit.
    """
    if not qs:
        return []
    total = float(counts.sum())
    replicates = share_replicates(
        units.resampled, np.array(hits, dtype=np.float64), counts.astype(np.float64)
    )
    shares = [float(row.sum()) / total for row in hits]
    found = []
    for i, (q, share) in enumerate(zip(qs, shares, strict=True)):
        rows = [one[i] for one in replicates]
        found.append(levels(q, effective(share, rows, drawn=units.resampled.drawn, total=total)))
    return found


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks as the completion curve sees them, with the unit of each."""

    times_s: Floats
    outcomes: Sequence[TaskOutcome]
    places: Ints
    curve: Curve
    units: Units


def tasks_of(tasks: Sequence[TaskRecord], units: Units) -> Tasks:
    """Prepare measured tasks for `curve_estimates`."""
    times = np.array([task_time_ns(task) / 1e9 for task in tasks])
    outcomes = [task.outcome for task in tasks]
    places = np.array([units.place[task.task_id] for task in tasks], dtype=np.int64)
    return Tasks(times, outcomes, places, completion_curve(times, outcomes), units)


def curve_estimates(
    tasks: Tasks, *, qs: Sequence[float] = (), limits_s: Sequence[float] = ()
) -> tuple[list[Estimate], list[Estimate]]:
    """Give quantiles of the completion curve in seconds, and the shares of tasks done by each of `limits_s`.

    All together, since each resample's curve serves them all.
    """
    if not tasks.curve.n:
        unknown = Estimate(value=None, reason=Reason.UNKNOWN)
        return [unknown for _ in qs], [unknown for _ in limits_s]
    last = float(tasks.times_s.max())
    reached = [time_at(tasks.curve, q) for q in qs]
    independent = iter(_independent(tasks, [*(last if at is None else at for at in reached), *limits_s]))
    times = [_time(tasks, q, at, next(independent)) for q, at in zip(qs, reached, strict=True)]
    return times, [_within(tasks, limit, next(independent)) for limit in limits_s]


def _time(tasks: Tasks, q: float, point: float | None, independent: float) -> Estimate:
    """Give a quantile of the completion curve in seconds; `not_reached` with what is known of its ends.

    Where tasks were cut before it, those still watched there must be as many as q of `needed(q)` tasks
    would leave: else it is `too_few`, n being the number of tasks that the watched ones stand for.
    """
    n = tasks.curve.n
    at = point if point is not None else float(tasks.times_s.max())
    worth = min(float(n), _watched(tasks, at, q))
    if worth < needed(q):
        return Estimate(value=None, n=int(worth), reason=Reason.TOO_FEW, needed=needed(q))
    low, high = levels(q, min(worth, independent))
    ends = time_at(tasks.curve, low), time_at(tasks.curve, high)
    if point is None:
        return Estimate(value=None, low=ends[0], high=None, n=n, reason=Reason.NOT_REACHED)
    return Estimate(value=point, low=ends[0], high=ends[1], n=n)


def _within(tasks: Tasks, limit_s: float, independent: float) -> Estimate:
    """Give the share of tasks done by `limit_s`.

    Beyond the last moment that anybody was watched, cut tasks may have been done or not: then it is a
    range, from what was seen to what would be if all of them were. Timed-out tasks are misses.
    """
    share, n, last = share_at(tasks.curve, limit_s), tasks.curve.n, float(tasks.times_s.max())
    worth = independent
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


def _independent(tasks: Tasks, at_s: Sequence[float]) -> list[float]:
    """Give how many independent tasks the curve's share at each of `at_s` is worth."""
    resampled, n = tasks.units.resampled, float(tasks.curve.n)
    replicates = [
        curve_replicates(redrawn(tasks.times_s, tasks.outcomes, weights, tasks.places), at_s)
        for weights in resampled.weights
    ]
    shares = [share_at(tasks.curve, at) for at in at_s]
    return [
        effective(share, [one[i] for one in replicates], drawn=resampled.drawn, total=n)
        for i, share in enumerate(shares)
    ]
