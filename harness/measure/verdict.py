"""Whether a run may be believed, and what it says about its objectives."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.measure.certified import BOUND_SHARE_MAX, Doubt
from harness.measure.decision import decide, sentence
from harness.objectives import Objective, ObjectiveFor, Objectives
from harness.results import (
    CompareSummary,
    Estimate,
    FindingName,
    Headline,
    Quantiles,
    Reason,
    Summary,
    Verdict,
    VerdictRecord,
    WorkloadSummary,
)

EXIT_CODES: Mapping[Verdict, int] = {
    Verdict.PASS: 0,
    Verdict.NONE: 0,
    Verdict.FAIL: 1,
    Verdict.INCONCLUSIVE: 3,
    Verdict.INVALID: 4,
}
START_LAG_MS = 50.0
START_LAG_SHARE = 0.01
CLIENT_SHARE = 0.02

STAMPED = ("ttft", "ttfo", "gap", "tpot", "decode_tokens_per_s")
"""Metrics of single stamps."""
UNTIMED = ("cost_per_task", "events_per_token")
"""Metrics in which there is no time."""

CostRatios = Mapping[str, Mapping[str, Estimate]]
"""candidate -> workload -> candidate / baseline of USD per completed task."""

_NOTHING = Objectives()
_UNKNOWN = Estimate(value=None, reason=Reason.UNKNOWN)
_PER_S = {"s": 1.0, "ms": 1e3}


def judge(
    summary: Summary,
    *,
    lost: Mapping[str, str],
    workers: Sequence[str] = (),
    objectives: Objectives = _NOTHING,
    cost_ratios: CostRatios | None = None,
    doubt: Doubt | None = None,
) -> VerdictRecord:
    """Decide every objective and the run. `lost`: backend -> why it was given up; `workers`: those that died.

    doubt: the run's stamps are not proved at its load: objectives that hang on them are INCONCLUSIVE.

    INVALID goes before FAIL, FAIL before INCONCLUSIVE, that before PASS; NONE where nothing is asked.
    Reasons come in that order too, a sentence for each; objectives are decided in an invalid run as well.
    """
    invalid = [*workers, *_unsound(summary, lost), *_late(summary)]
    rows = [*_held(summary, objectives), *_compared(summary, objectives, cost_ratios or {})]
    decided = [row.decided(objectives, doubt) for row in rows]
    worst = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS)
    verdicts = [Verdict.INVALID] * bool(invalid) + [one for one in worst if one in decided] + [Verdict.NONE]
    reasons = [
        row.sentence(verdict, doubt)
        for shown in (Verdict.FAIL, Verdict.INCONCLUSIVE)
        for row, verdict in zip(rows, decided, strict=True)
        if verdict is shown
    ]
    return VerdictRecord(
        verdict=verdicts[0],
        policy=objectives.policy,
        reasons=invalid + reasons,
        objectives=[row.written(verdict) for row, verdict in zip(rows, decided, strict=True)],
    )


def exit_code(verdict: Verdict, *, allow_inconclusive: bool) -> int:
    """Give the exit code of the command line contract; `allow_inconclusive` makes 3 into 0."""
    if allow_inconclusive and verdict is Verdict.INCONCLUSIVE:
        return 0
    return EXIT_CODES[verdict]


@dataclass(frozen=True, slots=True)
class _Row:
    """One objective on one workload of one backend; workload None where the run has none."""

    backend: str
    workload: str | None
    objective: Objective
    estimate: Estimate

    def decided(self, objectives: Objectives, doubt: Doubt | None) -> Verdict:
        if doubt is not None and self._hangs_on_stamps(doubt):
            return Verdict.INCONCLUSIVE
        return decide(self.estimate, self.objective, policy=objectives.policy)

    def sentence(self, verdict: Verdict, doubt: Doubt | None) -> str:
        place = self.backend if self.workload is None else f"{self.backend}/{self.workload}"
        if doubt is not None and self._hangs_on_stamps(doubt):
            return f"{place}: {self.objective.text}: {doubt.why}"
        return f"{place}: {self.objective.text}: {sentence(self.estimate, self.objective, verdict)}"

    def _hangs_on_stamps(self, doubt: Doubt) -> bool:
        """Whether single stamps decide it; times of tasks hang on them where their bounds are wide."""
        metric = self.objective.metric
        return metric in STAMPED or (metric not in UNTIMED and doubt.bound_share >= BOUND_SHARE_MAX)

    def written(self, verdict: Verdict) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "workload": self.workload,
            "objective": self.objective.text,
            "estimate": self.estimate,
            "verdict": verdict,
        }


def _held(summary: Summary, objectives: Objectives) -> Iterator[_Row]:
    for asked in objectives.held:
        backend = summary.backends.get(asked.backend)
        found = {
            name: _estimate(result, asked.objective)
            for name, result in (backend.workloads.items() if backend else ())
        }
        yield from _rows(asked, found)


def _compared(summary: Summary, objectives: Objectives, cost_ratios: CostRatios) -> Iterator[_Row]:
    for asked in objectives.compared:
        metric = asked.objective.metric
        found: dict[str, Estimate] = (
            dict(cost_ratios.get(asked.backend, {}))
            if metric == "cost_per_task"
            else {
                name: _comparison(result, metric)
                for name, result in summary.compare.get(asked.backend, {}).items()
            }
        )
        yield from _rows(asked, found)


def _rows(asked: ObjectiveFor, found: Mapping[str, Estimate]) -> Iterator[_Row]:
    """Lay an objective over the workloads it is for: one, or all that have the metric.

    There is always a row: an objective that nothing answers must not vanish.
    """
    if asked.workload is not None:
        found = {asked.workload: found.get(asked.workload, _UNKNOWN)}
    having = {name: one for name, one in found.items() if one.reason is not Reason.NOT_APPLICABLE}
    for name, estimate in (having or found).items():
        yield _Row(asked.backend, name, asked.objective, estimate)
    if not found:
        yield _Row(asked.backend, None, asked.objective, _UNKNOWN)


def _estimate(result: WorkloadSummary, objective: Objective) -> Estimate:
    """Find what an objective is about, in the objective's own unit."""
    statistic, metric = objective.statistic, objective.metric
    if metric == "task_time":
        if objective.within_s is not None:
            return _within(result.task_time.within, objective.within_s)
        times: Estimate = getattr(result.task_time, f"{statistic}_s")
        return times
    single = {
        "decode_tokens_per_s": result.decode_tokens_per_s,
        "events_per_token": result.extra.get("events_per_token", _UNKNOWN),
        "headline": _headline_s(result.headline),
        "cost_per_task": result.cost.per_completed_task_usd,
    }
    if metric in single:
        return single[metric]
    quantiles: Quantiles = getattr(result, f"{metric}_{objective.unit}")  # ttft_s, gap_ms
    quantile: Estimate = getattr(quantiles, statistic)
    return quantile


