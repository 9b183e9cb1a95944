"""What a workload can do: call a model, wait for tools, wait as the agent program. Nothing else.

One `Step` belongs to one task. It paces absolutely: each step is due when the one before it ended
(a call: the stamp of its last read; a wait: its planned end), so lateness never adds up and is
never taken for tool or server time.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from harness.clock import Clock
from harness.errors import Interrupted
from harness.measure.breakdown import Piece, breakdown, call_piece, unknown_parts, waiting
from harness.measure.calls import calls_of
from harness.measure.charge import task_usd
from harness.measure.timeline import CallFacts, records_of
from harness.prices import Prices
from harness.records import (
    CallRecord,
    EventsRecord,
    Phase,
    TaskOutcome,
    TaskRecord,
    ToolRecord,
)
from harness.values import Block, Exchange, Request, Role, Timeline, ToolCall
from harness.wire import Decoder, Dialect
from harness.workloads.exchanging import Conversations, Held, until

SALT_TOKENS = 8
"""Length of a salt: the same for everyone, so that salted prompts are equally long."""

History = tuple[Block, ...]
"""What a session's next task goes on from: the blocks after the shared prefix."""


@dataclass(frozen=True, slots=True)
class Session:
    """Tasks that share a history, one after the other: `length` of them from `first_k` on."""

    index: int
    first_k: int
    length: int


@dataclass(frozen=True, slots=True)
class LiveBackend:
    """A backend as a step sees it: how to speak with it and how to reach it.

    `key` is what nothing that a server says may bring into a record. `conversations` is set where the
    transport keeps state, so that calls of a task send only what is new.
    """

    name: str
    model: str
    dialect: Dialect
    exchange: Exchange
    transport: str
    service_tier: str | None = None
    output_control: str = "max_tokens"
    extra_body: Mapping[str, Any] | None = None
    key: str | None = field(default=None, repr=False)
    prices: Prices = field(default_factory=dict)
    conversations: Conversations | None = None

    @property
    def simulated(self) -> bool:
        """Whether the plan may travel to it (`x_plan`): our own simulator only."""
        return self.output_control == "x_plan"


@dataclass(frozen=True, slots=True)
class TaskSetting:
    """Which task this is. Times are monotonic ns; `salt` is None where caches may warm each other."""

    task_id: str
    k: int
    session: int
    workload: str
    preset: str | None
    seed: int
    scheduled_ns: int
    origin_ns: int
    salt: str | None
    repeat: int = 0


