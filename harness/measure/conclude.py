"""All records of a run, with what the run knows of itself, become its summary and its verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.measure.calls import Calls, Floats
from harness.measure.certified import Trust, trust
from harness.measure.charge import wasted_usd
from harness.measure.compare import compare
from harness.measure.compare_findings import Side, identity_findings, tail_finding
from harness.measure.cost import Money, cost_findings, cost_ratio, cost_summary, money
from harness.measure.curve import Curve, completion_curve
from harness.measure.estimates import Units
from harness.measure.facts import Records, RunFacts
from harness.measure.findings import call_findings, gap_findings, run_findings, task_findings, unsent_finding
from harness.measure.intervals import RUNS_MIN
from harness.measure.load import calls_load
from harness.measure.metrics.task import start_lag_ns, task_time_ns
from harness.measure.summary import MEASURED, Kept, measured, throughput, units, workload_summary
from harness.measure.tier import Serving, tier_findings
from harness.measure.verdict import CostRatios, judge
from harness.objectives import within_limits
from harness.records import Phase, TaskRecord
from harness.results import (
    BackendSummary,
    CompareSummary,
    Estimate,
    Finding,
    FindingName,
    MeterSummary,
    Reason,
    Summary,
    Verdict,
    VerdictRecord,
    WorkloadSummary,
)
from harness.values import StampClock

LOOP_LAG_MS = 50.0
"""From here on a busy client may be what is measured where stamps are not exact."""


@dataclass(frozen=True, slots=True)
class _Lane:
    """One backend's records, and what they are resampled by."""

    kept: Kept
    warm: Sequence[TaskRecord]
    units: Units
    money: Money


def conclude(records: Records, facts: RunFacts) -> tuple[Summary, VerdictRecord]:
    """Make `summary.json` and `verdict.json`; the same records and facts give the same bytes."""
    runs = {task.task_id: task.repeat for task in records.tasks} if facts.repeats > 1 else None
    lanes = {name: _lane(records, facts, name, runs) for name in facts.backends}
    compared, ratios, findings = _comparisons(lanes, facts, runs)
    trusted = trust(facts.standing, clock=_clock(lanes), load=calls_load(records.calls))
    summary = Summary(
        backends={
            name: BackendSummary({facts.workload: _workload(lane, facts, name)})
            for name, lane in lanes.items()
        },
        compare=compared,
        meter=_meter(lanes, facts, trusted),
        findings=[*_run_findings(lanes, facts, trusted), *_lane_findings(lanes, facts), *findings],
        verdict=Verdict.NONE,
        intervals="between runs" if facts.repeats >= RUNS_MIN else "within this run",
    )
    lost = {name: one.lost for name, one in facts.backends.items() if one.lost is not None}
    verdict = judge(
        summary,
        lost=lost,
        workers=() if facts.lost_allowed else [worker.detail for worker in facts.lost_workers],
        objectives=facts.objectives,
        cost_ratios=ratios,
        doubt=trusted.doubt(_bound_share(lanes)),
    )
    return replace(summary, verdict=verdict.verdict), verdict


def curves(records: Records, facts: RunFacts) -> dict[str, Curve]:
    """Give each backend's completion curve of its measured tasks."""
    found = {}
    for name in facts.backends:
        tasks = [task for task in records.tasks if task.backend == name and task.phase in MEASURED]
        times = [task_time_ns(task) / 1e9 for task in tasks]
        found[name] = completion_curve(times, [task.outcome for task in tasks])
    return found


def _dice(facts: RunFacts, name: str) -> np.random.Generator:
    """Give resampling dice of their own to each use, so that adding one changes no other."""
    return np.random.default_rng([facts.seed, *name.encode()])


def _lane(records: Records, facts: RunFacts, name: str, runs: Mapping[str, int] | None) -> _Lane:
    tasks = [task for task in records.tasks if task.backend == name]
    calls = records.calls[records.calls.backend.are((name,))]
    about = facts.backends[name]
    kept = measured(Kept(tasks, calls, records.gaps, about.dropped, about.lost_tasks))
    return _Lane(
        kept=kept,
        warm=[task for task in tasks if task.phase is Phase.WARM_UP],
        units=units(kept, generator=_dice(facts, name), runs=runs),
        money=money(kept.tasks, kept.calls, about.prices, run_s=facts.run_s, runs=runs),
    )


