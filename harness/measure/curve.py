"""The completion curve F(t) = P(task completed by t), by the Aalen-Johansen estimator.

Failed tasks never complete: a competing event. Cut and timed-out tasks are censored: they would
have gone on. Without censoring F is the share of all tasks that completed by t.
Source: Aalen and Johansen (1978), An empirical transition matrix for non-homogeneous Markov chains
based on censored observations, Scand. J. Statist. 5.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.records import TaskOutcome

CENSORED = (TaskOutcome.CUT, TaskOutcome.TIMEOUT)
CELLS = 2_000_000
"""Replicates x tasks that are worked on at once: what bounds the memory of an interval."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Steps of F: `share[i]` is reached at `times_s[i]`; `n` tasks went in."""

    times_s: NDArray[np.float64]
    share: NDArray[np.float64]
    n: int


def completion_curve(
    times_s: Sequence[float] | NDArray[np.float64], outcomes: Sequence[TaskOutcome]
) -> Curve:
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


def _counts(times: NDArray[np.float64], steps: NDArray[np.float64]) -> NDArray[np.int64]:
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


def at_risk_at(times_s: NDArray[np.float64], at_s: float) -> int:
    """Count the tasks that were still watched just before `at_s`."""
    return int(np.sum(times_s >= at_s))


def share_replicates(
    times_s: NDArray[np.float64],
    outcomes: Sequence[TaskOutcome],
    weights: NDArray[np.uint16],
    at_s: float,
) -> NDArray[np.float64]:
    """Give F at `at_s` for each row of weights: (replicates, n) -> (replicates,).

    Tasks are taken one after the other; of equal times those that ended come before the censored,
    and then one by one or together makes no difference to the estimate.
    """
    censored = np.array([outcome in CENSORED for outcome in outcomes], dtype=bool)
    completed = np.array([outcome is TaskOutcome.COMPLETED for outcome in outcomes], dtype=bool)
    order = np.lexsort((censored, times_s))
    ordered = weights[:, order].astype(np.float64)
    total = ordered.sum(axis=1)
    known = total > 0
    early = int(np.searchsorted(times_s[order], at_s, side="right"))
    if not censored[order][:early].any():
        done = np.where(completed[order][:early], 1.0, 0.0)
        return np.asarray(ordered[known][:, :early] @ done / total[known])
    at_risk = np.cumsum(ordered[known][:, ::-1], axis=1)[:, ::-1][:, :early]
    hazard = np.divide(ordered[known][:, :early], at_risk, out=np.zeros_like(at_risk), where=at_risk > 0)
    leaving = np.where(censored[order][:early], 0.0, hazard)
    surviving = np.cumprod(1 - leaving, axis=1)
    before = np.concatenate((np.ones((len(surviving), 1)), surviving[:, :-1]), axis=1)
    return np.asarray((before * np.where(completed[order][:early], hazard, 0.0)).sum(axis=1))


def time_replicates(
    times_s: NDArray[np.float64], outcomes: Sequence[TaskOutcome], weights: NDArray[np.uint16], q: float
) -> NDArray[np.float64]:
    """Give the smallest time at which F >= q for each row of weights, inf where it is never reached.

    (replicates, n) -> (replicates,); ties as in `share_replicates`. A row without weight gives inf.
    """
    censored = np.array([outcome in CENSORED for outcome in outcomes], dtype=bool)
    completed = np.array([outcome is TaskOutcome.COMPLETED for outcome in outcomes], dtype=bool)
    order = np.lexsort((censored, times_s))
    found = [np.empty(0)]
    for rows in np.array_split(weights, max(1, weights.size // CELLS)):
        ordered = rows[:, order].astype(np.float64)
        at_risk = np.cumsum(ordered[:, ::-1], axis=1)[:, ::-1]
        hazard = np.divide(ordered, at_risk, out=np.zeros_like(at_risk), where=at_risk > 0)
        surviving = np.cumprod(1 - np.where(censored[order], 0.0, hazard), axis=1)
        before = np.concatenate((np.ones((len(rows), 1)), surviving[:, :-1]), axis=1)
        share = np.cumsum(before * np.where(completed[order], hazard, 0.0), axis=1)
        at = (share < q - 1e-12).sum(axis=1)
        found.append(np.concatenate((times_s[order], [np.inf]))[at])
    return np.concatenate(found)
