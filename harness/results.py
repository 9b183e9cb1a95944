"""What a run concludes: estimates, findings, the summary and the verdict.

The keys are a contract with other programs: add, never rename or remove.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from harness.records import SCHEMA


class Reason(StrEnum):
    """Why an estimate has no value."""

    NOT_REACHED = "not_reached"
    TOO_FEW = "too_few"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not_applicable"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its uncertainty: `low` and `high` end its 95 % interval, `n` units went into it.

    A null value always has a reason. A null value with ends is a range: the number lies between them,
    and nothing better can be said (bounds of censored pairs); an end that is null has no bound there.
    `needed`: with reason `too_few`, the n from which there is a number.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    reason: Reason | None = None
    needed: int | None = None

    def __post_init__(self) -> None:
        if (self.value is None) != (self.reason is not None):
            message = f"an estimate has a value or a reason, never both or neither: {self!r}"
            raise ValueError(message)


class FindingName(StrEnum):
    """What a reader must know; closed. Advice stands in `measure.findings`."""

    SIMULATED = "simulated"
    SHORTENED = "shortened"
    UNCERTIFIED = "uncertified"
    BEYOND_CERTIFICATE = "beyond_certificate"
    CACHE_SALT_OFF = "cache_salt_off"
    TOOL_TAIL_CUT = "tool_tail_cut"
    WARM_UP = "warm_up"
    COLD_START = "cold_start"
    LOOP_STAMPS = "loop_stamps"
    SHARED_READS = "shared_reads"
    PLAN_MISMATCH = "plan_mismatch"
    NO_USAGE = "no_usage"
    FAILED_CALLS = "failed_calls"
    CUT_TASKS = "cut_tasks"
    TIMED_OUT = "timed_out"
    UNSENT_TASKS = "unsent_tasks"
    CONFOUNDED = "confounded"
    SHARED_QUOTA = "shared_quota"
    UNEQUAL_LOAD = "unequal_load"
    UNEQUAL_WORK = "unequal_work"
    UNEQUAL_CACHE = "unequal_cache"
    GROWING_QUEUE = "growing_queue"
    TAIL = "tail"
    ASSUMED_PRICE = "assumed_price"
    COST_UNKNOWN = "cost_unknown"
    COUNT_MISMATCH = "count_mismatch"
    SWALLOWED_TOKENS = "swallowed_tokens"
    WIDE_BOUNDS = "wide_bounds"
    CLIENT_LIMITED = "client_limited"
    COALESCED = "coalesced"
    CLIENT_RESOURCE = "client_resource"
    INTERRUPTED = "interrupted"
    SPEND_LIMIT = "spend_limit"
    WORKER_LOST = "worker_lost"
    REMOTE_EVENTS = "remote_events"
    THROTTLED = "throttled"
    WAITED_FOR_LIMITS = "waited_for_limits"
    TIER_DOWNGRADED = "tier_downgraded"
    TIER_UPGRADED = "tier_upgraded"
    TIER_CHANGED = "tier_changed"
    TIER_CONTRADICTED = "tier_contradicted"
    TIER_UNKNOWN = "tier_unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; `detail` is a sentence with the numbers."""

    name: FindingName
    backend: str | None
    workload: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Tasks that started in measure, by outcome; `scheduled` is the sum of the rest."""

    scheduled: int
    dropped: int
    completed: int
    failed: int
    timeout: int
    abandoned: int
    cut: int
    lost: int


@dataclass(frozen=True, slots=True)
class CallCounts:
    """Calls of the measured tasks by outcome; latencies are of those that are `ok`."""

    ok: int
    failed: int
    cancelled: int
    cut: int


@dataclass(frozen=True, slots=True)
class TaskTime:
    """Quantiles of the completion curve in seconds, and P(done within T) by T in seconds."""

    p50_s: Estimate
    p90_s: Estimate
    p95_s: Estimate
    p99_s: Estimate
    within: dict[str, Estimate]


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles of a call metric; the unit is in the key that holds them."""

    p50: Estimate
    p90: Estimate
    p95: Estimate
    p99: Estimate


@dataclass(frozen=True, slots=True)
class Headline:
    """A workload kind's own measure."""

    name: str
    unit: str
    better: Literal["lower", "higher"]
    value: Estimate


