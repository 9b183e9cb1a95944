"""A call's Timeline becomes what is kept of it: one CallRecord and one EventsRecord."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from http import HTTPStatus
from itertools import groupby, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.measure.metrics.call import (
    hidden_tokens,
    streamed_per_event,
    streamed_tokens,
    swallowed_tokens,
    tokens_after_last,
)
from harness.records import CallOutcome, CallRecord, EventsRecord, Phase, TokenSource
from harness.said import shown, without_key
from harness.values import Answer, CallError, ErrorKind, EventKind, Timeline, Usage

KINDS = tuple(EventKind)
REASONING = KINDS.index(EventKind.REASONING)

WORD_LENGTH = 64
"""Characters that are kept of an id, a tier, a reason to finish."""

MESSAGE_LENGTH = 200

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What the step knows of a call beside its Timeline. Times are monotonic ns."""

    call_id: str
    task_id: str
    k: int
    backend: str
    workload: str
    phase: Phase
    turn: int
    dialect: str
    transport: str
    scheduled_ns: int
    tier_asked: str | None
    output_asked: int
    output_control: str | None
    origin_ns: int
    input_planned: int | None = None


_NOT_OURS = {field.name for field in fields(CallRecord)} - {field.name for field in fields(CallFacts)}


def call_error(timeline: Timeline) -> CallError | None:
    """Name the one failure of a call: what the server said goes before how the transport ended."""
    said = timeline.answer.error
    if said is not None and said.kind in (ErrorKind.STREAM_ERROR, ErrorKind.TOO_LARGE):
        return said
    return timeline.error or said


def records_of(
    timeline: Timeline, facts: CallFacts, *, cut: bool, cancelled: bool = False, key: str | None = None
) -> tuple[CallRecord, EventsRecord]:
    """Make both records; all times move to the run's axis (`facts.origin_ns` becomes 0).

    A call that was `cut` or `cancelled` has no error of its own: it did not end. `key` is kept out of all
    that the server said; that is also bounded in length and cannot steer a terminal.
    """
    error = None if cut or cancelled else call_error(timeline)
    answer, origin = replace(timeline.answer, usage=believed(timeline.answer)), facts.origin_ns
    high = np.frombuffer(answer.high_ns, dtype=np.int64) - origin
    low = np.maximum(np.frombuffer(answer.low_ns, dtype=np.int64), timeline.sent_ns) - origin
    answers = list(islice((i for i, kind in enumerate(answer.kinds) if kind != REASONING), 1))
    sizes = read_sizes(high, low)
    usage, tokens, swallowed = answer.usage, event_tokens(answer), swallowed_of(answer)
    cancelled_ns = timeline.cancelled_ns if cancelled else None
    late = 0 if cancelled_ns is None else int((high > cancelled_ns - origin).sum())
    call = CallRecord(
        call_id=facts.call_id,
        task_id=facts.task_id,
        k=facts.k,
        backend=facts.backend,
        workload=facts.workload,
        phase=facts.phase,
        turn=facts.turn,
        depth=0,
        parent_call_id=None,
        dialect=facts.dialect,
        transport=facts.transport,
        connection=timeline.connection,
        clock=timeline.clock,
        scheduled_ns=facts.scheduled_ns - origin,
        sent_ns=timeline.sent_ns - origin,
        headers_ns=None if timeline.headers_ns is None else timeline.headers_ns - origin,
        first_output_ns=_at(high, [0]),
        first_answer_ns=_at(high, answers),
        last_output_ns=_at(high, [-1]),
        done_ns=timeline.done_ns - origin,
        first_output_low_ns=_at(low, [0]),
        first_answer_low_ns=_at(low, answers),
        last_output_low_ns=_at(low, [-1]),
        shared_read_events=len(high) - sizes.count(1) - sizes.count(-1),
        input_tokens=usage.input_tokens if usage else None,
        cached_tokens=usage.cached_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
        reasoning_tokens=usage.reasoning_tokens if usage else None,
        hidden_tokens=hidden_of(answer),
        token_source=token_source(usage, tokens),
        outcome=_outcome(error, cut=cut, cancelled=cancelled),
        status=_status(timeline),
        error=error,
        attempts=_attempts(timeline, error, origin_ns=origin, key=key),
        limit_wait_ns=sum(one.limit_wait_ns for one in (*timeline.earlier, timeline)),
        tier_asked=facts.tier_asked,
        tier_served=answer.tier_served,
        finish_reason=answer.finish_reason,
        cancelled_ns=None if cancelled_ns is None else cancelled_ns - origin,
        request_id=answer.request_id or timeline.request_id,
        server_timing=dict(answer.server_timing) or None,
        first_event_tokens=tokens[0] if tokens else None,
        tokens_after_last=tokens_after_last(tokens, streamed=streamed_of(answer)),
        swallowed_tokens=swallowed,
        incomplete_reason=answer.incomplete_reason,
        streamed_events=len(answer.high_ns),
        network_ns=network_of(timeline),
        dns_ns=timeline.dns_ns,
        connect_ns=timeline.connect_ns,
        tls_ns=timeline.tls_ns,
        upgrade_ns=timeline.upgrade_ns,
        reconnects=timeline.reconnects,
        after_cancel_ns=None if cancelled_ns is None else max(0, (timeline.last_byte_ns or 0) - cancelled_ns),
        after_cancel_events=late,
        after_cancel_tokens=_sum(tokens[len(tokens) - late :]) if late else None,
        received_bytes=timeline.received_bytes,
        input_planned=facts.input_planned,
        output_asked=facts.output_asked,
        output_control=facts.output_control,
        limits_told=dict(timeline.limits_told) or None,
        warnings=timeline.warnings + answer.warnings + (("swallowed_tokens",) if swallowed else ()),
    )
    return _fit_to_keep(call, key), _events(call, answer.kinds, tokens=tokens, high=high, sizes=sizes)


