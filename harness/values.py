"""The values that flow while a task runs: Request -> Exchange -> Timeline with its Answer.

Everything here is frozen, slotted and free of clocks, sockets and dice. Times are integer
nanoseconds on CLOCK_MONOTONIC. What is kept of them stands in `records`, what is concluded in
`results`.
"""

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Literal, Protocol


class Role(StrEnum):
    """Who speaks a block."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's wish that a tool be run; `arguments` is the JSON text as streamed."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a prompt: same `id`, same words, so prefixes are equal where ids are.

    `tokens` is its length; `text` holds what a model really said (live history), otherwise the
    dialect makes `tokens` words from `id` when it encodes. `answers` is the tool call's id.
    Neighbouring blocks of one role become one message, except tool results.
    """

    id: str
    tokens: int
    role: Role
    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    answers: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One model call to be made. `body` is None until a dialect has encoded it.

    `min_tokens` is set when the output length is forced (`ignore_eos`); `x_plan` goes to our own
    simulator only; `extra_body` is merged into the body last. `conversation` names calls that belong on one
    connection where a transport keeps state in it. With `previous_response_id` the server holds what came
    before: `blocks` are then only what is new. `suffix` is what stands behind the gap to be filled (fill in
    the middle), where a dialect has it. `dice` is the seed of what chance decides on its way.
    """

    model: str
    blocks: tuple[Block, ...]
    max_tokens: int
    min_tokens: int | None = None
    tools: tuple[str, ...] = ()
    service_tier: str | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    x_plan: Mapping[str, Any] | None = None
    conversation: str = ""
    previous_response_id: str | None = None
    dice: str = ""
    suffix: tuple[Block, ...] = ()
    path: str = ""
    body: bytes | None = None


class EventKind(StrEnum):
    """What an output event carries."""

    TEXT = "text"
    REASONING = "reasoning"
    TOOL = "tool"


class ErrorKind(StrEnum):
    """Why a call failed; closed, so that it can be a label."""

    CONNECT = "connect"
    TLS = "tls"
    CONNECT_TIMEOUT = "connect_timeout"
    FIRST_OUTPUT_TIMEOUT = "first_output_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    HTTP_ERROR = "http_error"
    NOT_STREAMED = "not_streamed"
    NOT_A_MODEL_CALL = "not_a_model_call"
    NOT_SSE = "not_sse"
    STREAM_ERROR = "stream_error"
    MALFORMED_EVENT = "malformed_event"
    TOO_LARGE = "too_large"
    EMPTY_RESPONSE = "empty_response"
    TRUNCATED = "truncated"
    RESET = "reset"
    STALE_CONNECTION = "stale_connection"
    CLIENT_RESOURCE = "client_resource"


@dataclass(frozen=True, slots=True)
class CallError:
    """A failure as a value: its kind and one sentence for a person."""

    kind: ErrorKind
    message: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the server told them; None where it was silent, never 0.

    `input_tokens` includes cached ones, `output_tokens` includes reasoning ones.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Text and end of one choice where a call has several (n > 1)."""

    text: str
    finish_reason: str | None


