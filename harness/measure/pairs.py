"""Pairs: the same task on two backends, and what can be said of their ratio when a leg did not end.

A leg that completed has a number; one that failed or was abandoned never completes, which counts as an
infinite time; one that was cut or timed out would have gone on, so its time has only a lower bound.
Each pair so becomes two bounds, in [0, inf]; equal where both legs completed. A cut leg counts as one
that would have completed at some time: beside a failed leg the pair is 0 or inf, as if it had.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.measure.intervals import (
    Floats,
    Ints,
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

FAILED = (TaskOutcome.FAILED, TaskOutcome.ABANDONED)
AGREE = 0.01
"""Bounds of a quantile that differ by no more than this share are printed as one number."""

Bounds = tuple[float, float]
Runs = Mapping[str, int] | None
"""task_id -> number of its run, where several runs are put together."""
Key = tuple[int, int]
"""Run and number of a task, or run and session."""


@dataclass(frozen=True, slots=True)
class LegHeadline:
    """What is compared of a leg, and its direction.

    `of` gives a completed leg's number (None: it has none, the pair is lost) and, of a cut one, the
    best that it could still come to: of a time, the time until then.
    """

    of: Callable[[TaskRecord], float | None]
    better: Literal["lower", "higher"] = "lower"


def task_time_s(task: TaskRecord) -> float:
    """Task time in seconds; the headline of agent tasks."""
    return task_time_ns(task) / 1e9


TASK_TIME = LegHeadline(task_time_s)


@dataclass(frozen=True, slots=True)
class Pairing:
    """Bounds per pair, parallel arrays in the order of (run, k).

    ks: task numbers that have a pair; low, high: bounds of the ratio baseline / candidate (or of the
    difference); censored: a leg was cut or timed out; sessions: (run, session), the smallest thing that
    is resampled; lost: task numbers without a pair, since one side lacks them, both failed, or a leg
    has no such number.
    """

    ks: Ints
    low: Floats
    high: Floats
    censored: NDArray[np.bool_]
    sessions: Sequence[Key]
    lost: int


@dataclass(frozen=True, slots=True)
class _Leg:
    """Bounds of a leg's cost (its number, or 1 / number where higher is better); inf if it failed."""

    low: float
    high: float
    failed: bool
    censored: bool


def pair(
    baseline: Sequence[TaskRecord],
    candidate: Sequence[TaskRecord],
    *,
    headline: LegHeadline = TASK_TIME,
    runs: Runs = None,
) -> Pairing:
    """Pair the measured tasks of one workload by k: ratio of the headline, above 1 = candidate better.

    Candidate failed: 0. Baseline failed: inf. Both failed: no pair. Completed by completed: their
    ratio. Candidate cut: [0, ratio so far]. Baseline cut: [ratio so far, inf]. Both cut: [0, inf].
    A k that comes twice in one run and side is a ValueError.
    """
    return _paired(by_k(baseline, runs), by_k(candidate, runs), headline=headline, combine=_ratio)


def savings(baseline: Sequence[TaskRecord], candidate: Sequence[TaskRecord], *, runs: Runs = None) -> Pairing:
    """Pair as `pair` does: seconds of task time saved, baseline - candidate, in [-inf, inf]."""
    return _paired(by_k(baseline, runs), by_k(candidate, runs), headline=TASK_TIME, combine=_difference)


def resampled_pairs(pairing: Pairing, *, generator: np.random.Generator) -> Resampling:
    """Draw sessions of pairs, in the order of k: what both sides of a pair share is drawn with them."""
    sessions = sorted(set(pairing.sessions))
    runs = np.array([run for run, _ in sessions], dtype=np.int64)
    return resampling(len(sessions), generator=generator, runs=runs)


def speedup_quantile(pairing: Pairing, q: float, *, resampled: Resampling) -> Estimate:
    """Give quantile q over the pairs, once with all bounds low and once with all high.

    q = 0.1 is the tenth of the pairs that gained least. `resampled`: by `resampled_pairs`. The interval
    is the union of both, by order statistics. One value where the two quantiles agree to 1 %, else a
    range: no value, the ends of the interval, an infinite one as null. A quantile that is infinite
    itself is a range too, from the largest finite bound up (or, of savings, from the smallest down).
    """
    n = len(pairing.ks)
    if n < needed(q):
        return Estimate(value=None, n=n, reason=Reason.TOO_FEW, needed=needed(q))
    places = unit_places(pairing)
    low, lowest, _ = _with_interval(pairing.low, q, places, resampled)
    high, _, highest = _with_interval(pairing.high, q, places, resampled)
    if np.isfinite(low) and agree(low, high):
        return Estimate(value=(low + high) / 2, low=finite(lowest), high=finite(highest), n=n)
    known = [bound for bound in (*pairing.low.tolist(), *pairing.high.tolist()) if np.isfinite(bound)]
    lowest = max(known, default=-inf) if lowest == inf else lowest
    highest = min(known, default=inf) if highest == -inf else highest
    return Estimate(value=None, low=finite(lowest), high=finite(highest), n=n, reason=Reason.UNKNOWN)