class Recorder(Protocol):
    """Where records go as they are made, and which phase the run is in."""

    def phase(self) -> Phase:
        """Tell the phase of the run now."""

    def call(self, call: CallRecord, events: EventsRecord) -> None:
        """Keep a call that has ended."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One model call as planned: its prompt, its output, and the tool calls within that output."""

    blocks: tuple[Block, ...]
    output_tokens: int
    reasoning_tokens: int = 0
    tool_calls: tuple[tuple[str, int], ...] = ()
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: `tokens` of the visible answer (as told, else as planned).

    A call that was `cancelled` is neither `ok` nor a failure; what came until then is here.
    """

    ok: bool
    text: str
    tool_calls: tuple[ToolCall, ...]
    tokens: int
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class ToolWait:
    """One tool execution; neighbours that are `side_by_side` run at the same time."""

    name: str
    duration_s: float
    side_by_side: bool = False


class Step:
    """One task's hands. `turns` and `plan_mismatch` are counted by the workload."""

    def __init__(
        self, setting: TaskSetting, backend: LiveBackend, *, clock: Clock, recorder: Recorder
    ) -> None:
        self.setting = setting
        self.turns = 1
        self.plan_mismatch = 0
        self._backend = backend
        self._clock = clock
        self._recorder = recorder
        self._due_ns = setting.scheduled_ns
        self._started_ns = clock.now_ns()
        self._calls = 0
        self._agent_ns = 0
        self._tools: list[ToolRecord] = []
        self._pieces: list[Piece] = []
        self._records: list[CallRecord] = []
        self._failure: str | None = None
        self._held = Held()

    def salt(self, scope: str) -> tuple[Block, ...]:
        """Give the block that keeps this run's (and scope's) prompts out of everyone else's cache."""
        if self.setting.salt is None:
            return ()
        role = Role.SYSTEM if scope == "shared" else Role.USER
        return (Block(f"salt/{self.setting.salt}/{self._backend.name}/{scope}", SALT_TOKENS, role),)

    async def call(self, planned: PlannedCall, *, cancel_ns: int | None = None) -> Reply:
        """Make one model call now; a failure is recorded, and ends the task.

        cancel_ns: when its answer is no longer wanted, on the clock's axis; the exchange is closed then.
        """
        self._calls += 1
        facts = self._facts(planned)
        dialect = self._backend.dialect
        decoder = dialect.decoder(messages=self._backend.conversations is not None)
        request = dialect.encode(self._request(planned, facts.call_id))
        try:
            timeline = await until(
                cancel_ns, self._backend.exchange(request, decoder.feed), clock=self._clock
            )
        except Interrupted as stop:
            timeline = _with_answer(stop.timeline, decoder, ended=False)
            self._keep(_with_body(timeline, dialect, last=False), facts, cut=True)
            raise asyncio.CancelledError from None  # the engine knows why; its own words follow
        cancelled = timeline.cancelled_ns is not None
        timeline = _with_answer(timeline, decoder, ended=timeline.error is None and not cancelled)
        timeline = _with_body(timeline, dialect)
        record = self._keep(timeline, facts, cut=False, cancelled=cancelled)
        self._held.answered(planned.blocks, timeline, ok=record.error is None and not cancelled)
        if record.error is not None and self._failure is None:
            self._failure = f"{record.error.kind}: {record.error.message}"
        return Reply(
            ok=record.error is None and not cancelled,
            text=timeline.answer.text,
            tool_calls=timeline.answer.tool_calls,
            tokens=_visible(record, planned),
            cancelled=cancelled,
        )

    async def tools(self, batch: tuple[ToolWait, ...]) -> None:
        """Wait for a batch: those side by side start together, the others one after the other."""
        start_ns = self._due_ns
        together = [tool for tool in batch if tool.side_by_side]
        end_ns = max((self._run_tool(tool, start_ns) for tool in together), default=start_ns)
        for tool in batch:
            if not tool.side_by_side:
                end_ns = self._run_tool(tool, end_ns)
        self._due_ns = end_ns
        await self._clock.sleep_until(end_ns)

    async def agent(self, duration_s: float) -> None:
        """Wait as the simulated agent program: workload, not meter."""
        end_ns = self._due_ns + round(duration_s * 1e9)
        self._agent_ns += end_ns - self._due_ns
        origin = self.setting.origin_ns
        self._pieces.append(waiting("agent", self._due_ns - origin, end_ns - origin))
        self._due_ns = end_ns
        await self._clock.sleep_until(end_ns)

    def finish(self, outcome: TaskOutcome, *, phase: Phase, reason: str | None = None) -> TaskRecord:
        """Close the task's books. A task that nothing stopped has failed if one of its calls did."""
        setting, origin = self.setting, self.setting.origin_ns
        if self._backend.conversations is not None:
            self._backend.conversations.leave(setting.task_id)
        if outcome is TaskOutcome.COMPLETED and self._failure is not None:
            outcome, reason = TaskOutcome.FAILED, self._failure
        ended_ns = self._due_ns if outcome is TaskOutcome.COMPLETED else self._clock.now_ns()
        shares = breakdown(
            self._pieces, scheduled_ns=setting.scheduled_ns - origin, ended_ns=ended_ns - origin
        )
        return TaskRecord(
            task_id=setting.task_id,
            k=setting.k,
            backend=self._backend.name,
            workload=setting.workload,
            preset=setting.preset,
            session=setting.session,
            phase=phase,
            seed=setting.seed,
            scheduled_ns=setting.scheduled_ns - origin,
            started_ns=self._started_ns - origin,
            ended_ns=ended_ns - origin,
            human_ns=0,
            outcome=outcome,
            reason=reason,
            turns=self.turns,
            calls=self._calls,
            tools=[tool for tool in self._tools if tool.started_ns < ended_ns - origin],
            breakdown=shares,
            breakdown_unknown=unknown_parts(self._records),
            cost_usd=task_usd(calls_of(self._records), self._backend.prices),
            plan_mismatch=self.plan_mismatch,
            agent_ns=self._agent_ns,
            repeat=setting.repeat,
        )

    def _facts(self, planned: PlannedCall) -> CallFacts:
        setting = self.setting
        return CallFacts(
            call_id=f"{setting.task_id}/{self._calls}",
            task_id=setting.task_id,
            k=setting.k,
            backend=self._backend.name,
            workload=setting.workload,
            phase=self._recorder.phase(),
            turn=self.turns,
            dialect=self._backend.dialect.name,
            transport=self._backend.transport,
            scheduled_ns=self._due_ns,
            tier_asked=self._backend.service_tier,
            input_planned=sum(block.tokens for block in planned.blocks),
            output_asked=planned.output_tokens,
            output_control=None if self._backend.simulated else self._backend.output_control,
            origin_ns=setting.origin_ns,
        )

    def _request(self, planned: PlannedCall, call_id: str) -> Request:
        backend = self._backend
        forced = backend.output_control == "ignore_eos"
        plan = {
            "call_id": call_id,
            "output_tokens": planned.output_tokens,
            "reasoning_tokens": planned.reasoning_tokens,
            "tool_calls": [{"name": name, "tokens": tokens} for name, tokens in planned.tool_calls],
        }
        blocks, follows = planned.blocks, None
        if backend.conversations is not None and backend.conversations.holds(self.setting.task_id):
            blocks, follows = self._held.rest(planned.blocks) or (planned.blocks, None)
        return Request(
            model=backend.model,
            blocks=blocks,
            conversation=self.setting.task_id,
            previous_response_id=follows,
            max_tokens=planned.output_tokens,
            min_tokens=planned.output_tokens if forced else None,
            tools=planned.tools,
            service_tier=backend.service_tier,
            extra_body=backend.extra_body or {},
            x_plan=plan if backend.simulated else None,
            dice=f"{self.setting.seed}/{self.setting.k}/{self._calls}",
        )

    def _keep(
        self, timeline: Timeline, facts: CallFacts, *, cut: bool, cancelled: bool = False
    ) -> CallRecord:
        """Record the call; the next step is due at its last read."""
        record, events = records_of(timeline, facts, cut=cut, cancelled=cancelled, key=self._backend.key)
        self._recorder.call(record, events)
        self._records.append(record)
        self._pieces.append(call_piece(record))
        self._due_ns = timeline.done_ns
        return record

    def _run_tool(self, tool: ToolWait, start_ns: int) -> int:
        end_ns = start_ns + round(tool.duration_s * 1e9)
        origin = self.setting.origin_ns
        self._tools.append(ToolRecord(name=tool.name, started_ns=start_ns - origin, ended_ns=end_ns - origin))
        self._pieces.append(waiting("tool", start_ns - origin, end_ns - origin))
        return end_ns


def _with_answer(timeline: Timeline, decoder: Decoder, *, ended: bool) -> Timeline:
    """Join what the decoder understood; a virtual exchange has brought its own answer."""
    if timeline.answer.high_ns:
        return timeline
    return replace(timeline, answer=decoder.answer(ended=ended))


def _with_body(timeline: Timeline, dialect: Dialect, *, last: bool = True) -> Timeline:
    """Read bodies that are no event stream: those of earlier attempts, and that of the last one."""
    earlier = tuple(_with_body(one, dialect) for one in timeline.earlier)
    if timeline.body is None or not last:
        return replace(timeline, earlier=earlier)
    told = dialect.unstreamed(
        status=timeline.status or 0, content_type=timeline.content_type, body=timeline.body
    )
    return replace(timeline, answer=told, error=told.error, earlier=earlier)


def _visible(record: CallRecord, planned: PlannedCall) -> int:
    """Tokens of the answer that go into the history: all but hidden reasoning."""
    if record.output_tokens is None:
        return planned.output_tokens - planned.reasoning_tokens
    return max(0, record.output_tokens - (record.reasoning_tokens or 0))