def _workload(lane: _Lane, facts: RunFacts, name: str) -> WorkloadSummary:
    return workload_summary(
        lane.kept,
        lane.units,
        cost=cost_summary(lane.money, lane.units),
        extra=_extra(lane, facts, name),
        tier_asked=facts.backends[name].identity.tier,
        within_s=within_limits(facts.objectives.held),
    )


def _extra(lane: _Lane, facts: RunFacts, name: str) -> dict[str, Estimate]:
    wasted = wasted_usd(lane.kept.calls, facts.backends[name].prices)
    unknown = Estimate(value=None, reason=Reason.UNKNOWN)
    return {
        **throughput(lane.kept),
        "wasted_usd": unknown if wasted is None else Estimate(wasted, n=len(lane.kept.calls)),
    }


def _comparisons(
    lanes: Mapping[str, _Lane], facts: RunFacts, runs: Mapping[str, int] | None
) -> tuple[dict[str, dict[str, CompareSummary]], CostRatios, list[Finding]]:
    """Hold every other backend against the baseline."""
    compared: dict[str, dict[str, CompareSummary]] = {}
    ratios: dict[str, dict[str, Estimate]] = {}
    findings: list[Finding] = []
    base = facts.baseline
    if base is None:
        return compared, ratios, findings
    for name, lane in lanes.items():
        if name == base:
            continue
        found, more = compare(
            _side(base, lanes[base], facts),
            _side(name, lane, facts),
            generator=_dice(facts, f"{base}/{name}"),
            open_loop=facts.asked_per_s is not None,
            runs=runs,
        )
        compared[name] = {facts.workload: found}
        dice = _dice(facts, f"{base}/{name}/cost")
        ratios[name] = {facts.workload: cost_ratio(lanes[base].money, lane.money, generator=dice)}
        findings += [*identity_findings(facts.backends[base].identity, facts.backends[name].identity), *more]
    return compared, ratios, findings


def _side(name: str, lane: _Lane, facts: RunFacts) -> Side:
    return Side(name, facts.workload, lane.kept.tasks, lane.kept.calls, earlier=lane.warm)


def _run_findings(lanes: Mapping[str, _Lane], facts: RunFacts, trusted: Trust) -> list[Finding]:
    warm = {name: len(lane.warm) for name, lane in lanes.items()}
    simulated = any(one.identity.simulated for one in facts.backends.values())
    found = run_findings(
        facts.caveats, simulated=simulated, salted=facts.salted, interrupted=facts.interrupted, warm=warm
    )
    found += trusted.findings()
    if facts.loop_lag_p99_ms is not None and facts.loop_lag_p99_ms > LOOP_LAG_MS:
        detail = (
            f"the engine's loop was {facts.loop_lag_p99_ms:.0f} ms late at p99 (limit {LOOP_LAG_MS:.0f} ms)"
        )
        found.append((FindingName.CLIENT_LIMITED, detail))
    found += [(FindingName.WORKER_LOST, worker.detail) for worker in facts.lost_workers]
    return [Finding(name, None, None, detail) for name, detail in found]


def _lane_findings(lanes: Mapping[str, _Lane], facts: RunFacts) -> list[Finding]:
    found: list[Finding | None] = []
    serving = {name: _serving(name, lane, facts) for name, lane in lanes.items()}
    for name, lane in lanes.items():
        kept, workload = lane.kept, facts.workload
        found += [
            *call_findings(name, workload, kept.calls),
            *task_findings(name, workload, kept.tasks),
            *cost_findings(name, workload, kept.calls, facts.backends[name].prices),
            *tier_findings(serving[name], [one for other, one in serving.items() if other != name]),
            tail_finding(name, workload, kept.tasks),
            *gap_findings(name, workload, kept.gaps.at(lane.units.place)),
        ]
        if kept.dropped:
            found.append(_unsent(kept, facts, name))
    return [one for one in found if one is not None]


