"""What a reader must know before believing a comparison: unlike backends, unlike work, growing queues."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan, nan
from statistics import median

import numpy as np

from harness.measure.calls import Calls
from harness.measure.curve import completion_curve, time_at
from harness.measure.pairs import Runs, by_k, task_time_s
from harness.records import Phase, TaskOutcome, TaskRecord
from harness.results import Finding, FindingName

WORK_LIMIT = 0.05
"""Medians of output tokens further apart than this are not the same work."""
CACHE_LIMIT = 0.05
"""Shares of cached input tokens further apart than this are not the same cache."""
GROWTH_FACTOR = 1.5
GROWTH_TASKS = 3.0


@dataclass(frozen=True, slots=True)
class Side:
    """One workload on one backend, as it is compared.

    tasks: the measured ones (phases measure and tail); calls: of these tasks; earlier: warm-up tasks,
    which may still have been in flight when measure began.
    """

    backend: str
    workload: str
    tasks: Sequence[TaskRecord]
    calls: Calls
    earlier: Sequence[TaskRecord] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendIdentity:
    """What a backend is, as far as a comparison must not mix it with the tier.

    host: with its port; `simulated` where it is. key_name: the variable's name, never a key. body: what
    the scenario adds to every request, as text. route: how a simulated profile serves (its hardware).
    quota, retry: what the client does of itself.
    """

    backend: str
    host: str
    model: str
    dialect: str
    transport: str
    tier: str | None
    key_name: str | None = None
    simulated: bool = False
    output_control: str = "max_tokens"
    body: str = ""
    route: str | None = None
    quota: str = ""
    retry: str = "off"


@dataclass(frozen=True, slots=True)
class InFlight:
    """Mean tasks in flight in the first and in the last third of measure."""

    first: float
    last: float

    @property
    def grows(self) -> bool:
        """Whether the queue grows: above 1.5 times and more than 3 tasks over the first third."""
        return self.last > GROWTH_FACTOR * self.first and self.last > self.first + GROWTH_TASKS


def identity_findings(baseline: BackendIdentity, candidate: BackendIdentity) -> list[Finding]:
    """Find what else than the tier differs between two backends, and what they share."""
    found = []
    asked: dict[str, tuple[str | None, str | None]] = {
        "host": (baseline.host, candidate.host),
        "model": (baseline.model, candidate.model),
        "dialect": (baseline.dialect, candidate.dialect),
        "transport": (baseline.transport, candidate.transport),
        "output control": (baseline.output_control, candidate.output_control),
        "request body": (baseline.body, candidate.body),
        "quota": (baseline.quota, candidate.quota),
        "retry": (baseline.retry, candidate.retry),
    }
    if baseline.tier == candidate.tier:  # a tier has hardware of its own: another one differs with it
        asked["route"] = (baseline.route, candidate.route)
    unlike = [f"{name} ({a or 'none'}, {b or 'none'})" for name, (a, b) in asked.items() if a != b]
    if unlike:
        detail = f"{baseline.backend} and {candidate.backend} differ in more than tier: {', '.join(unlike)}"
        found.append(Finding(FindingName.CONFOUNDED, candidate.backend, None, detail))
    real = not (baseline.simulated or candidate.simulated)
    if real and (baseline.host, baseline.key_name) == (candidate.host, candidate.key_name):
        key = f"the key {candidate.key_name}" if candidate.key_name else "no key"
        detail = (
            f"{baseline.backend} and {candidate.backend} both ask {candidate.host} with {key}: the load of"
            " one can slow the other or use up its quota"
        )
        found.append(Finding(FindingName.SHARED_QUOTA, candidate.backend, None, detail))
    return found


def work_findings(baseline: Side, candidate: Side, *, runs: Runs = None) -> Iterable[Finding]:
    """Find whether the two legs of the pairs that completed did the same work from the same cache."""
    legs = [by_k(_completed(side), runs) for side in (baseline, candidate)]
    done = legs[0].keys() & legs[1].keys()
    left, right = (
        side.calls.of_tasks({leg[key].task_id for key in done})
        for side, leg in zip((baseline, candidate), legs, strict=True)
    )
    outputs = [
        calls.per_task(calls.output_tokens) for calls in (left, right)
    ]  # nan where a call did not tell
    both = [
        (ours, theirs)
        for ours, theirs in (
            [output.get(leg[key].task_id, nan) for output, leg in zip(outputs, legs, strict=True)]
            for key in done
        )
        if not isnan(ours + theirs)
    ]
    if both:
        ours, theirs = (median(output) for output in zip(*both, strict=True))
        if abs(ours - theirs) > WORK_LIMIT * min(ours, theirs):
            detail = (
                f"median output of a task {ours:,.0f} tokens on {baseline.backend}, {theirs:,.0f} on"
                f" {candidate.backend}, over {len(both)} pairs (limit {WORK_LIMIT:.0%} apart)"
            )
            yield Finding(FindingName.UNEQUAL_WORK, candidate.backend, candidate.workload, detail)
    ours_cached, theirs_cached = _cached_share(left), _cached_share(right)
    if ours_cached is None or theirs_cached is None:
        return
    if round(abs(ours_cached - theirs_cached), 9) > CACHE_LIMIT:
        detail = (
            f"{ours_cached:.1%} of input tokens came from the cache on {baseline.backend},"
            f" {theirs_cached:.1%} on {candidate.backend} (limit {100 * CACHE_LIMIT:.0f} points apart)"
        )
        yield Finding(FindingName.UNEQUAL_CACHE, candidate.backend, candidate.workload, detail)


def in_flight(side: Side) -> InFlight | None:
    """Give mean tasks in flight by thirds of measure, from its first to its last scheduled task."""
    scheduled = [task.scheduled_ns for task in side.tasks]
    if not scheduled or min(scheduled) == max(scheduled):
        return None
    tasks = [*side.earlier, *side.tasks]
    starts = np.array([task.scheduled_ns for task in tasks], dtype=np.float64)
    ends = np.array([task.ended_ns for task in tasks], dtype=np.float64)
    edges = np.linspace(min(scheduled), max(scheduled), 4)

    def mean(low: float, high: float) -> float:
        inside = np.minimum(ends, high) - np.maximum(starts, low)
        return float(np.maximum(inside, 0).sum() / (high - low))

    return InFlight(first=mean(edges[0], edges[1]), last=mean(edges[2], edges[3]))


def queue_findings(sides: Iterable[Side]) -> list[Finding]:
    """Find queues that grow: in an open loop then every later task is slower, and no ratio holds."""
    found = []
    for side in sides:
        flying = in_flight(side)
        if flying is not None and flying.grows:
            detail = (
                f"{flying.last:.1f} tasks in flight in the last third of measure, {flying.first:.1f} in the"
                " first: the backend does not keep up, so no speed-up is told"
            )
            found.append(Finding(FindingName.GROWING_QUEUE, side.backend, side.workload, detail))
    return found


def tail_finding(backend: str, workload: str, tasks: Sequence[TaskRecord]) -> Finding | None:
    """Tell the tail of a run by task count, and p95 with it and without; None if there is none."""
    rest = [task for task in tasks if task.phase is not Phase.TAIL]
    tail = len(tasks) - len(rest)
    if not tail:
        return None
    detail = (
        f"{tail} of {len(tasks)} tasks were still open after the first user ran dry, under falling load;"
        f" p95 task time {_p95(tasks)} with them, {_p95(rest)} without"
    )
    return Finding(FindingName.TAIL, backend, workload, detail)


def _p95(tasks: Sequence[TaskRecord]) -> str:
    curve = completion_curve([task_time_s(task) for task in tasks], [task.outcome for task in tasks])
    reached = time_at(curve, 0.95)
    return "not reached" if reached is None else f"{reached:.1f} s"


def _completed(side: Side) -> list[TaskRecord]:
    return [task for task in side.tasks if task.outcome is TaskOutcome.COMPLETED]


def _cached_share(calls: Calls) -> float | None:
    """Give cached input tokens / input tokens, of the calls that tell both."""
    told = calls[~np.isnan(calls.cached_tokens + calls.input_tokens)]
    total = float(told.input_tokens.sum())
    return float(told.cached_tokens.sum()) / total if total else None
