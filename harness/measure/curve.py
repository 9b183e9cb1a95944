"""The completion curve F(t) = P(task completed by t), by the Aalen-Johansen estimator.

Failed tasks never complete: a competing event. Cut and timed-out tasks are censored: they would
have gone on. Without censoring F is the share of all tasks that completed by t.
Source: Aalen and Johansen (1978), An empirical transition matrix for non-homogeneous Markov chains
based on censored observations, Scand. J. Statist. 5.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.records import TaskOutcome

CENSORED = (TaskOutcome.CUT, TaskOutcome.TIMEOUT)
CELLS = 100_000
"""Replicates x tasks that are worked on at once: what bounds the memory of an interval, and fits a cache."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curve:
    """Steps of F: `share[i]` is reached at `times_s[i]`; `n` tasks went in."""

    times_s: Floats
    share: Floats
    n: int


def completion_curve(times_s: Sequence[float] | Floats, outcomes: Sequence[TaskOutcome]) -> Curve:
    """Estimate F from each task's time and outcome; at equal times ends come before censoring."""
    times = np.asarray(times_s, dtype=np.float64)
    completed = np.array([outcome is TaskOutcome.COMPLETED for outcome in outcomes], dtype=bool)
    ended = np.array([outcome not in CENSORED for outcome in outcomes], dtype=bool)
    steps = np.unique(times[ended])
    at_risk = len(times) - np.searchsorted(np.sort(times), steps, side="left")
    hazard = _counts(times[ended], steps) / at_risk
    surviving = np.cumprod(np.concatenate(([1.0], 1 - hazard)))[:-1]  # just before each step
    done = np.cumsum(_counts(times[completed], steps))
    if ended.all():  # nothing is censored: counts are exact, and a share on its limit meets it
        return Curve(times_s=steps, share=done / len(times), n=len(times))
    share = np.cumsum(surviving * _counts(times[completed], steps) / at_risk)
    share = np.minimum(1.0, np.round(share, 12))
    return Curve(times_s=steps, share=share, n=len(times))


def _counts(times: Floats, steps: Floats) -> NDArray[np.int64]:
    """Count how many of `times` fall on each step."""
    ordered = np.sort(times)
    left = np.searchsorted(ordered, steps, side="left")
    return np.searchsorted(ordered, steps, side="right") - left


def time_at(curve: Curve, q: float) -> float | None:
    """Give the smallest time at which F >= q, in seconds; None if it never is."""
    reached = np.flatnonzero(curve.share >= q - 1e-12)
    return float(curve.times_s[reached[0]]) if len(reached) else None


def share_at(curve: Curve, limit_s: float) -> float:
    """Give F at `limit_s`: the share of tasks done by then."""
    steps = int(np.searchsorted(curve.times_s, limit_s, side="right"))
    return float(curve.share[steps - 1]) if steps else 0.0


def at_risk_at(times_s: Floats, at_s: float) -> int:
    """Count the tasks that were still watched just before `at_s`."""
    return int(np.sum(times_s >= at_s))


@dataclass(frozen=True, slots=True)
class Redrawn:
    """Tasks in the order in which a curve takes them, and how often each resample drew their units.

    Of equal times those that ended come before the censored; then one by one or together makes no
    difference to the estimate. completed, ended: 1 or 0; weights: (replicates, units); places: a task's unit.
    """

    times_s: Floats
    completed: Floats
    ended: Floats
    weights: NDArray[np.uint16]
    places: NDArray[np.int64]


def redrawn(
    times_s: Floats,
    outcomes: Sequence[TaskOutcome],
    weights: NDArray[np.uint16],
    places: NDArray[np.int64] | None = None,
) -> Redrawn:
    """Put tasks into order. `places`: the unit of each task, where it is not a unit by itself."""
    censored = np.array([outcome in CENSORED for outcome in outcomes], dtype=bool)
    completed = np.array([outcome is TaskOutcome.COMPLETED for outcome in outcomes], dtype=np.float64)
    order = np.lexsort((censored, times_s))
    units = order if places is None else places[order]
    return Redrawn(times_s[order], completed[order], (~censored[order]).astype(np.float64), weights, units)


def share_replicates(tasks: Redrawn, at_s: Sequence[float]) -> Floats:
    """Give F at each of `at_s` for each resample with any task: (len(at_s), replicates)."""
    early = np.searchsorted(tasks.times_s, at_s, side="right")
    counted = [bool(tasks.ended[:n].all()) for n in early]  # nothing is censored before: counts are exact
    found = [np.empty((len(at_s), 0))]
    for drawn in _parts(tasks):
        total = drawn.sum(axis=1)
        rows, total = drawn[total > 0], total[total > 0]
        steps = None if all(counted) else _steps(tasks, rows)
        shares = [
            steps[:, :n].sum(axis=1)
            if steps is not None and not plain
            else rows[:, :n] @ tasks.completed[:n] / total
            for n, plain in zip(early, counted, strict=True)
        ]
        found.append(np.array(shares).reshape(len(at_s), -1))
    return np.concatenate(found, axis=1)


def time_replicates(tasks: Redrawn, qs: Sequence[float]) -> Floats:
    """Give the smallest time at which F >= q, for each of `qs` and each resample: (len(qs), replicates).

    inf where it is never reached, as in a resample without any task.
    """
    times_s, wanted = np.append(tasks.times_s, np.inf), np.array(qs) - 1e-12
    found = [
        times_s[np.searchsorted(share, wanted)]
        for drawn in _parts(tasks)
        for share in np.cumsum(_steps(tasks, drawn), axis=1)
    ]
    return np.array(found).reshape(-1, len(qs)).T


def _parts(tasks: Redrawn) -> Iterator[Floats]:
    """Give how often each task was drawn, some resamples at a time: (resamples, tasks)."""
    at_once = max(1, CELLS // max(1, len(tasks.places)))
    for first in range(0, len(tasks.weights), at_once):
        yield np.take(tasks.weights[first : first + at_once], tasks.places, axis=1).astype(np.float64)


def _steps(tasks: Redrawn, drawn: Floats) -> Floats:
    """Give what each task adds to F: the share that survived until then x completed / at risk."""
    at_risk = np.cumsum(drawn[:, ::-1], axis=1, dtype=np.int64)[:, ::-1]  # whole numbers add up faster
    hazard = drawn / np.maximum(at_risk, 1)  # nobody is at risk only where nothing was drawn
    surviving = np.cumprod(1 - hazard * tasks.ended, axis=1)
    hazard *= tasks.completed
    hazard[:, 1:] *= surviving[:, :-1]
    return hazard
