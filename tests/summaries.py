"""Summaries for tests, made by hand: only what a test is about has to be said."""

from typing import Any

from harness.results import (
    BackendSummary,
    CallCounts,
    CompareSummary,
    CostSummary,
    Estimate,
    Headline,
    MeterSummary,
    Quantiles,
    Reason,
    Summary,
    TaskCounts,
    TaskTime,
    TierSummary,
    TokenTotals,
    Verdict,
    WorkloadSummary,
)


def an(value: float | None = None, low: float | None = None, high: float | None = None, **said: Any):
    """An estimate from 100 units; without a value it is `unknown` unless said."""
    reason = said.get("reason", Reason.UNKNOWN) if value is None else None
    return Estimate(value, low, high, n=said.get("n", 100), reason=reason)


def all_of(estimate: Estimate) -> Quantiles:
    return Quantiles(p50=estimate, p90=estimate, p95=estimate, p99=estimate)


def a_workload(**said: Any) -> WorkloadSummary:
    """100 completed tasks of 10 s; TTFT 1 s, TTFO 2 s, gap 3 ms, TPOT 4 ms, 250 tokens/s, 0.05 USD a task."""
    times = {name: an(10.0, 9.0, 11.0) for name in ("p50_s", "p90_s", "p95_s", "p99_s")}
    shares = {"10": an(0.5, 0.4, 0.6), "60": an(0.9, 0.85, 0.95), "300": an(1.0, 0.97, 1.0)}
    time = said.pop("task_time", {})
    values: dict[str, Any] = {
        "tasks": TaskCounts(
            scheduled=100, dropped=0, completed=100, failed=0, timeout=0, abandoned=0, cut=0, lost=0
        ),
        "calls": CallCounts(ok=200, failed=0, cancelled=0, cut=0),
        "task_time": TaskTime(**{**times, "within": shares, **time}),
        "ttft_s": all_of(an(1.0, 0.9, 1.1)),
        "ttfo_s": all_of(an(2.0, 1.9, 2.1)),
        "gap_ms": all_of(an(3.0, 2.9, 3.1)),
        "tpot_ms": all_of(an(4.0, 3.9, 4.1)),
        "decode_tokens_per_s": an(250.0, 240.0, 260.0),
        "headline": Headline(name="task_time", unit="s", better="lower", value=an(10.0, 9.0, 11.0)),
        "extra": {},
        "tokens": TokenTotals(input=1, cached=0, output=1, reasoning=0, wasted=0, source="usage"),
        "breakdown": {"decode": 0.99, "client": 0.01},
        "cost": CostSummary(total_usd=an(5.0), per_completed_task_usd=an(0.05, 0.04, 0.06)),
        "tier": TierSummary(asked=None, served={}),
    }
    return WorkloadSummary(**{**values, **said})


def a_comparison(**said: Any) -> CompareSummary:
    """100 pairs, everything 2 times as fast."""
    names = ("speedup_p50", "speedup_p10", "speedup_p90", "ratio_p50", "ratio_p90", "ratio_total")
    values: dict[str, Any] = {name: an(2.0, 1.8, 2.2) for name in names}
    values |= {"pairs": 100, "pairs_bounded": 0, "pairs_lost": 0, "seconds_saved_p50": an(5.0, 4.0, 6.0)}
    return CompareSummary(**{**values, **said})


def a_summary(
    backends: dict[str, dict[str, WorkloadSummary]],
    *,
    compare: dict[str, dict[str, CompareSummary]] | None = None,
    start_lag_ms: float | None = 2.0,
) -> Summary:
    return Summary(
        backends={name: BackendSummary(workloads) for name, workloads in backends.items()},
        compare=compare or {},
        meter=MeterSummary(
            clock="kernel",
            certified=None,
            loop_lag_p99_ms=an(1.0),
            start_lag_p99_ms=an(start_lag_ms),
            shared_read_share=an(0.1),
            cpu_share=an(0.2),
            bound_p99_us=an(30.0),
        ),
        findings=[],
        verdict=Verdict.NONE,
        intervals="within this run",
    )
