"""Whether a run may be believed, and what it says about its objectives (none of them yet)."""

from collections.abc import Mapping

from harness.results import FindingName, Summary, Verdict, VerdictRecord

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


def judge(summary: Summary, *, lost: Mapping[str, str]) -> VerdictRecord:
    """Give INVALID with every reason there is, else NONE. `lost`: backend -> why it was given up."""
    reasons = [f"{backend}: given up: {why}" for backend, why in lost.items()]
    for name, backend in summary.backends.items():
        for workload, result in backend.workloads.items():
            if not result.tasks.completed:
                why = _why(summary, name, workload)
                reasons.append(f"{name}/{workload}: no task completed{why}")
            share = result.breakdown.get("client", 0.0)
            if share > CLIENT_SHARE:
                reasons.append(
                    f"{name}/{workload}: the harness itself took {share:.1%} of the task time"
                    f" (limit {CLIENT_SHARE:.0%}): fewer users, or more machine"
                )
    reasons += _late(summary)
    verdict = Verdict.INVALID if reasons else Verdict.NONE
    return VerdictRecord(verdict=verdict, policy="point", reasons=reasons, objectives=[])


def _why(summary: Summary, backend: str, workload: str) -> str:
    """Say what its calls met, if they failed."""
    told = (
        f.detail
        for f in summary.findings
        if (f.backend, f.workload) == (backend, workload) and f.name is FindingName.FAILED_CALLS
    )
    return "".join(f": {detail}" for detail in told)


def _late(summary: Summary) -> list[str]:
    lag = summary.meter.start_lag_p99_ms.value
    medians = [
        result.task_time.p50_s.value
        for backend in summary.backends.values()
        for result in backend.workloads.values()
        if result.task_time.p50_s.value is not None
    ]
    limit = max(START_LAG_MS, START_LAG_SHARE * 1e3 * min(medians, default=0.0))
    if lag is None or lag <= limit:
        return []
    return [f"tasks started {lag:.0f} ms late at p99 (limit {limit:.0f} ms): the plan was not kept"]
