"""Records become the summary: one workload on one backend at a time."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from harness.measure.breakdown import shares
from harness.measure.calls import Calls, Floats
from harness.measure.estimates import (
    Tasks,
    Units,
    curve_estimates,
    gap_estimates,
    quantile_estimates,
    tasks_of,
    units_of,
)
from harness.measure.gaps import Gaps
from harness.measure.metrics.registry import METRICS
from harness.measure.metrics.task import llm_busy_ns, task_ttft_ns
from harness.records import CallOutcome, Phase, TaskOutcome, TaskRecord
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
QS = (0.5, 0.9, 0.95, 0.99)
WITHIN_S = (10.0, 60.0, 300.0)
"""Limits of `within` that are always told: attention, a short break, a coffee (research, a guess)."""


@dataclass(frozen=True, slots=True)
class Kept:
    """All records of one workload on one backend; `gaps` may hold those of others too."""

    tasks: Sequence[TaskRecord]
    calls: Calls
    gaps: Gaps = field(default_factory=Gaps)
    dropped: int = 0
    lost: int = 0


def measured(kept: Kept) -> Kept:
    """Leave out warm-up tasks and their calls."""
    tasks = [task for task in kept.tasks if task.phase in MEASURED]
    return replace(kept, tasks=tasks, calls=kept.calls.of_tasks({task.task_id for task in tasks}))


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
    ok = kept.calls[kept.calls.ok]
    times = task_time(tasks_of(kept.tasks, of), within_s)
    return WorkloadSummary(
        tasks=task_counts(kept.tasks, dropped=kept.dropped, lost=kept.lost),
        calls=call_counts(kept.calls),
        task_time=times,
        ttft_s=Quantiles(*call_estimates("ttft_s", ok, of)),
        ttfo_s=Quantiles(*call_estimates("ttfo_s", ok, of)),
        gap_ms=Quantiles(*(_in_ms(one) for one in gap_estimates(kept.gaps, of, QS))),
        tpot_ms=Quantiles(*call_estimates("tpot_ms", ok, of)),
        decode_tokens_per_s=median_call("decode_tokens_per_s", ok, of),
        headline=Headline(name="task_time", unit="s", better="lower", value=times.p50_s),
        extra={
            "events_per_token": median_call("events_per_token", ok, of),
            "last_output_s": median_call("last_output_s", ok, of),
            "user_ttft_s": median_call("user_ttft_s", ok, of),
            "user_ttft_p95_s": call_estimates("user_ttft_s", ok, of, (0.95,))[0],
            **per_task(kept, of),
            **extra,
        },
        tokens=token_totals(kept.calls),
        breakdown=shares(kept.tasks),
        cost=cost,
        tier=tiers(ok, of, asked=tier_asked),
    )


def tiers(calls: Calls, of: Units, *, asked: str | None) -> TierSummary:
    """Tell which tiers served, and how fast their calls decode."""
    served = {tier: n for tier, n in calls.tier_served.counted().items() if tier}
    return TierSummary(
        asked=asked,
        served=served,
        measured={
            tier: median_call("decode_tokens_per_s", calls[calls.tier_served.are((tier,))], of)
            for tier in served
        },
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


def call_counts(calls: Calls) -> CallCounts:
    """Count calls by outcome."""
    by = calls.outcome.counted()
    return CallCounts(**{str(outcome): by.get(outcome, 0) for outcome in CallOutcome})


def task_time(tasks: Tasks, within_s: Iterable[float] = ()) -> TaskTime:
    """Give quantiles and shares of the completion curve."""
    limits = sorted({*WITHIN_S, *within_s})
    (p50, p90, p95, p99), shares_within = curve_estimates(tasks, qs=QS, limits_s=limits)
    within = {_seconds(limit): share for limit, share in zip(limits, shares_within, strict=True)}
    return TaskTime(p50_s=p50, p90_s=p90, p95_s=p95, p99_s=p99, within=within)


def call_estimates(name: str, calls: Calls, of: Units, qs: Sequence[float] = QS) -> list[Estimate]:
    """Give quantiles of a call metric of the registry, over the calls that have it."""
    metric = METRICS[name]
    if metric.value is None:
        raise ValueError(f"{name} is no metric of a record")
    values: Floats = metric.value(calls) * metric.scale
    known = ~np.isnan(values)
    if not known.any() and np.isnan(calls.hidden_tokens).any():
        return [Estimate(value=None, reason=Reason.HIDDEN) for _ in qs]
    places = calls.task_id[known].each(of.place)
    return quantile_estimates(values[known], places, of, qs)


def median_call(name: str, calls: Calls, of: Units) -> Estimate:
    """Give the median of a call metric of the registry."""
    return call_estimates(name, calls, of, (0.5,))[0]


def token_totals(calls: Calls) -> TokenTotals:
    """Sum tokens; a sum is null where a call that ended well did not tell its part."""
    ok, rest = calls[calls.ok], calls[~calls.ok]
    return TokenTotals(
        input=_total(ok.input_tokens),
        cached=_total(ok.cached_tokens),
        output=_total(ok.output_tokens),
        reasoning=_total(ok.reasoning_tokens),
        wasted=_total(rest.output_tokens),
        source=" + ".join(sorted(str(source) for source in ok.token_source.counted())) or "unknown",
    )


def per_task(kept: Kept, of: Units) -> dict[str, Estimate]:
    """Give medians over tasks: summed time of their calls, and TTFT of their first call; in seconds."""
    done = {task.task_id for task in kept.tasks if task.outcome is TaskOutcome.COMPLETED}

    def median(of_task_ns: Mapping[str, float]) -> Estimate:
        known = [task_id for task_id in of_task_ns if task_id in done and not np.isnan(of_task_ns[task_id])]
        values = np.array([of_task_ns[task_id] / 1e9 for task_id in known])
        places = np.array([of.place[task_id] for task_id in known], dtype=np.int64)
        return quantile_estimates(values, places, of, (0.5,))[0]

    return {"llm_busy_s": median(llm_busy_ns(kept.calls)), "task_ttft_s": median(task_ttft_ns(kept.calls))}


def throughput(kept: Kept) -> dict[str, Estimate]:
    """Give output tokens a second of the whole backend: delivered in all, and by calls that ended well.

    Over the time that this backend was at work: from its first measured task's start to its last one's
    end, repeats added up. A cut call delivered what came: as the stream told, else one token an event,
    which is a lower bound. Null where a call that ended well did not tell its tokens.
    """
    ok, rest = kept.calls[kept.calls.ok], kept.calls[~kept.calls.ok]
    completed, busy_s = _total(ok.output_tokens), _busy_s(kept.tasks)
    unknown = Estimate(value=None, n=len(kept.calls), reason=Reason.UNKNOWN)
    if completed is None or busy_s <= 0:
        return {"delivered_tokens_per_s": unknown, "completed_tokens_per_s": unknown}
    came = np.where(np.isnan(rest.output_tokens), rest.streamed_events, rest.output_tokens)
    return {
        "delivered_tokens_per_s": Estimate((completed + int(came.sum())) / busy_s, n=len(kept.calls)),
        "completed_tokens_per_s": Estimate(completed / busy_s, n=len(ok)),
    }


def _busy_s(tasks: Sequence[TaskRecord]) -> float:
    spans: dict[int, tuple[int, int]] = {}
    for task in tasks:
        start, end = spans.get(task.repeat, (task.scheduled_ns, task.ended_ns))
        spans[task.repeat] = min(start, task.scheduled_ns), max(end, task.ended_ns)
    return sum(end - start for start, end in spans.values()) / 1e9


def _seconds(limit: float) -> str:
    """Write a limit as a key: whole seconds bare, others in full."""
    return str(int(limit)) if limit == int(limit) else repr(float(limit))


def _in_ms(us: Estimate) -> Estimate:
    value, low, high = (None if one is None else one / 1e3 for one in (us.value, us.low, us.high))
    return Estimate(value, low, high, us.n, us.reason, us.needed)


def _total(counts: Floats) -> int | None:
    return None if np.isnan(counts).any() else int(counts.sum())
