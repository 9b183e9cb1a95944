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
from harness.results import Estimate, Reason

CENSORED = (TaskOutcome.CUT, TaskOutcome.TIMEOUT)


@dataclass(frozen=True, slots=True)
class Curve:
    """Steps of F: `share[i]` is reached at `times_s[i]`; `n` tasks went in."""

    times_s: NDArray[np.float64]
    share: NDArray[np.float64]
    n: int


def completion_curve(times_s: Sequence[float], outcomes: Sequence[TaskOutcome]) -> Curve:
    """Estimate F from each task's time and outcome; at equal times ends come before censoring."""
    times = np.asarray(times_s, dtype=np.float64)
    completed = np.array([outcome is TaskOutcome.COMPLETED for outcome in outcomes], dtype=bool)
    ended = np.array([outcome not in CENSORED for outcome in outcomes], dtype=bool)
    steps = np.unique(times[ended])
    at_risk = len(times) - np.searchsorted(np.sort(times), steps, side="left")
    hazard = _counts(times[ended], steps) / at_risk
    surviving = np.cumprod(np.concatenate(([1.0], 1 - hazard)))[:-1]  # just before each step
    share = np.cumsum(surviving * _counts(times[completed], steps) / at_risk)
    return Curve(times_s=steps, share=share, n=len(times))


def _counts(times: NDArray[np.float64], steps: NDArray[np.float64]) -> NDArray[np.int64]:
    """Count how many of `times` fall on each step."""
    ordered = np.sort(times)
    left = np.searchsorted(ordered, steps, side="left")
    return np.searchsorted(ordered, steps, side="right") - left


def quantile(curve: Curve, q: float) -> Estimate:
    """Give the smallest time at which F >= q, in seconds; `not_reached` if it never is."""
    if not curve.n:
        return Estimate(value=None, n=0, reason=Reason.UNKNOWN)
    reached = np.flatnonzero(curve.share >= q - 1e-12)
    if not len(reached):
        return Estimate(value=None, n=curve.n, reason=Reason.NOT_REACHED)
    return Estimate(value=float(curve.times_s[reached[0]]), n=curve.n)


def within(curve: Curve, limit_s: float) -> Estimate:
    """Give F at `limit_s`: the share of tasks done by then."""
    if not curve.n:
        return Estimate(value=None, n=0, reason=Reason.UNKNOWN)
    steps = int(np.searchsorted(curve.times_s, limit_s, side="right"))
    return Estimate(value=float(curve.share[steps - 1]) if steps else 0.0, n=curve.n)