def network_of(timeline: Timeline) -> int:
    """Sum up what the path cost this call: opening its connection, and one round trip.

    Where the server tells its path's round trip (`rtt_s`: a simulated path, of which the kernel sees only
    loopback), that one counts, and opening a connection took no less than one.
    """
    opening = timeline.dns_ns + timeline.connect_ns + timeline.tls_ns + timeline.upgrade_ns
    told_s = timeline.answer.server_timing.get("rtt_s")
    if told_s is None:
        return opening + timeline.round_trip_ns
    round_trip = round(told_s * 1e9)
    return (max(opening, round_trip) if timeline.connection == "new" else opening) + round_trip


def _fit_to_keep(call: CallRecord, key: str | None) -> CallRecord:
    """Pass every text that is not our own through the one place that makes it harmless."""
    told = {name: getattr(call, name) for name in _NOT_OURS}
    fit: dict[str, Any] = {
        name: kept
        for name, text in told.items()
        if type(text) is str and (kept := shown(without_key(text, key), length=WORD_LENGTH)) != text
    }
    if call.error is not None:
        fit["error"] = replace(call.error, message=_message(call.error, key))
    return replace(call, **fit) if fit else call


def _message(error: CallError, key: str | None) -> str:
    return shown(without_key(error.message, key, cut=True), length=MESSAGE_LENGTH)


def _attempts(
    timeline: Timeline, error: CallError | None, *, origin_ns: int, key: str | None
) -> list[dict[str, Any]]:
    """List all attempts of a call that needed several; `error` is the last one's."""
    if not timeline.earlier:
        return []
    told = [*((one, call_error(one)) for one in timeline.earlier), (timeline, error)]
    return [
        {
            "sent_ns": one.sent_ns - origin_ns,
            "done_ns": one.done_ns - origin_ns,
            "status": one.status,
            "error": None if why is None else {"kind": str(why.kind), "message": _message(why, key)},
            "limit_wait_ns": one.limit_wait_ns,
        }
        for one, why in told
    ]


def believed(answer: Answer) -> Usage | None:
    """Take as unknown what usage cannot mean, and from running totals what it does not tell.

    A prompt has tokens and so has output: 0 is a server that does not count. An answer that broke off has
    the number that its beginning told (Anthropic's `message_start`), which is no count of what came.
    """
    usage, came = answer.usage or Usage(), len(answer.high_ns)
    if usage.input_tokens == 0:
        usage = replace(usage, input_tokens=None, cached_tokens=None)
    output = usage.output_tokens or (None if came else usage.output_tokens)
    if output is not None and answer.finish_reason is None and answer.done_ns is None:
        output = output if 0 < came <= output else None
    if output is None and came and min(answer.tokens) >= 0:
        output = sum(answer.tokens)
    usage = replace(usage, output_tokens=output)
    return None if usage == Usage() else usage