def unit_places(pairing: Pairing) -> Ints:
    """Give each pair's place among the sessions that `resampled_pairs` draws."""
    place = {session: i for i, session in enumerate(sorted(set(pairing.sessions)))}
    return np.array([place[session] for session in pairing.sessions], dtype=np.int64)


def _with_interval(
    values: Floats, q: float, places: Ints, resampled: Resampling
) -> tuple[float, float, float]:
    """Give the quantile of `values` and the values at both levels of its interval."""
    n = len(values)
    ordered = np.sort(values)
    point = ordered[ceil(q * n - 1e-9) - 1]
    below = values <= point
    hits, counts = (np.bincount(places, weights=one).astype(np.float64) for one in (below, np.ones(n)))
    shares = [row for (row,) in share_replicates(resampled, hits[None, :], counts)]
    units = effective(float(below.mean()), shares, drawn=resampled.drawn, total=float(n))
    low, high = (ordered[min(max(1, ceil(level * n)), n) - 1] for level in levels(q, units))
    return float(point), float(low), float(high)


def agree(low: float, high: float) -> bool:
    """Whether two bounds are one number for a reader; infinite ones only if they are equal."""
    if low == high:
        return True
    return bool(np.isfinite([low, high]).all()) and high - low <= AGREE * max(abs(low), abs(high))


def finite(end: float) -> float | None:
    """Give the end of an interval, None where there is no bound."""
    return float(end) if np.isfinite(end) else None


def by_k(tasks: Sequence[TaskRecord], runs: Runs = None) -> dict[Key, TaskRecord]:
    """Key tasks by run and number; a number that comes twice in a run is a ValueError."""
    found = {(runs[task.task_id] if runs else 0, task.k): task for task in tasks}
    if len(found) < len(tasks):
        message = f"{len(tasks)} tasks of one workload have only {len(found)} numbers between them"
        raise ValueError(message)
    return found


def _paired(
    baseline: Mapping[Key, TaskRecord],
    candidate: Mapping[Key, TaskRecord],
    *,
    headline: LegHeadline,
    combine: Callable[[_Leg, _Leg], Bounds],
) -> Pairing:
    keys, bounds, censored = [], [], []
    for key in sorted(baseline.keys() & candidate.keys()):
        base, cand = _leg(baseline[key], headline), _leg(candidate[key], headline)
        if base is None or cand is None or (base.failed and cand.failed):
            continue
        keys.append(key)
        bounds.append(combine(base, cand))
        censored.append(base.censored or cand.censored)
    low, high = np.array(bounds, dtype=np.float64).reshape(-1, 2).T
    return Pairing(
        ks=np.array([k for _, k in keys], dtype=np.int64),
        low=low,
        high=high,
        censored=np.array(censored, dtype=np.bool_),
        sessions=[(run, baseline[run, k].session) for run, k in keys],
        lost=len(baseline.keys() | candidate.keys()) - len(keys),
    )


def _leg(task: TaskRecord, headline: LegHeadline) -> _Leg | None:
    if task.outcome in FAILED:
        return _Leg(inf, inf, failed=True, censored=False)
    value = headline.of(task)
    if value is None:
        return None
    cost = value if headline.better == "lower" else _divide(1.0, value)
    if task.outcome is TaskOutcome.COMPLETED:
        return _Leg(cost, cost, failed=False, censored=False)
    return _Leg(cost, inf, failed=False, censored=True)


def _ratio(base: _Leg, cand: _Leg) -> Bounds:
    if cand.failed:
        return 0.0, 0.0
    if base.failed:
        return inf, inf
    return _divide(base.low, cand.high), _divide(base.high, cand.low)


def _difference(base: _Leg, cand: _Leg) -> Bounds:
    if cand.failed:
        return -inf, -inf
    if base.failed:
        return inf, inf
    return base.low - cand.high, base.high - cand.low


def _divide(over: float, under: float) -> float:
    """Divide in [0, inf]; equal costs are a ratio of 1, also two of 0 or two of inf."""
    if over == under:
        return 1.0
    return over / under if under else inf
