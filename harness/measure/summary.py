"""Records become the summary: one workload on one backend at a time."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from harness.measure.breakdown import PARTS
from harness.measure.estimates import (
    Tasks,
    Units,
    gap_estimate,
    gaps_of,
    quantile_estimate,
    tasks_of,
    time_estimate,
    units_of,
    within_estimate,
)
from harness.measure.histogram import Histogram
from harness.measure.metrics.registry import METRICS
from harness.measure.metrics.task import llm_busy_ns, task_time_ns, task_ttft_ns
from harness.records import CallOutcome, CallRecord, Phase, TaskOutcome, TaskRecord
from harness.results import (
    CallCounts,
    CostSummary,
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
WITHIN_S = (10.0, 60.0, 300.0)
"""Limits of `within` that are always told: attention, a short break, a coffee (research, a guess)."""


@dataclass(frozen=True, slots=True)
class Kept:
    """All records of one workload on one backend. `gaps` maps call_id to its gaps in us."""

    tasks: Sequence[TaskRecord]
    calls: Sequence[CallRecord]
    gaps: Mapping[str, Histogram] = field(default_factory=dict)
    dropped: int = 0
    lost: int = 0


def measured(kept: Kept) -> Kept:
    """Leave out warm-up tasks and their calls."""
    tasks = [task for task in kept.tasks if task.phase in MEASURED]
    ids = {task.task_id for task in tasks}
    calls = [call for call in kept.calls if call.task_id in ids]
    return replace(kept, tasks=tasks, calls=calls)


def units(kept: Kept, *, generator: np.random.Generator, runs: Mapping[str, int] | None = None) -> Units:
    """Lay the measured tasks into units to be resampled."""
    return units_of(kept.tasks, generator=generator, runs=runs)


def workload_summary(
    kept: Kept,
    of: Units,
    *,
    cost: CostSummary,
    extra: Mapping[str, Estimate],
    tier_asked: str | None,
    within_s: Iterable[float] = (),
) -> WorkloadSummary:
    """Summarise the measured tasks of one workload on one backend."""
    ok = [call for call in kept.calls if call.outcome is CallOutcome.OK]
    times = task_time(tasks_of(kept.tasks, of), within_s)
    gaps = gaps_of(_gaps(ok, kept), {call.call_id: of.place[call.task_id] for call in ok}, of)
    return WorkloadSummary(
        tasks=task_counts(kept.tasks, dropped=kept.dropped, lost=kept.lost),
        calls=call_counts(kept.calls),
        task_time=times,
        ttft_s=_quantiles(lambda q: call_estimate("ttft_s", ok, of, q)),
        ttfo_s=_quantiles(lambda q: call_estimate("ttfo_s", ok, of, q)),
        gap_ms=_quantiles(lambda q: _in_ms(gap_estimate(gaps, q))),
        tpot_ms=_quantiles(lambda q: call_estimate("tpot_ms", ok, of, q)),
        decode_tokens_per_s=call_estimate("decode_tokens_per_s", ok, of, 0.5),
        headline=Headline(name="task_time", unit="s", better="lower", value=times.p50_s),
        extra={
            "events_per_token": call_estimate("events_per_token", ok, of, 0.5),
            "last_output_s": call_estimate("last_output_s", ok, of, 0.5),
            **per_task(kept, of),
            **extra,
        },
        tokens=token_totals(kept.calls),
        breakdown=shares(kept.tasks),
        cost=cost,
        tier=TierSummary(
            asked=tier_asked, served=dict(Counter(call.tier_served for call in ok if call.tier_served))
        ),
    )


def task_counts(tasks: Sequence[TaskRecord], *, dropped: int, lost: int = 0) -> TaskCounts:
    """Count outcomes. dropped: planned tasks that never began; lost: those that went with their worker."""
    by = Counter(task.outcome for task in tasks)
    return TaskCounts(
        scheduled=len(tasks) + dropped + lost,
        dropped=dropped,
        completed=by[TaskOutcome.COMPLETED],
        failed=by[TaskOutcome.FAILED],
        timeout=by[TaskOutcome.TIMEOUT],
        abandoned=by[TaskOutcome.ABANDONED],
        cut=by[TaskOutcome.CUT],
        lost=lost,
    )


def call_counts(calls: Sequence[CallRecord]) -> CallCounts:
    """Count calls by outcome."""
    by = Counter(call.outcome for call in calls)
    return CallCounts(**{str(outcome): by[outcome] for outcome in CallOutcome})


def task_time(tasks: Tasks, within_s: Iterable[float] = ()) -> TaskTime:
    """Give quantiles and shares of the completion curve."""
    p50, p90, p95, p99 = (time_estimate(tasks, q) for q in (0.5, 0.9, 0.95, 0.99))
    limits = sorted({*WITHIN_S, *within_s})
    within = {_seconds(limit): within_estimate(tasks, limit) for limit in limits}
    return TaskTime(p50_s=p50, p90_s=p90, p95_s=p95, p99_s=p99, within=within)


def call_estimate(name: str, calls: Sequence[CallRecord], of: Units, q: float) -> Estimate:
    """Give a quantile of a call metric of the registry, over the calls that have it."""
    metric = METRICS[name]
    if metric.value is None:
        raise ValueError(f"{name} is no metric of a record")
    values, places = [], []
    for call in calls:
        value = metric.value(call)
        if value is not None:
            values.append(value * metric.scale)
            places.append(of.place[call.task_id])
    if not values and any(call.hidden_tokens is None for call in calls):
        return Estimate(value=None, reason=Reason.HIDDEN)
    return quantile_estimate(values, places, of, q)


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


def per_task(kept: Kept, of: Units) -> dict[str, Estimate]:
    """Give medians over tasks: summed time of their calls, and TTFT of their first call; in seconds."""
    calls: Mapping[str, list[CallRecord]] = defaultdict(list)
    for call in kept.calls:
        calls[call.task_id].append(call)
    done = [task for task in kept.tasks if task.outcome is TaskOutcome.COMPLETED and calls[task.task_id]]
    busy = [llm_busy_ns(calls[task.task_id]) / 1e9 for task in done]
    places = [of.place[task.task_id] for task in done]
    first = [(task_ttft_ns(calls[task.task_id]), place) for task, place in zip(done, places, strict=True)]
    known = [(ttft / 1e9, place) for ttft, place in first if ttft is not None]
    return {
        "llm_busy_s": quantile_estimate(busy, places, of, 0.5),
        "task_ttft_s": quantile_estimate([ttft for ttft, _ in known], [place for _, place in known], of, 0.5),
    }


def throughput(kept: Kept) -> dict[str, Estimate]:
    """Give output tokens a second of the whole backend: delivered in all, and by calls that ended well.

    Over the time that this backend was at work: from its first measured task's start to its last one's
    end, repeats added up. A cut call delivered what came: as the stream told, else one token an event,
    which is a lower bound. Null where a call that ended well did not tell its tokens.
    """
    ok = [call for call in kept.calls if call.outcome is CallOutcome.OK]
    rest = [call for call in kept.calls if call.outcome is not CallOutcome.OK]
    completed, busy_s = _total(call.output_tokens for call in ok), _busy_s(kept.tasks)
    unknown = Estimate(value=None, n=len(kept.calls), reason=Reason.UNKNOWN)
    if completed is None or busy_s <= 0:
        return {"delivered_tokens_per_s": unknown, "completed_tokens_per_s": unknown}
    part = sum(call.streamed_events if call.output_tokens is None else call.output_tokens for call in rest)
    return {
        "delivered_tokens_per_s": Estimate((completed + part) / busy_s, n=len(kept.calls)),
        "completed_tokens_per_s": Estimate(completed / busy_s, n=len(ok)),
    }


def _busy_s(tasks: Sequence[TaskRecord]) -> float:
    spans: dict[int, tuple[int, int]] = {}
    for task in tasks:
        start, end = spans.get(task.repeat, (task.scheduled_ns, task.ended_ns))
        spans[task.repeat] = min(start, task.scheduled_ns), max(end, task.ended_ns)
    return sum(end - start for start, end in spans.values()) / 1e9


def shares(tasks: Sequence[TaskRecord]) -> dict[str, float]:
    """Share of each part in the summed task time of completed tasks; empty if there are none."""
    done = [task for task in tasks if task.outcome is TaskOutcome.COMPLETED]
    total = sum(task_time_ns(task) for task in done)
    if not total:
        return {}
    return {part: sum(task.breakdown[part] * task_time_ns(task) for task in done) / total for part in PARTS}


def _seconds(limit: float) -> str:
    """Write a limit as a key: whole seconds bare, others in full."""
    return str(int(limit)) if limit == int(limit) else repr(float(limit))


def _quantiles(estimate: Callable[[float], Estimate]) -> Quantiles:
    p50, p90, p95, p99 = (estimate(q) for q in (0.5, 0.9, 0.95, 0.99))
    return Quantiles(p50=p50, p90=p90, p95=p95, p99=p99)


def _gaps(calls: Sequence[CallRecord], kept: Kept) -> dict[str, Histogram]:
    return {call.call_id: kept.gaps[call.call_id] for call in calls if call.call_id in kept.gaps}


def _in_ms(us: Estimate) -> Estimate:
    value, low, high = (None if one is None else one / 1e3 for one in (us.value, us.low, us.high))
    return Estimate(value, low, high, us.n, us.reason, us.needed)


def _total(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)