@dataclass(frozen=True, slots=True)
class TokenTotals:
    """Tokens of the measured tasks; None where a server did not tell. `wasted`: of calls not ok."""

    input: int | None
    cached: int | None
    output: int | None
    reasoning: int | None
    wasted: int | None
    source: str


@dataclass(frozen=True, slots=True)
class TierSummary:
    """Service tier asked for, the tiers the server named with the number of calls, and what was measured.

    measured: median decode speed of the calls of each tier that the server named, tokens/s.
    """

    asked: str | None
    served: dict[str, int]
    measured: dict[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CostSummary:
    """Money of the measured tasks, by the tiers really served.

    per_completed_task_usd: all of it (failed, retried, cancelled, cut so far) / completed tasks.
    """

    total_usd: Estimate
    per_completed_task_usd: Estimate


@dataclass(frozen=True, slots=True)
class CompareSummary:
    """A candidate against the baseline, over pairs: the same task k on both.

    Ratios are baseline / candidate: above 1 the candidate is faster.
    pairs: with a ratio; pairs_bounded: of them, those with a cut or timed-out leg; pairs_lost: tasks
    of one side that have no partner, or failed on both. speedup_pXX: quantiles of pair ratios;
    ratio_pXX: ratio of the curves' quantiles; ratio_total: ratio of summed times.
    """

    pairs: int
    pairs_bounded: int
    pairs_lost: int
    speedup_p50: Estimate
    speedup_p10: Estimate
    speedup_p90: Estimate
    ratio_p50: Estimate
    ratio_p90: Estimate
    ratio_total: Estimate
    seconds_saved_p50: Estimate


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """One workload on one backend."""

    tasks: TaskCounts
    calls: CallCounts
    task_time: TaskTime
    ttft_s: Quantiles
    ttfo_s: Quantiles
    gap_ms: Quantiles
    tpot_ms: Quantiles
    decode_tokens_per_s: Estimate
    headline: Headline
    extra: dict[str, Estimate]
    tokens: TokenTotals
    breakdown: dict[str, float]
    cost: CostSummary
    tier: TierSummary


@dataclass(frozen=True, slots=True)
class BackendSummary:
    """All workloads on one backend."""

    workloads: dict[str, WorkloadSummary]


@dataclass(frozen=True, slots=True)
class MeterKey:
    """What a certificate holds for: machine, Python, aiohttp, this program, and whose clock stamps."""

    machine: str
    python: str
    aiohttp: str
    harness: str
    clock: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """What `harness selftest` proved of the meter on one machine.

    streams, events_per_s: the envelope: loads up to these, all together at one moment, were measured
    right. events: how many were held against the truth; exact_share of them have a stamp and not bounds,
    whose error is error_pXX_us. missed: the bars that it did not hold, a sentence each.
    """

    made: str
    key: MeterKey
    streams: int
    events_per_s: float
    events: int
    exact_share: float
    error_p50_us: float
    error_p99_us: float
    missed: list[str]
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class Standing:
    """The certificate that a run had, or why it had none."""

    certificate: Certificate | None = None
    why: str = "there is no certificate of the meter on this machine"


@dataclass(frozen=True, slots=True)
class MeterSummary:
    """How good the instrument was in this run. `cpu_share` is of one core.

    certified: whether the run stayed within what the machine's certificate proved; None without one.
    """

    clock: str
    certified: bool | None
    loop_lag_p99_ms: Estimate
    start_lag_p99_ms: Estimate
    shared_read_share: Estimate
    cpu_share: Estimate
    bound_p99_us: Estimate


class Verdict(StrEnum):
    """What the run says about its objectives; NONE where it has none."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"
    NONE = "NONE"


@dataclass(frozen=True, slots=True)
class Summary:
    """`summary.json`. compare: candidate -> workload. intervals: what the ends of estimates tell."""

    backends: dict[str, BackendSummary]
    compare: dict[str, dict[str, CompareSummary]]
    meter: MeterSummary
    findings: list[Finding]
    verdict: Verdict
    intervals: Literal["within this run", "between runs"]
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """`verdict.json`."""

    verdict: Verdict
    policy: str
    reasons: list[str]
    objectives: list[dict[str, Any]]
    schema: int = SCHEMA
