"""Money of a whole run: totals, money per completed task, ratios of it, and what is not known.

What one call or task costs stands in `charge`. Endpoints by the hour cost the run's wall time; for
intervals that money is laid over the tasks by the time that each took.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.measure.charge import Habit, countable, habit, task_usd, tier_of, told, unserved
from harness.measure.intervals import Floats, Ints, Resampling, Weights, needed, resampling, widened
from harness.prices import EVERY, EndpointPrice, Mark, Prices, TokenPrice, entry_at
from harness.records import CallRecord, TaskOutcome, TaskRecord
from harness.results import CostSummary, Estimate, Finding, FindingName, Reason

INTERVAL_MIN = needed(0.5)
"""Fewer tasks than this have no interval."""


@dataclass(frozen=True, slots=True)
class Money:
    """What the measured tasks of one workload on one backend cost, in their order.

    usd: (n,), nan where unknown; completed: (n,), 1 or 0; k: (n,) numbers of the tasks; runs: (n,) the
    run of each. total_usd: None where unknown; more than the sum only if there is no task at all.
    """

    usd: Floats
    completed: Floats
    k: Ints
    runs: Ints
    total_usd: float | None


def money(tasks: Sequence[TaskRecord], calls: Sequence[CallRecord], prices: Prices, *, run_s: float) -> Money:
    """Add up what each task cost. tasks: the measured ones, in order of time; calls: theirs, in any order.

    run_s: wall time of the run, which is what endpoints by the hour cost.
    """
    by_task: Mapping[str, list[CallRecord]] = defaultdict(list)
    for call in calls:
        by_task[call.task_id].append(call)
    total: float | None
    every = prices.get(EVERY)
    if every is not None and isinstance(every.price, EndpointPrice):
        total = every.price.usd_per_endpoint_hour * every.price.endpoints * run_s / 3600
        usd = total * _time_shares(tasks)
    else:
        like = habit(calls)
        known = [_task_usd(task, by_task[task.task_id], prices, like=like) for task in tasks]
        usd = np.array([np.nan if cost is None else cost for cost in known], dtype=np.float64)
        total = None if None in known else float(usd.sum())
    return Money(
        usd=usd,
        completed=np.array([task.outcome is TaskOutcome.COMPLETED for task in tasks], dtype=np.float64),
        k=np.array([task.k for task in tasks], dtype=np.int64),
        runs=np.zeros(len(tasks), dtype=np.int64),
        total_usd=total,
    )


def together(runs: Sequence[Money]) -> Money:
    """Join the money of several runs, so that whole runs can be resampled."""
    totals = [run.total_usd for run in runs]
    return Money(
        usd=np.concatenate([run.usd for run in runs]),
        completed=np.concatenate([run.completed for run in runs]),
        k=np.concatenate([run.k for run in runs]),
        runs=np.repeat(np.arange(len(runs)), [len(run.k) for run in runs]),
        total_usd=None if None in totals else sum(total for total in totals if total is not None),
    )


def cost_summary(spent: Money, *, generator: np.random.Generator) -> CostSummary:
    """Total, and all of it / completed tasks: tasks that did not complete cost money, and count nothing.

    A run that ends by the clock cuts tasks. Their money so far stays in: the completed ones alone are
    the short and cheap ones of those that began (the longer a task, the likelier the cut), the more so
    the slower the backend.
    """
    n, done = len(spent.k), float(spent.completed.sum())
    if spent.total_usd is None:
        total = Estimate(None, n=n, reason=Reason.UNKNOWN)
    else:
        total = Estimate(spent.total_usd, n=n)
    if not done:
        return CostSummary(total, Estimate(None, n=n, reason=Reason.NOT_APPLICABLE))
    if spent.total_usd is None:
        return CostSummary(total, Estimate(None, n=n, reason=Reason.UNKNOWN))
    resampled = resampling(n, generator=generator, runs=spent.runs)
    replicates = [_per_completed(weights, spent.usd, spent.completed) for weights in resampled.weights]
    return CostSummary(total, _with_interval(spent.total_usd / done, replicates, resampled, n))


def cost_ratio(baseline: Money, candidate: Money, *, generator: np.random.Generator) -> Estimate:
    """Candidate / baseline of the money per completed task; above 1 the candidate costs more.

    Task k is the same work on both, so both sides are resampled together: what makes a task dear makes
    it dear twice and leaves the ratio alone. A task of one side only counts on that side. n: completed
    tasks of the side that has fewer.
    """
    sides = (baseline, candidate)
    n = int(min(side.completed.sum() for side in sides))
    if not n:
        return Estimate(None, reason=Reason.NOT_APPLICABLE)
    if any(side.total_usd is None for side in sides):
        return Estimate(None, n=n, reason=Reason.UNKNOWN)
    below, above = ((side.total_usd or 0.0) / float(side.completed.sum()) for side in sides)
    if not below:
        return Estimate(None, n=n, reason=Reason.NOT_APPLICABLE)
    have = [set(_units(side)) for side in sides]
    units = sorted(have[0] | have[1])
    place = {unit: i for i, unit in enumerate(units)}
    at = [np.array([place[unit] for unit in _units(side)], dtype=np.int64) for side in sides]
    shared = np.array([unit in have[0] and unit in have[1] for unit in units])
    resampled = _apart(shared, np.array([run for run, _ in units]), generator=generator)
    replicates = []
    for weights in resampled.weights:
        per = [
            _per_completed(weights[:, i], side.usd, side.completed) for side, i in zip(sides, at, strict=True)
        ]
        with np.errstate(divide="ignore", invalid="ignore"):
            replicates.append(per[1] / per[0])
    return _with_interval(above / below, replicates, resampled, n)


def cost_findings(
    backend: str, workload: str, calls: Sequence[CallRecord], prices: Prices
) -> Iterator[Finding]:
    """Tell which prices are assumed, what has no price, and what was charged without being told."""
    served = [call for call in calls if not unserved(call)]
    for tier, n in Counter(tier_of(call) for call in served).items():
        entry = entry_at(prices, tier)
        if entry is None:
            named = f"tier {tier}" if tier else "no tier named"
            detail = f"{n} of {len(calls)} calls ({named}) have no price: set `price` on the backend"
            yield Finding(FindingName.COST_UNKNOWN, backend, workload, detail)
        elif entry.mark is Mark.ASSUMED:
            yield Finding(FindingName.ASSUMED_PRICE, backend, workload, f"{entry.source} ({entry.date})")
    for detail in _untold([call for call in served if _by_token(call, prices)], prices):
        yield Finding(FindingName.COST_UNKNOWN, backend, workload, detail)


def _untold(calls: Sequence[CallRecord], prices: Prices) -> Iterator[str]:
    """Say what calls priced by the token did not tell."""
    silent = [call for call in calls if not told(call)]
    guessed = [call for call in silent if countable(call)]
    if len(silent) > len(guessed):
        yield f"{len(silent) - len(guessed)} of {len(calls)} calls came without token counts"
    if guessed:
        yield (
            f"{len(guessed)} of {len(calls)} calls broke off before their tokens were told: USD"
            f" {task_usd(guessed, prices, like=habit(calls)):.4g} is estimated from planned prompts and the"
            " events that came"
        )


def _task_usd(task: TaskRecord, calls: Sequence[CallRecord], prices: Prices, *, like: Habit) -> float | None:
    """Price a task by its calls; without them it keeps what it said."""
    return task_usd(calls, prices, like=like) if calls or not task.calls else task.cost_usd


def _by_token(call: CallRecord, prices: Prices) -> bool:
    entry = entry_at(prices, tier_of(call))
    return entry is not None and isinstance(entry.price, TokenPrice)


def _time_shares(tasks: Sequence[TaskRecord]) -> Floats:
    """Share of each task in the summed time of all; equal ones if none took any."""
    times = np.array([task.ended_ns - task.started_ns for task in tasks], dtype=np.float64)
    return times / times.sum() if times.sum() else np.full(len(tasks), 1 / max(1, len(tasks)))


def _units(side: Money) -> list[tuple[int, int]]:
    return list(zip(side.runs.tolist(), side.k.tolist(), strict=True))


def _apart(shared: "NDArray[np.bool_]", runs: Ints, *, generator: np.random.Generator) -> Resampling:
    """Resample the tasks that both sides have, and the others, each by themselves; or whole runs.

    In a run by the clock the faster side goes on where the slower one has no more tasks. Blocks over
    all of them would draw now many, now few of the slower one's.
    """
    whole = resampling(len(shared), generator=generator, runs=runs)
    groups = [np.flatnonzero(shared == truth) for truth in (True, False)]
    if whole.between_runs or not all(len(group) for group in groups):
        return whole
    parts = [resampling(len(group), generator=generator) for group in groups]
    weights = [np.zeros_like(one) for one in whole.weights]
    for i, into in enumerate(weights):
        for group, part in zip(groups, parts, strict=True):
            into[:, group] = part.weights[min(i, len(part.weights) - 1)][: len(into)]
    drawn = tuple(min(part.drawn[min(i, len(part.drawn) - 1)] for part in parts) for i in range(len(weights)))
    return Resampling(tuple(weights), drawn, between_runs=False)


def _per_completed(weights: Weights, usd: Floats, completed: Floats) -> Floats:
    """Money per completed task of each resample; inf where none of its tasks completed."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: Floats = (weights @ usd) / (weights @ completed)
    return ratios


def _with_interval(value: float, replicates: Sequence[Floats], resampled: Resampling, n: int) -> Estimate:
    if n < INTERVAL_MIN:
        return Estimate(value, n=n)
    low, high = widened(value, replicates, resampled.drawn)
    return Estimate(value, low=low, high=high if np.isfinite(high) else None, n=n)
