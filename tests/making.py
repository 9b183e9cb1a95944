"""Records for tests, made by hand: only what a test is about has to be said."""

from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np

from harness.measure.calls import calls_of
from harness.measure.facts import Records
from harness.measure.gaps import Gaps
from harness.records import (
    CallOutcome,
    CallRecord,
    EventsRecord,
    Phase,
    TaskOutcome,
    TaskRecord,
    TokenSource,
)
from harness.values import Answer, EventKind, StampClock, Timeline, Usage

S = 1_000_000_000
MS = 1_000_000
KINDS = tuple(EventKind)


def a_call(**said: Any) -> CallRecord:
    """A call of backend b, task b/w/0: sent at 0, output from 1 s to 2 s, done at 2 s, 11 tokens."""
    values: dict[str, Any] = {
        "call_id": "b/w/0/1",
        "task_id": "b/w/0",
        "k": 0,
        "backend": "b",
        "workload": "w",
        "phase": Phase.MEASURE,
        "turn": 1,
        "depth": 0,
        "parent_call_id": None,
        "dialect": "openai-chat",
        "transport": "keep-alive",
        "connection": "reused",
        "clock": StampClock.KERNEL,
        "scheduled_ns": 0,
        "sent_ns": 0,
        "headers_ns": 1 * S,
        "first_output_ns": 1 * S,
        "first_answer_ns": 1 * S,
        "last_output_ns": 2 * S,
        "done_ns": 2 * S,
        "first_output_low_ns": 1 * S,
        "first_answer_low_ns": 1 * S,
        "last_output_low_ns": 2 * S,
        "shared_read_events": 0,
        "input_tokens": 100,
        "cached_tokens": 0,
        "output_tokens": 11,
        "reasoning_tokens": None,
        "hidden_tokens": 0,
        "token_source": TokenSource.USAGE,
        "outcome": CallOutcome.OK,
        "status": 200,
        "error": None,
        "attempts": [],
        "limit_wait_ns": 0,
        "tier_asked": None,
        "tier_served": None,
        "finish_reason": "stop",
        "cancelled_ns": None,
        "request_id": None,
        "server_timing": None,
        "streamed_events": 11,
    }
    return CallRecord(**{**values, **said})


def a_task(**said: Any) -> TaskRecord:
    """Task 0 of backend b: scheduled and started at 0, completed at 2 s."""
    values: dict[str, Any] = {
        "task_id": "b/w/0",
        "k": 0,
        "backend": "b",
        "workload": "w",
        "preset": None,
        "session": 0,
        "phase": Phase.MEASURE,
        "seed": 1,
        "scheduled_ns": 0,
        "started_ns": 0,
        "ended_ns": 2 * S,
        "human_ns": 0,
        "outcome": TaskOutcome.COMPLETED,
        "reason": None,
        "turns": 1,
        "calls": 1,
        "tools": [],
        "breakdown": dict.fromkeys(
            ("decode", "reasoning", "ttft", "network", "tool", "agent", "limit", "retry", "client"), 0.0
        )
        | {"decode": 1.0},
        "breakdown_unknown": ["queue"],
        "cost_usd": None,
        "plan_mismatch": 0,
    }
    return TaskRecord(**{**values, **said})


def kept(
    tasks: Iterable[TaskRecord], calls: Iterable[CallRecord], events: Iterable[EventsRecord] = ()
) -> Records:
    """What is read back of a run that kept these."""
    calls, gaps = list(calls), Gaps()
    task_of = {call.call_id: call.task_id for call in calls if call.outcome is CallOutcome.OK}
    for one in events:
        gaps.add(task_of[one.call_id], np.array(one.gaps_us[1:], dtype=np.int64))
    return Records(list(tasks), calls_of(calls), gaps)


def an_answer(
    reads: list[list[int]], *, exact: list[bool] | None = None, kinds: str = "", **said: Any
) -> Answer:
    """Events by read: reads[i] is [stamp, number of events]; exact[i]: its last event ends the read."""
    high, low = array("q"), array("q")
    before = 0
    for i, (stamp, count) in enumerate(reads):
        for j in range(count):
            high.append(stamp)
            low.append(stamp if j == count - 1 and (exact is None or exact[i]) else before)
        before = stamp
    if "r" in kinds:
        said.setdefault("reasoning", "thought")
    letters = {"t": 0, "r": 1, "c": 2}
    said.setdefault("tokens", array("q", [-1] * len(high)))
    said.setdefault("kinds", array("b", [letters[c] for c in (kinds or "t" * len(high))]))
    return Answer(high_ns=high, low_ns=low, **said)


def a_timeline(answer: Answer, **said: Any) -> Timeline:
    """An exchange sent at 0 over a reused connection with kernel stamps, done at its last event."""
    values: dict[str, Any] = {
        "sent_ns": 0,
        "done_ns": answer.high_ns[-1] if answer.high_ns else 0,
        "status": 200,
        "connection": "reused",
        "clock": StampClock.KERNEL,
        "answer": answer,
    }
    return Timeline(**{**values, **said})


def told(output: int, reasoning: int | None = None) -> Usage:
    """Usage with 100 input tokens."""
    return Usage(input_tokens=100, output_tokens=output, cached_tokens=0, reasoning_tokens=reasoning)