def _serving(name: str, lane: _Lane, facts: RunFacts) -> Serving:
    identity = facts.backends[name].identity
    return Serving(name, facts.workload, identity.model, identity.dialect, identity.tier, lane.kept.calls)


def _unsent(kept: Kept, facts: RunFacts, name: str) -> Finding:
    """Tell of planned tasks that never began, and what kept them."""
    lost = [other for other, one in facts.backends.items() if one.lost is not None]
    whys = [f"{other} was given up" for other in lost]
    whys += ["somebody stopped the run"] if facts.interrupted else []
    whys += ["the spend limit"] if any(one is FindingName.SPEND_LIMIT for one, _ in facts.caveats) else []
    rate = None
    if facts.asked_per_s is not None and facts.measure_s:
        rate = (facts.asked_per_s, len(kept.tasks) / facts.measure_s)
        whys = whys or ["as many as may be in flight were"]
    sent = len(kept.tasks)
    return unsent_finding(
        name, facts.workload, kept.dropped, kept.dropped + sent, rate=rate, why=", ".join(whys)
    )


def _meter(lanes: Mapping[str, _Lane], facts: RunFacts, trusted: Trust) -> MeterSummary:
    """Say how good the instrument was: lateness, shared reads, width of the bounds on TTFT and end."""
    calls = _streamed(lanes)
    tasks = [task for lane in lanes.values() for task in lane.kept.tasks]
    events = sum(int(one.streamed_events.sum()) for one in calls)
    shared = sum(int(one.shared_read_events.sum()) for one in calls)
    none = Estimate(value=None, reason=Reason.UNKNOWN)
    return MeterSummary(
        clock=_clock(lanes),
        certified=trusted.certified,
        loop_lag_p99_ms=none if facts.loop_lag_p99_ms is None else Estimate(facts.loop_lag_p99_ms),
        start_lag_p99_ms=observed(np.array([start_lag_ns(task) / 1e6 for task in tasks]), 0.99),
        shared_read_share=Estimate(shared / events, n=events) if events else none,
        cpu_share=Estimate(facts.cpu_share),
        bound_p99_us=observed(np.concatenate([_bounds_us(one) for one in calls]), 0.99),
    )


def _streamed(lanes: Mapping[str, _Lane]) -> list[Calls]:
    return [lane.kept.calls[lane.kept.calls.streamed_events > 0] for lane in lanes.values()]


def _clock(lanes: Mapping[str, _Lane]) -> str:
    loop = any(one.clock.are((StampClock.LOOP,)).any() for one in _streamed(lanes))
    return str(StampClock.LOOP if loop else StampClock.KERNEL)


def _bound_share(lanes: Mapping[str, _Lane]) -> float:
    """Give the greatest share, of any backend, that the bounds of its calls' ends have in its tasks' time."""
    shares = []
    for lane in lanes.values():
        calls, time_ns = lane.kept.calls, sum(task_time_ns(task) for task in lane.kept.tasks)
        bounds_ns = float(np.nansum(calls.last_output_ns - calls.last_output_low_ns))
        shares.append(bounds_ns / time_ns if time_ns > 0 else 0.0)
    return max(shares, default=0.0)


def observed(values: Floats, q: float) -> Estimate:
    """Give a quantile of all that was seen: facts about this run's meter, not samples of anything."""
    if not len(values):
        return Estimate(value=None, reason=Reason.UNKNOWN)
    return Estimate(float(np.quantile(values, q, method="inverted_cdf")), n=len(values))


def _bounds_us(calls: Calls) -> Floats:
    """Give widths of the bounds on first and last output of each call, in us."""
    first = calls.first_output_ns - calls.first_output_low_ns
    widths = np.concatenate((first, calls.last_output_ns - calls.last_output_low_ns)) / 1e3
    return widths[~np.isnan(widths)]