def swallowed_of(answer: Answer) -> int:
    """Count the tokens of a call of tools that no event carried; see `metrics.call.swallowed_tokens`."""
    if answer.choices:
        return 0
    calls = sum(len(call.name) + len(call.arguments) for call in answer.tool_calls)
    return swallowed_tokens(
        event_tokens(answer),
        streamed=streamed_of(answer),
        first_tool=answer.first_tool,
        characters=len(answer.text) + len(answer.reasoning) + calls,
    )


def hidden_of(answer: Answer) -> int | None:
    """Count the output tokens that were never streamed; see `metrics.call.hidden_tokens`."""
    return hidden_tokens(
        answer.usage.reasoning_tokens if answer.usage else None,
        raw_reasoning=bool(answer.reasoning) and not answer.reasoning_summary,
        summaries=answer.reasoning_summary,
    )


def streamed_of(answer: Answer) -> int | None:
    """Count the tokens of an answer that were not hidden; see `metrics.call.streamed_tokens`."""
    return streamed_tokens(answer.usage.output_tokens if answer.usage else None, hidden_of(answer))


def event_tokens(answer: Answer) -> list[int | None]:
    """Count the streamed tokens of each output event, None where it is not told.

    Hidden tokens are no event's: see `metrics.call.streamed_per_event`.
    """
    if answer.tokens.count(-1) == len(answer.tokens):  # the usual stream tells none
        return [None] * len(answer.tokens)
    streamed = streamed_per_event(
        answer.tokens,
        output_tokens=answer.usage.output_tokens if answer.usage else None,
        hidden=hidden_of(answer),
    )
    if streamed is None:
        return [None] * len(answer.tokens)
    return [None if count < 0 else count for count in streamed]


def token_source(usage: Usage | None, tokens: Sequence[int | None]) -> TokenSource:
    """Name where the output count comes from, in the order of trust of research on usage reports."""
    if tokens and None not in tokens:
        return TokenSource.EVENTS
    if usage is not None and usage.output_tokens is not None:
        return TokenSource.USAGE
    return TokenSource.COUNTED if tokens else TokenSource.UNKNOWN


def read_sizes(high: Times, low: Times) -> list[int]:
    """Count output events per read (distinct stamp); negative where the last one is not exact."""
    if not len(high):
        return []
    ends = np.concatenate((np.flatnonzero(high[1:] != high[:-1]), [len(high) - 1]))
    sizes = ends + 1
    sizes[1:] -= sizes[:-1].copy()
    sizes[low[ends] != high[ends]] *= -1
    told: list[int] = sizes.tolist()
    return told


def _events(
    call: CallRecord, kinds: Iterable[int], *, tokens: list[int | None], high: Times, sizes: list[int]
) -> EventsRecord:
    rounded = (high + 500) // 1000
    gaps = np.zeros_like(rounded)
    gaps[1:] = rounded[1:] - rounded[:-1]
    return EventsRecord(
        call_id=call.call_id,
        gaps_us=gaps.tolist(),
        kinds=[(str(KINDS[kind]), len(list(run))) for kind, run in groupby(kinds)],
        tokens=[(count, len(list(run))) for count, run in groupby(tokens)],
        reads=sizes,
    )


def _status(timeline: Timeline) -> int | None:
    """Give HTTP's status; of a message over WebSocket, which has none, the one that its error names."""
    named = timeline.answer.error_status
    over_websocket = timeline.status in (None, HTTPStatus.SWITCHING_PROTOCOLS)
    return named if over_websocket and named is not None else timeline.status


def _outcome(error: CallError | None, *, cut: bool, cancelled: bool) -> CallOutcome:
    if cut:
        return CallOutcome.CUT
    if cancelled:
        return CallOutcome.CANCELLED
    return CallOutcome.OK if error is None else CallOutcome.FAILED


def _sum(counts: Sequence[int | None]) -> int | None:
    return None if None in counts else sum(count or 0 for count in counts)


def _at(times: Times, index: list[int]) -> int | None:
    return int(times[index[0]]) if len(times) and index else None
