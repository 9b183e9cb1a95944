"""All records of a run, with what the run knows of itself, become its summary and its verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from harness.measure.findings import call_findings, task_findings
from harness.measure.metrics.task import start_lag_ns
from harness.measure.summary import Kept, estimate, measured, workload_summary
from harness.measure.verdict import judge
from harness.records import CallRecord, Phase, TaskRecord
from harness.results import (
    BackendSummary,
    Estimate,
    Finding,
    FindingName,
    MeterSummary,
    Reason,
    Summary,
    Verdict,
    VerdictRecord,
)
from harness.values import StampClock


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """What a run knows of a backend beside its records. `lost`: why it was given up."""

    simulated: bool
    tier_asked: str | None
    dropped: int = 0
    lost: str | None = None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run knows of itself; kept in `run.json`, so that a report can be made again.

    `asked_per_s`: rate of an open load; `measure_s`: how long measure lasted; `caveats`: (finding,
    detail) of the workload's plans; `loop_lag_p99_ms`: lateness of the engine's own pulse.
    """

    workload: str
    backends: Mapping[str, BackendFacts]
    salted: bool
    interrupted: bool
    measure_s: float
    cpu_share: float
    loop_lag_p99_ms: float | None
    asked_per_s: float | None = None
    caveats: Sequence[tuple[FindingName, str]] = field(default=())


@dataclass(slots=True)
class Records:
    """What a run has kept, in memory. `gaps_us`: call_id -> gaps, the first 0."""

    tasks: list[TaskRecord] = field(default_factory=list)
    calls: list[CallRecord] = field(default_factory=list)
    gaps_us: dict[str, NDArray[np.int64]] = field(default_factory=dict)


def conclude(records: Records, facts: RunFacts) -> tuple[Summary, VerdictRecord]:
    """Make `summary.json` and `verdict.json`."""
    kept = {name: measured(_of_backend(records, name, facts)) for name in facts.backends}
    backends = {
        name: BackendSummary({facts.workload: workload_summary(kept[name], tier_asked=backend.tier_asked)})
        for name, backend in facts.backends.items()
    }
    findings = _run_findings(records, facts)
    for name, one in kept.items():
        findings += _lane_findings(name, one, facts)
    summary = Summary(
        backends=backends, meter=_meter(list(kept.values()), facts), findings=findings, verdict=Verdict.NONE
    )
    lost = {name: backend.lost for name, backend in facts.backends.items() if backend.lost is not None}
    verdict = judge(summary, lost=lost)
    return Summary(backends, summary.meter, findings, verdict.verdict), verdict


def _of_backend(records: Records, name: str, facts: RunFacts) -> Kept:
    return Kept(
        tasks=[task for task in records.tasks if task.backend == name],
        calls=[call for call in records.calls if call.backend == name],
        gaps_us=records.gaps_us,
        dropped=facts.backends[name].dropped,
    )


def _run_findings(records: Records, facts: RunFacts) -> list[Finding]:
    """Find what concerns the run as a whole."""
    found: list[tuple[FindingName, str]] = list(facts.caveats)
    if any(backend.simulated for backend in facts.backends.values()):
        found.insert(
            0, (FindingName.SIMULATED, "these backends are simulated from a model of their hardware")
        )
    if not facts.salted:
        found.append((FindingName.CACHE_SALT_OFF, "prompts carry no salt of this run"))
    if facts.interrupted:
        found.append((FindingName.INTERRUPTED, "somebody stopped this run"))
    warm = sum(task.phase is Phase.WARM_UP for task in records.tasks)
    if warm:
        found.append((FindingName.WARM_UP, f"the first {warm} tasks warmed up and are left out"))
    found.append((FindingName.UNCERTIFIED, "there is no certificate of the meter on this machine"))
    return [Finding(name, None, None, detail) for name, detail in found]


def _lane_findings(name: str, kept: Kept, facts: RunFacts) -> list[Finding]:
    found = [
        *call_findings(name, facts.workload, kept.calls),
        *task_findings(name, facts.workload, kept.tasks),
    ]
    if kept.dropped and facts.asked_per_s is not None and facts.measure_s:
        achieved = len(kept.tasks) / facts.measure_s
        detail = (
            f"asked {facts.asked_per_s:g} tasks/s, achieved {achieved:.3g}: {kept.dropped} of"
            f" {kept.dropped + len(kept.tasks)} planned tasks were never sent"
        )
        found.append(Finding(FindingName.UNSENT_TASKS, name, facts.workload, detail))
    return found


def _meter(kept: Sequence[Kept], facts: RunFacts) -> MeterSummary:
    """Say how good the instrument was: lateness, shared reads, width of the bounds on TTFT and end."""
    calls = [call for one in kept for call in one.calls if call.streamed_events]
    lags = [start_lag_ns(task) / 1e6 for one in kept for task in one.tasks]
    events = sum(call.streamed_events for call in calls)
    shared = sum(call.shared_read_events for call in calls)
    loop = any(call.clock is StampClock.LOOP for call in calls)
    none = Estimate(value=None, reason=Reason.UNKNOWN)
    return MeterSummary(
        clock=str(StampClock.LOOP if loop else StampClock.KERNEL),
        certified=False,
        loop_lag_p99_ms=none if facts.loop_lag_p99_ms is None else Estimate(facts.loop_lag_p99_ms),
        start_lag_p99_ms=estimate(lags, 0.99),
        shared_read_share=Estimate(shared / events, n=events) if events else none,
        cpu_share=Estimate(facts.cpu_share),
        bound_p99_us=estimate(_bounds_us(calls), 0.99),
    )


def _bounds_us(calls: Sequence[CallRecord]) -> list[float]:
    """Give widths of the bounds on first and last output of each call, in us."""
    marks = [
        mark
        for call in calls
        for mark in (
            (call.first_output_ns, call.first_output_low_ns),
            (call.last_output_ns, call.last_output_low_ns),
        )
    ]
    return [(high - low) / 1e3 for high, low in marks if high is not None and low is not None]