def _within(shares: Mapping[str, Estimate], limit_s: float) -> Estimate:
    return next((share for key, share in shares.items() if float(key) == limit_s), _UNKNOWN)


def _headline_s(headline: Headline) -> Estimate:
    """Give a headline in seconds; one that is no time has no limit in seconds."""
    if headline.unit not in _PER_S:
        return Estimate(value=None, reason=Reason.NOT_APPLICABLE)
    value, low, high = (
        None if one is None else one / _PER_S[headline.unit]
        for one in (headline.value.value, headline.value.low, headline.value.high)
    )
    return replace(headline.value, value=value, low=low, high=high)


def _comparison(result: CompareSummary, metric: str) -> Estimate:
    found: Estimate = getattr(result, metric)
    return found


def _unsound(summary: Summary, lost: Mapping[str, str]) -> Iterator[str]:
    yield from (f"{backend}: given up: {why}" for backend, why in lost.items())
    for finding in summary.findings:
        if finding.name is FindingName.CLIENT_RESOURCE:
            yield f"{finding.backend}/{finding.workload}: {finding.detail}"
    for name, backend in summary.backends.items():
        for workload, result in backend.workloads.items():
            if not result.tasks.completed:
                why = _why(summary, name, workload)
                yield f"{name}/{workload}: no task completed{why}"
            share = result.breakdown.get("client", 0.0)
            if share > CLIENT_SHARE:
                yield (
                    f"{name}/{workload}: the harness itself took {share:.1%} of the task time"
                    f" (limit {CLIENT_SHARE:.0%}): fewer users, or more machine"
                )


def _why(summary: Summary, backend: str, workload: str) -> str:
    """Say what its calls met, if they failed, and whether its tasks hit their limit."""
    told = (
        f.detail
        for f in summary.findings
        if (f.backend, f.workload) == (backend, workload)
        and f.name in (FindingName.FAILED_CALLS, FindingName.TIMED_OUT)
    )
    return "".join(f": {detail}" for detail in told)


def _late(summary: Summary) -> Iterator[str]:
    lag = summary.meter.start_lag_p99_ms.value
    medians = [
        result.task_time.p50_s.value
        for backend in summary.backends.values()
        for result in backend.workloads.values()
        if result.task_time.p50_s.value is not None
    ]
    limit = max(START_LAG_MS, START_LAG_SHARE * 1e3 * min(medians, default=0.0))
    if lag is not None and lag > limit:
        yield f"tasks started {lag:.0f} ms late at p99 (limit {limit:.0f} ms): the plan was not kept"
