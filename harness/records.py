"""What a run keeps: one line a call, one line a task, one line of events a call.

Times are integer nanoseconds from the start of the run. The keys are a contract with other
programs: add, never rename or remove.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.values import CallError, StampClock

SCHEMA = 1
"""Version of the record and summary keys. History: 1 = first (0.1.0)."""


class CallOutcome(StrEnum):
    """How a call ended: `cut` by the run's end or the task's limit, `cancelled` by the workload."""

    OK = "ok"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CUT = "cut"


class TaskOutcome(StrEnum):
    """How a task ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    ABANDONED = "abandoned"
    CUT = "cut"


class Phase(StrEnum):
    """Phase of the run in which a task started, or a call was sent; a warm-up task's calls all warm up."""

    WARM_UP = "warm-up"
    MEASURE = "measure"
    DRAIN = "drain"
    TAIL = "tail"


class TokenSource(StrEnum):
    """Where output token counts came from, most trusted first.

    COUNTED: the server told none; there are `streamed_events`, an estimate, and never `output_tokens`.
    """

    EVENTS = "per_event"
    USAGE = "usage"
    COUNTED = "events"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One line of `calls.jsonl`. All `_ns` are from the start of the run; `_low_ns` are lower bounds.

    `first_event_tokens` are streamed ones, as in the call's events, `tokens_after_last` those that came in
    none: TPOT = (last output - first output) / (output_tokens - hidden_tokens - both). A key with a default
    is left out of the line where it has that value; `input_planned` and `output_asked` where they equal
    `input_tokens` and `output_tokens`. `output_control` is None on a simulated backend, which gives the
    planned length. `swallowed_tokens` of a call of tools came in no event (`measure.metrics.call`).
    `incomplete_reason` says why, where `finish_reason` only says that the answer is. `network_ns` holds one
    round trip and what opening the connection took: `dns_ns`, `connect_ns`, `tls_ns`, `upgrade_ns`, all 0
    where none was opened. `reconnects`: connections of the conversation that the server had closed between
    two calls. `after_cancel_ns`: from `cancelled_ns` to the newest byte that was seen, 0 if none came after;
    `after_cancel_tokens`: streamed tokens that came after, None where they were not told. `attempts` is empty
    where there was one, else it lists all, the last one too. `limit_wait_ns` is what all of them waited for
    the client's own caps. `limits_told`: numbers of the answer's limit headers.
    """

    schema: int = SCHEMA
    call_id: str
    task_id: str
    k: int
    backend: str
    workload: str
    phase: Phase
    turn: int
    depth: int
    parent_call_id: str | None
    dialect: str
    transport: str
    connection: str
    clock: StampClock
    scheduled_ns: int
    sent_ns: int
    headers_ns: int | None
    first_output_ns: int | None
    first_answer_ns: int | None
    last_output_ns: int | None
    done_ns: int
    first_output_low_ns: int | None
    first_answer_low_ns: int | None
    last_output_low_ns: int | None
    shared_read_events: int
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    hidden_tokens: int | None
    token_source: TokenSource
    outcome: CallOutcome
    status: int | None
    error: CallError | None
    attempts: list[dict[str, Any]]
    limit_wait_ns: int
    tier_asked: str | None
    tier_served: str | None
    finish_reason: str | None
    cancelled_ns: int | None
    request_id: str | None
    server_timing: dict[str, Any] | None
    first_event_tokens: int | None = None
    tokens_after_last: int = 0
    swallowed_tokens: int = 0
    incomplete_reason: str | None = None
    streamed_events: int = 0
    network_ns: int = 0
    dns_ns: int = 0
    connect_ns: int = 0
    tls_ns: int = 0
    upgrade_ns: int = 0
    reconnects: int = 0
    after_cancel_ns: int | None = None
    after_cancel_events: int = 0
    after_cancel_tokens: int | None = None
    received_bytes: int = 0
    input_planned: int | None = None
    output_asked: int | None = None
    output_control: str | None = None
    limits_told: dict[str, float] | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsRecord:
    """One line of `events.jsonl`: a call's output events, joined to its record by `call_id`.

    gaps_us: differences of times rounded to us, first 0; add `first_output_ns` to get arrivals.
    kinds: [kind, n] runs; tokens: [streamed tokens, n events] runs, null where the stream does not tell.
    Hidden tokens are no event's: a running total that counts them has lost them from the first event.
    reads: output events per distinct stamp; negative where the last of them is not exact.
    """

    schema: int = SCHEMA
    call_id: str
    gaps_us: list[int]
    kinds: list[tuple[str, int]]
    tokens: list[tuple[int | None, int]]
    reads: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GapsRecord:
    """One line of `gaps.jsonl`: the gaps in us of a call whose events stayed on another machine, counted.

    buckets: as in `measure.histogram`, rising; counts beside them; `overflow` gaps fit into no bucket.
    """

    schema: int = SCHEMA
    call_id: str
    buckets: list[int]
    counts: list[int]
    overflow: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRecord:
    """One tool execution; `ended_ns` is its planned end, so a late timer is never tool time."""

    name: str
    started_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """One line of `tasks.jsonl`.

    Task time = ended - scheduled - human. breakdown: part -> share of the task time, summing to 1;
    breakdown_unknown names the parts nobody told us about. `agent_ns` is the simulated agent
    program's own planned time.
    """

    schema: int = SCHEMA
    task_id: str
    k: int
    backend: str
    workload: str
    preset: str | None
    session: int
    phase: Phase
    seed: int
    scheduled_ns: int
    started_ns: int
    ended_ns: int
    human_ns: int
    outcome: TaskOutcome
    reason: str | None
    turns: int
    calls: int
    tools: list[ToolRecord]
    breakdown: dict[str, float]
    breakdown_unknown: list[str]
    cost_usd: float | None
    plan_mismatch: int
    agent_ns: int = 0
    repeat: int = 0
