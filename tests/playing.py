"""An exchange for tests of pacing: it answers on the test's clock, by a rule the test gives."""

import asyncio
from array import array
from collections.abc import Callable

from harness.clock import Clock
from harness.errors import Interrupted
from harness.prices import Prices
from harness.records import CallRecord, EventsRecord, TaskRecord
from harness.values import Answer, CallError, OnRead, Request, StampClock, Timeline, ToolCall, Usage
from harness.wire import DIALECTS
from harness.workloads.step import LiveBackend

S = 1_000_000_000


class Played:
    """Answers each request after `seconds(request)`, all tokens at the end; or fails with `error`.

    `one_at_a_time`: requests wait for one another, as in front of a serial prefill. Tool calls come
    as the plan in the request says.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        seconds: Callable[[Request], float] = lambda _: 1.0,
        error: CallError | None = None,
        one_at_a_time: bool = False,
    ) -> None:
        self.clock = clock
        self.seconds = seconds
        self.error = error
        self.requests: list[Request] = []
        self._turn = asyncio.Lock() if one_at_a_time else None

    async def __call__(self, request: Request, on_read: OnRead) -> Timeline:
        self.requests.append(request)
        sent = self.clock.now_ns()
        try:
            if self._turn is None:
                await self._wait(request)
            else:
                async with self._turn:
                    await self._wait(request)
        except asyncio.CancelledError:
            raise Interrupted(Timeline(sent_ns=sent, done_ns=self.clock.now_ns())) from None
        return self._timeline(request, sent)

    async def _wait(self, request: Request) -> None:
        await self.clock.sleep_until(self.clock.now_ns() + round(self.seconds(request) * S))

    def _timeline(self, request: Request, sent: int) -> Timeline:
        now = self.clock.now_ns()
        if self.error is not None:
            return Timeline(sent_ns=sent, done_ns=now, error=self.error)
        plan = request.x_plan or {}
        calls = tuple(
            ToolCall(f"id{i}", tool["name"], "{}") for i, tool in enumerate(plan.get("tool_calls", []))
        )
        answer = Answer(
            high_ns=array("q", [now]),
            low_ns=array("q", [now]),
            kinds=array("b", [0]),
            tokens=array("q", [-1]),
            text="said",
            tool_calls=calls,
            usage=Usage(10, plan.get("output_tokens", 5), 0, plan.get("reasoning_tokens", 0)),
            finish_reason="stop",
        )
        return Timeline(sent_ns=sent, done_ns=now, status=200, clock=StampClock.KERNEL, answer=answer)


def a_backend(
    exchange: Played, *, name: str = "b", output_control: str = "x_plan", prices: Prices | None = None
) -> LiveBackend:
    """A backend that speaks openai-chat through `exchange`."""
    return LiveBackend(
        name=name,
        model="m",
        dialect=DIALECTS["openai-chat"],
        exchange=exchange,
        transport="keep-alive",
        output_control=output_control,
        prices=prices or {},
    )


class Kept:
    """Keeps records in lists."""

    def __init__(self) -> None:
        self.tasks: list[TaskRecord] = []
        self.calls: list[CallRecord] = []
        self.events: list[EventsRecord] = []

    def call(self, call: CallRecord, events: EventsRecord) -> None:
        self.calls.append(call)
        self.events.append(events)

    def task(self, task: TaskRecord) -> None:
        self.tasks.append(task)
