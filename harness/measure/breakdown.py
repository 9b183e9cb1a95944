"""Where a task's time went: its critical path, cut into named parts that add up to 100 %.

The path is walked backwards from the task's end: the piece that ended last before the point
reached is on it, time before that piece's end that no piece covers is the harness's own. Of
parallel pieces only the last one to end counts; that is what the task waited for.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from harness.measure.metrics.call import streamed_tokens, tpot_ns
from harness.measure.metrics.task import task_time_ns
from harness.records import CallRecord, TaskOutcome, TaskRecord

QUEUE = "queue"
"""Waiting inside the server. It stays in `ttft` where the server does not tell it."""

PARTS = ("decode", "reasoning", "ttft", QUEUE, "network", "tool", "agent", "limit", "retry", "client")

HUMAN = "human"


@dataclass(frozen=True, slots=True)
class Piece:
    """An interval of a task: when, and the parts it is made of in the order they passed (ns each).

    The lengths may not exceed the interval; what they leave belongs to the last part.
    """

    started_ns: int
    ended_ns: int
    parts: tuple[tuple[str, int], ...] = field(default=())


def waiting(part: str, started_ns: int, ended_ns: int) -> Piece:
    """Make a piece that is one part from end to end: a tool, the agent program, a human."""
    return Piece(started_ns, ended_ns, ((part, ended_ns - started_ns),))


def call_piece(call: CallRecord) -> Piece:
    """Cut a call: limit, retry, network, queue, rest of TTFT, hidden reasoning (estimate), decode to its end.

    What was waited for the client's own caps is `limit`; from the first attempt's sent to the last one's, all
    else is `retry`: the attempts that failed, and the waits between them.
    The queue is what the server tells, never more than what the network leaves of TTFT.
    Hidden reasoning = hidden tokens x the call's TPOT, never more than what TTFT leaves of it. Tokens that
    the first event held back (the opening of a tool call) were decoded before it came, at the same TPOT.
    The stream's end after the last output (held back too, usage, end mark) is counted as decode. A call
    without output is all `ttft`.
    """
    first = call.first_output_ns if call.first_output_ns is not None else call.done_ns
    ttft = max(0, first - call.sent_ns)
    network = min(call.network_ns, ttft)
    queue = min(_queue_ns(call) or 0, ttft - network)
    speed = _tpot_ns(call) or 0.0
    left = ttft - network - queue
    reasoning = min(int((call.hidden_tokens or 0) * speed), left)
    held_back = max(0, (call.first_event_tokens or 1) - 1)
    opening = min(int(held_back * speed), left - reasoning)
    rest = max(0, call.done_ns - first)
    began_ns, before = _before_sent(call)
    parts = (
        *before,
        ("network", network),
        (QUEUE, queue),
        ("ttft", left - reasoning - opening),
        ("reasoning", reasoning),
        ("decode", opening + rest),
    )
    return Piece(began_ns, max(call.done_ns, first), parts)


def _before_sent(call: CallRecord) -> tuple[int, list[tuple[str, int]]]:
    """Tell when a call was wanted, and the parts of the time until its last attempt was sent."""
    if not call.attempts:
        return call.sent_ns - call.limit_wait_ns, [("limit", call.limit_wait_ns)]
    first = call.attempts[0]
    parts = [("limit", int(first["limit_wait_ns"]))]
    for one, following in pairwise(call.attempts):
        waited = int(following["limit_wait_ns"])
        parts += [("retry", following["sent_ns"] - waited - one["sent_ns"]), ("limit", waited)]
    return first["sent_ns"] - first["limit_wait_ns"], parts


def unknown_parts(calls: Iterable[CallRecord]) -> list[str]:
    """Name the parts of a task that its servers did not tell, or not of every call."""
    return [] if all(_queue_ns(call) is not None for call in calls) else [QUEUE]


def _queue_ns(call: CallRecord) -> int | None:
    """How long the server says that the call waited in it."""
    told = (call.server_timing or {}).get("queue_s")
    return None if told is None else round(told * 1e9)


def _tpot_ns(call: CallRecord) -> float | None:
    """TPOT of a call that has just ended; `metrics.recorded.call_tpot_ns` is of many."""
    if call.first_output_ns is None or call.last_output_ns is None or call.streamed_events <= 1:
        return None
    streamed = streamed_tokens(call.output_tokens, call.hidden_tokens)
    return tpot_ns(
        call.last_output_ns - call.first_output_ns,
        streamed=None if streamed is None else streamed - call.tokens_after_last,
        first=call.first_event_tokens,
    )


def breakdown(pieces: Iterable[Piece], *, scheduled_ns: int, ended_ns: int) -> dict[str, float]:
    """Give each part's share of the task time (human time taken out); the shares sum to 1."""
    spent = dict.fromkeys((*PARTS, HUMAN), 0)
    cursor = ended_ns
    for piece in sorted(pieces, key=lambda one: (one.ended_ns, one.started_ns), reverse=True):
        end = min(piece.ended_ns, cursor)
        start = max(piece.started_ns, scheduled_ns)
        if end <= start:
            continue
        spent["client"] += cursor - end
        _spend(spent, piece, start, end)
        cursor = start
    spent["client"] += max(0, cursor - scheduled_ns)
    del spent[HUMAN]
    total = sum(spent.values())
    if not total:
        return {part: float(part == "client") for part in PARTS}
    return {part: spent[part] / total for part in PARTS}


def shares(tasks: Sequence[TaskRecord]) -> dict[str, float]:
    """Share of each part in the summed task time of completed tasks; empty if there are none."""
    done = [(task.breakdown, task_time_ns(task)) for task in tasks if task.outcome is TaskOutcome.COMPLETED]
    total = sum(time for _, time in done)
    if not total:
        return {}
    return {part: sum(of.get(part, 0.0) * time for of, time in done) / total for part in PARTS}


def _spend(spent: dict[str, int], piece: Piece, start: int, end: int) -> None:
    """Add the parts of `piece` that lie between start and end."""
    at = piece.started_ns
    for part, length in piece.parts:
        spent[part] += max(0, min(at + length, end) - max(at, start))
        at += length
    if piece.parts and at < end:
        spent[piece.parts[-1][0]] += end - max(at, start)