def _longs() -> "array[int]":
    return array("q")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a decoder understood. The arrays are parallel, one entry per output event.

    `high_ns[i]` is the stamp of the read that completed event i; `low_ns[i]` the earliest time it
    can have come (equal where the stamp is exact). `kinds[i]` indexes `tuple(EventKind)`.
    `tokens[i]` is the event's token count, -1 where the stream does not tell; None of them may be
    used as a count unless all are >= 0. `first_tool` is the first event with a part of a tool call,
    which text in the same event may hide from `kinds`. `done_ns` is the stamp of the terminal event, if
    any came.
    `reasoning_summary`: only summaries of the reasoning were streamed. `server_timing`: the server's own
    times of this call in seconds: `queue_s`, `prompt_s`, `completion_s`, `total_s`, `rtt_s`, and others.
    `incomplete_reason`: why an answer was cut short, where the dialect tells it apart from the
    `finish_reason`. `error_status`: the HTTP status that an error on a WebSocket names.
    """

    high_ns: "array[int]" = field(default_factory=_longs)
    low_ns: "array[int]" = field(default_factory=_longs)
    kinds: "array[int]" = field(default_factory=lambda: array("b"))
    tokens: "array[int]" = field(default_factory=_longs)
    first_tool: int | None = None
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    finish_reason: str | None = None
    tier_served: str | None = None
    request_id: str | None = None
    done_ns: int | None = None
    error: CallError | None = None
    malformed_events: int = 0
    reasoning_summary: bool = False
    choices: Mapping[int, Choice] = field(default_factory=dict)
    server_timing: Mapping[str, float] = field(default_factory=dict)
    incomplete_reason: str | None = None
    error_status: int | None = None
    warnings: tuple[str, ...] = ()


class StampClock(StrEnum):
    """Where a call's stamps came from: all from the kernel, or at least one from the loop."""

    KERNEL = "kernel"
    LOOP = "loop"


@dataclass(frozen=True, slots=True)
class Timeline:
    """One exchange in time: transport facts, and the answer once it is decoded.

    `sent_ns` is the first touch of the network: the beginning of opening a connection, else the first byte of
    the request. What opening cost is 0 where nothing was opened: `dns_ns`, `connect_ns` (TCP), `tls_ns`,
    `upgrade_ns` (WebSocket). `round_trip_ns` is the kernel's smoothed round trip, 0 where it tells none.
    `reconnects` counts connections of the same conversation that the server had closed. `last_byte_ns` is the
    stamp of the newest byte; `cancelled_ns` when the caller cancelled.
    `error` is the transport's own failure; the answer may hold another. A body that is no event
    stream (status >= 400, another content type) is kept in `body`, its first 64 KiB; `received_bytes`
    counts those of a stream, without their framing. `warnings` has
    `compressed` where the body was, though it was asked not to be: a compressor may hold events back.
    `limit_wait_ns` was waited for the client's own caps before `sent_ns`. `limits_told`: numbers of the
    answer's limit headers by name; `resend_told`: what it says of asking again. `earlier`: the attempts
    before this one, the oldest first.
    """

    sent_ns: int
    done_ns: int
    headers_ns: int | None = None
    status: int | None = None
    content_type: str | None = None
    body: bytes | None = None
    connection: Literal["new", "reused"] = "new"
    clock: StampClock = StampClock.LOOP
    dns_ns: int = 0
    connect_ns: int = 0
    tls_ns: int = 0
    upgrade_ns: int = 0
    round_trip_ns: int = 0
    reconnects: int = 0
    last_byte_ns: int | None = None
    cancelled_ns: int | None = None
    received_bytes: int = 0
    request_id: str | None = None
    error: CallError | None = None
    warnings: tuple[str, ...] = ()
    answer: Answer = field(default_factory=Answer)
    limit_wait_ns: int = 0
    limits_told: Mapping[str, float] = field(default_factory=dict)
    resend_told: bool | None = None
    earlier: tuple["Timeline", ...] = ()


class Progress(IntEnum):
    """What a piece of the body brought: SILENT nothing yet (or comments), OUTPUT, or the DONE mark."""

    SILENT = 0
    OUTPUT = 1
    DONE = 2


OnRead = Callable[[bytes, int], Progress]
"""(bytes of the body, stamp in ns) -> Progress; after DONE nothing more is awaited.

No bytes: behind all of the body so far, the read of that stamp brought other bytes (framing, or bytes
not handed out yet), so nothing of the body ends where this read ends.
"""


class Exchange(Protocol):
    """Carries one request and times its answer. Failures are values of the Timeline.

    An exchange of bytes feeds each piece of the body to `on_read` with its arrival stamp, and leaves
    `Timeline.answer` empty; a virtual one fills it and never calls `on_read`.
    """

    async def __call__(self, request: Request, on_read: OnRead) -> Timeline:
        """Send `request`; return when the answer is complete, has ended or has failed."""
