"""Records become the summary: one workload on one backend at a time."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.measure import curve
from harness.measure.breakdown import PARTS
from harness.measure.metrics.recorded import call_tpot_ns, ttfo_ns, ttft_ns
from harness.measure.metrics.task import task_time_ns
from harness.records import CallOutcome, CallRecord, Phase, TaskOutcome, TaskRecord
from harness.results import (
    Estimate,
    Headline,
    Quantiles,
    Reason,
    TaskCounts,
    TaskTime,
    TierSummary,
    TokenTotals,
    WorkloadSummary,
)

MEASURED = (Phase.MEASURE, Phase.TAIL)
WITHIN_S = (10, 60, 300)
"""Limits of `within`: attention, a short break, a coffee and most prompt caches (research, G)."""


@dataclass(frozen=True, slots=True)
class Kept:
    """All records of one workload on one backend. `gaps_us` maps call_id to its gaps, the first 0."""

    tasks: Sequence[TaskRecord]
    calls: Sequence[CallRecord]
    gaps_us: Mapping[str, NDArray[np.int64]]
    dropped: int = 0


def measured(kept: Kept) -> Kept:
    """Leave out warm-up tasks and their calls."""
    tasks = [task for task in kept.tasks if task.phase in MEASURED]
    ids = {task.task_id for task in tasks}
    calls = [call for call in kept.calls if call.task_id in ids]
    return Kept(tasks, calls, kept.gaps_us, kept.dropped)


def workload_summary(kept: Kept, *, tier_asked: str | None) -> WorkloadSummary:
    """Summarise the measured tasks of one workload on one backend."""
    ok = [call for call in kept.calls if call.outcome is CallOutcome.OK]
    times = task_time(kept.tasks)
    tpot = [value for value in map(call_tpot_ns, ok) if value is not None]
    return WorkloadSummary(
        tasks=task_counts(kept.tasks, dropped=kept.dropped),
        task_time=times,
        ttft_s=quantiles(_scaled(map(ttft_ns, ok), 1e9), ok),
        ttfo_s=quantiles(_scaled(map(ttfo_ns, ok), 1e9), ok),
        gap_ms=quantiles(_gaps_ms(ok, kept.gaps_us), ok),
        tpot_ms=quantiles([value / 1e6 for value in tpot], ok),
        decode_tokens_per_s=estimate([1e9 / value for value in tpot if value > 0], 0.5, ok),
        headline=Headline(name="task_time", unit="s", better="lower", value=times.p50_s),
        tokens=token_totals(kept.calls),
        breakdown=shares(kept.tasks),
        tier=TierSummary(
            asked=tier_asked, served=dict(Counter(call.tier_served for call in ok if call.tier_served))
        ),
    )


def task_counts(tasks: Sequence[TaskRecord], *, dropped: int) -> TaskCounts:
    """Count outcomes; `lost` is for tasks whose worker died, which one process cannot have."""
    by = Counter(task.outcome for task in tasks)
    return TaskCounts(
        scheduled=len(tasks) + dropped,
        dropped=dropped,
        completed=by[TaskOutcome.COMPLETED],
        failed=by[TaskOutcome.FAILED],
        timeout=by[TaskOutcome.TIMEOUT],
        abandoned=by[TaskOutcome.ABANDONED],
        cut=by[TaskOutcome.CUT],
        lost=0,
    )


def task_time(tasks: Sequence[TaskRecord]) -> TaskTime:
    """Give quantiles and shares of the completion curve."""
    done = curve.completion_curve(
        [task_time_ns(task) / 1e9 for task in tasks], [task.outcome for task in tasks]
    )
    p50, p90, p95, p99 = (curve.quantile(done, q) for q in (0.5, 0.9, 0.95, 0.99))
    within = {str(limit): curve.within(done, limit) for limit in WITHIN_S}
    return TaskTime(p50_s=p50, p90_s=p90, p95_s=p95, p99_s=p99, within=within)


def quantiles(values: Sequence[float] | NDArray[np.float64], calls: Sequence[CallRecord]) -> Quantiles:
    """Give the four quantiles of a call metric over the calls that have it."""
    p50, p90, p95, p99 = (estimate(values, q, calls) for q in (0.5, 0.9, 0.95, 0.99))
    return Quantiles(p50=p50, p90=p90, p95=p95, p99=p99)


def estimate(
    values: Sequence[float] | NDArray[np.float64], q: float, calls: Sequence[CallRecord] = ()
) -> Estimate:
    """Give the smallest observed value with F >= q; without values say why there are none."""
    if len(values):
        return Estimate(value=float(np.quantile(values, q, method="inverted_cdf")), n=len(values))
    hidden = any(call.hidden_tokens is None for call in calls)
    return Estimate(value=None, n=0, reason=Reason.HIDDEN if hidden else Reason.UNKNOWN)


def token_totals(calls: Sequence[CallRecord]) -> TokenTotals:
    """Sum tokens; a sum is null where a call that ended well did not tell its part."""
    ok = [call for call in calls if call.outcome is CallOutcome.OK]
    rest = [call for call in calls if call.outcome is not CallOutcome.OK]
    sources = sorted({str(call.token_source) for call in ok})
    return TokenTotals(
        input=_total(call.input_tokens for call in ok),
        cached=_total(call.cached_tokens for call in ok),
        output=_total(call.output_tokens for call in ok),
        reasoning=_total(call.reasoning_tokens for call in ok),
        wasted=_total(call.output_tokens for call in rest),
        source=" + ".join(sources) or "unknown",
    )


def shares(tasks: Sequence[TaskRecord]) -> dict[str, float]:
    """Share of each part in the summed task time of completed tasks; empty if there are none."""
    done = [task for task in tasks if task.outcome is TaskOutcome.COMPLETED]
    total = sum(task_time_ns(task) for task in done)
    if not total:
        return {}
    return {part: sum(task.breakdown[part] * task_time_ns(task) for task in done) / total for part in PARTS}


def _scaled(values: Iterable[int | None], unit: float) -> list[float]:
    return [value / unit for value in values if value is not None]


def _gaps_ms(calls: Iterable[CallRecord], gaps_us: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float64]:
    """Pool the gaps of all calls (unit of analysis: gap); the first entry of a call is no gap."""
    pooled = [gaps_us[call.call_id][1:] for call in calls if call.call_id in gaps_us]
    return np.concatenate(pooled) / 1e3 if pooled else np.empty(0)


def _total(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)
