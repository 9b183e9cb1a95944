"""Money of a whole run: totals, money per completed task, ratios of it, and what is not known.

What one call or task costs stands in `charge`. Endpoints by the hour cost the run's wall time; for
intervals that money is laid over the tasks by the time that each took.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.measure.calls import Calls, Mask
from harness.measure.charge import calls_usd, countable, habit, task_usd, told, unserved
from harness.measure.estimates import Units
from harness.measure.intervals import Floats, Ints, Resampling, needed, resampling, widened
from harness.prices import EVERY, EndpointPrice, Mark, Prices, TokenPrice, entry_at
from harness.records import TaskOutcome, TaskRecord
from harness.results import CostSummary, Estimate, Finding, FindingName, Reason

INTERVAL_MIN = needed(0.5)
"""Fewer tasks than this have no interval."""


@dataclass(frozen=True, slots=True)
class Money:
    """What the measured tasks of one workload on one backend cost; arrays are parallel, one entry a task.

    usd: nan where unknown; completed: 1 or 0; units: (run, session) of each, which is what is resampled.
    total_usd: None where unknown; more than the sum only if there is no task at all.
    """

    usd: Floats
    completed: Floats
    task_ids: Sequence[str]
    units: Sequence[tuple[int, int]]
    total_usd: float | None


def money(
    tasks: Sequence[TaskRecord],
    calls: Calls,
    prices: Prices,
    *,
    run_s: float,
    runs: Mapping[str, int] | None = None,
) -> Money:
    """Add up what each measured task cost by its calls, which may come in any order.

    run_s: wall time of the run, which is what endpoints by the hour cost; runs: task_id -> number of its
    run, where several are put together.
    """
    total: float | None
    every = prices.get(EVERY)
    if every is not None and isinstance(every.price, EndpointPrice):
        total = every.price.usd_per_endpoint_hour * every.price.endpoints * run_s / 3600
        usd = total * _time_shares(tasks)
    else:
        told_by_calls = calls.per_task(calls_usd(calls, prices, like=habit(calls)))
        usd = np.array(
            [told_by_calls.get(task.task_id, _without_calls(task)) for task in tasks], dtype=np.float64
        )
        total = None if np.isnan(usd).any() else float(usd.sum())
    return Money(
        usd=usd,
        completed=np.array([task.outcome is TaskOutcome.COMPLETED for task in tasks], dtype=np.float64),
        task_ids=[task.task_id for task in tasks],
        units=[(runs[task.task_id] if runs else 0, task.session) for task in tasks],
        total_usd=total,
    )


def cost_summary(spent: Money, of: Units) -> CostSummary:
    """Total, and all of it / completed tasks: tasks that did not complete cost money, and count nothing.

    A run that ends by the clock cuts tasks. Their money so far stays in: the completed ones alone are
    the short and cheap ones of those that began (the longer a task, the likelier the cut), the more so
    the slower the backend.
    """
    n, done = len(spent.usd), float(spent.completed.sum())
    if spent.total_usd is None:
        unknown = Estimate(None, n=n, reason=Reason.UNKNOWN)
        return CostSummary(unknown, unknown if done else Estimate(None, n=n, reason=Reason.NOT_APPLICABLE))
    total = Estimate(spent.total_usd, n=n)
    if not done:
        return CostSummary(total, Estimate(None, n=n, reason=Reason.NOT_APPLICABLE))
    place = np.array([of.place[task_id] for task_id in spent.task_ids])
    replicates = _per_completed(spent, place, of.resampled)
    return CostSummary(total, _with_interval(spent.total_usd / done, replicates, of.resampled, n))


def cost_ratio(baseline: Money, candidate: Money, *, generator: np.random.Generator) -> Estimate:
    """Candidate / baseline of the money per completed task; above 1 the candidate costs more.

    Task k is the same work on both, so both sides are resampled together: what makes a session dear makes
    it dear twice and leaves the ratio alone. A task of one side only counts on that side. n: completed
    tasks of the side that has fewer.
    """
    sides = (baseline, candidate)
    n = int(min(side.completed.sum() for side in sides))
    if not n:
        return Estimate(None, reason=Reason.NOT_APPLICABLE)
    if baseline.total_usd is None or candidate.total_usd is None:
        return Estimate(None, n=n, reason=Reason.UNKNOWN)
    if not baseline.total_usd:
        return Estimate(None, n=n, reason=Reason.NOT_APPLICABLE)
    below, above = (
        baseline.total_usd / baseline.completed.sum(),
        candidate.total_usd / candidate.completed.sum(),
    )
    have = [set(side.units) for side in sides]
    units = sorted(have[0] | have[1])
    index = {unit: i for i, unit in enumerate(units)}
    resampled = _apart(
        np.array([unit in have[0] and unit in have[1] for unit in units]),
        np.array([run for run, _ in units]),
        generator=generator,
    )
    apart = [
        _per_completed(side, np.array([index[unit] for unit in side.units]), resampled) for side in sides
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        replicates = [over / under for under, over in zip(*apart, strict=True)]
    return _with_interval(float(above / below), replicates, resampled, n)


def cost_findings(backend: str, workload: str, calls: Calls, prices: Prices) -> Iterator[Finding]:
    """Tell which prices are assumed, what has no price, and what was charged without being told."""
    served = calls[~unserved(calls)]
    for tier, n in served.tier.counted().items():
        entry = entry_at(prices, tier)
        if entry is None:
            named = f"tier {tier}" if tier else "no tier named"
            detail = f"{n} of {len(calls)} calls ({named}) have no price: set `price` on the backend"
            yield Finding(FindingName.COST_UNKNOWN, backend, workload, detail)
        elif entry.mark is Mark.ASSUMED:
            yield Finding(FindingName.ASSUMED_PRICE, backend, workload, f"{entry.source} ({entry.date})")
    for detail in _untold(served[_by_token(served, prices)], prices):
        yield Finding(FindingName.COST_UNKNOWN, backend, workload, detail)


def _untold(calls: Calls, prices: Prices) -> Iterator[str]:
    """Say what calls priced by the token did not tell."""
    silent = calls[~told(calls)]
    guessed = silent[countable(silent)]
    if len(silent) > len(guessed):
        yield f"{len(silent) - len(guessed)} of {len(calls)} calls came without token counts"
    if len(guessed):
        yield (
            f"{len(guessed)} of {len(calls)} calls broke off before their tokens were told: USD"
            f" {task_usd(guessed, prices, like=habit(calls)):.4g} is estimated from planned prompts and the"
            " events that came"
        )


def _without_calls(task: TaskRecord) -> float | None:
    """Price a task none of whose calls is there: it keeps what it said; None where unknown."""
    return task.cost_usd if task.calls else 0.0


def _by_token(calls: Calls, prices: Prices) -> Mask:
    """Tell which calls are priced by the token."""
    entries = {tier: entry_at(prices, tier) for tier in calls.tier.counted()}
    return calls.tier.are(
        [tier for tier, entry in entries.items() if entry is not None and isinstance(entry.price, TokenPrice)]
    )


def _time_shares(tasks: Sequence[TaskRecord]) -> Floats:
    """Share of each task in the summed time of all; equal ones if none took any."""
    times = np.array([task.ended_ns - task.started_ns for task in tasks], dtype=np.float64)
    return times / times.sum() if times.sum() else np.full(len(tasks), 1 / max(1, len(tasks)))


def _apart(shared: "NDArray[np.bool_]", runs: Ints, *, generator: np.random.Generator) -> Resampling:
    """Resample the sessions that both sides have, and the others, each by themselves; or whole runs.

    In a run by the clock the faster side goes on where the slower one has none left. Blocks over
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


def _per_completed(spent: Money, place: Ints, resampled: Resampling) -> list[Floats]:
    """Money per completed task of each resample, a row a block length; inf where none completed."""
    n = resampled.weights[0].shape[1]
    usd, completed = (np.bincount(place, each, minlength=n) for each in (spent.usd, spent.completed))
    with np.errstate(divide="ignore", invalid="ignore"):
        return [(weights @ usd) / (weights @ completed) for weights in resampled.weights]


def _with_interval(value: float, replicates: Sequence[Floats], resampled: Resampling, n: int) -> Estimate:
    if n < INTERVAL_MIN:
        return Estimate(value, n=n)
    low, high = widened(value, replicates, resampled.drawn)
    return Estimate(value, low=low, high=high if np.isfinite(high) else None, n=n)
