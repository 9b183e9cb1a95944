"""Starts tasks on plan, pairs backends, caps, drains. Every asyncio task belongs to a TaskGroup.

A lane is one backend with its own dealer of sessions; lanes know nothing of each other, so task k
is the same on each and starts there when that lane's users are ready for it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.arrivals import offsets_ns, ramp_offsets_ns, stream_seed
from harness.clock import Clock
from harness.errors import HarnessError
from harness.lanes import LOST_AFTER, Dealer, Lane, fault_line
from harness.records import CallRecord, EventsRecord, Phase, TaskOutcome, TaskRecord
from harness.scenario import ClosedLoad, OpenLoad
from harness.workloads import Planner, Workload
from harness.workloads.step import History, LiveBackend, Session, Step, TaskSetting

AFTER_FAILURE_S = 1.0
"""A closed-loop user's pause after a failed task, so that a refusing backend is not hammered."""


@dataclass(frozen=True, slots=True)
class Job:
    """What the engine runs: one workload with its planners, and how much of it."""

    name: str
    preset: str | None
    workload: Workload
    parameters: Any
    planner: Planner
    warm_up_planner: Planner
    task_limit_s: float
    load: ClosedLoad | OpenLoad
    seed: int
    run_id: str
    salted: bool
    repeat: int = 0


@dataclass(slots=True)
class Kept:
    """Where records go as they end; `began` hears a task's id, backend, workload and phase as it begins."""

    call: Callable[[CallRecord, EventsRecord], None]
    task: Callable[[TaskRecord], None]
    began: Callable[[str, str, str, Phase], None] = lambda *_: None


class Engine:
    """One run of one job on its backends. `run` returns when all is drained and recorded.

    `origin_ns`: where the records' axis begins, if before now. `planned`: measured tasks that have a plan.
    """

    def __init__(
        self,
        job: Job,
        backends: Sequence[LiveBackend],
        *,
        clock: Clock,
        kept: Kept,
        origin_ns: int | None = None,
    ) -> None:
        self.job = job
        self.lanes = [
            Lane(backend, Dealer(job.planner, job.load.tasks), Dealer(job.warm_up_planner))
            for backend in backends
        ]
        self._start_ns = clock.now_ns()
        self.origin_ns = self._start_ns if origin_ns is None else origin_ns
        self.phases = {"warm-up": self._start_ns - self.origin_ns} if job.load.warm_up_s else {}
        self._clock = clock
        self._kept = kept
        self.interrupted = False
        self.planned: set[int] = set()
        self._stopping = asyncio.Event()
        self._aborting = asyncio.Event()
        self._ended = asyncio.Event()
        self._measure_ns = self._start_ns + round(job.load.warm_up_s * 1e9)
        self.phases["measure"] = self._measure_ns - self.origin_ns
        measure_s = job.load.measure_s
        self._end_ns = None if measure_s is None else self._measure_ns + round(measure_s * 1e9)

    def drain(self) -> None:
        """Start nothing more; what is open may end."""
        self._stopping.set()

    def stop(self) -> None:
        """Drain because somebody asks for it; a second call cuts what is still open."""
        if self.interrupted:
            self._aborting.set()
        self.interrupted = True
        self.drain()

    async def run(self) -> None:
        """Run all phases."""
        async with asyncio.TaskGroup() as group:
            crowd = group.create_task(self._crowd())
            asked = group.create_task(self._stopping.wait())
            waited: set[asyncio.Task[Any]] = {crowd, asked}
            if self._end_ns is not None:
                waited.add(group.create_task(self._clock.sleep_until(self._end_ns)))
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not crowd.done():
                await self._drain(group, crowd)
            self._mark("end")
            for task in waited:
                task.cancel()

    def phase(self) -> Phase:
        """Tell the phase of the run now."""
        now = self._clock.now_ns()
        if now < self._measure_ns:
            return Phase.WARM_UP
        if self._stopping.is_set() or (self._end_ns is not None and now >= self._end_ns):
            return Phase.DRAIN
        return Phase.MEASURE

    # --- who runs ------------------------------------------------------------------------------

    async def _drain(self, group: asyncio.TaskGroup, crowd: asyncio.Task[None]) -> None:
        """Let open tasks end for `drain_s` at most; cut the rest."""
        self._mark("drain")
        limit_ns = self._clock.now_ns() + round(self.job.load.drain_s * 1e9)
        waited: set[asyncio.Task[Any]] = {
            crowd,
            group.create_task(self._until_quiet()),
            group.create_task(self._aborting.wait()),
            group.create_task(self._clock.sleep_until(limit_ns)),
        }
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for task in waited:
            task.cancel()
        await asyncio.wait({crowd})

    async def _crowd(self) -> None:
        async with asyncio.TaskGroup() as group:
            for run in self._runners():
                group.create_task(run)

    def _runners(self) -> Iterable[Coroutine[Any, Any, None]]:
        load = self.job.load
        if isinstance(load, OpenLoad):
            return [self._arrivals(lane, load) for lane in self.lanes]
        offsets = ramp_offsets_ns(load.users, load.ramp_s)
        groups = [self.lanes] if load.pairing == "alternate" else [[lane] for lane in self.lanes]
        return [self._user(lanes, offset) for lanes in groups for offset in offsets]

    async def _user(self, lanes: list[Lane], offset_ns: int) -> None:
        """Be one closed-loop user: on one backend, or by turns on all (`alternate`)."""
        await self._clock.sleep_until(self._start_ns + offset_ns)
        while self._open(lanes) and self._clock.now_ns() < self._measure_ns:
            await self._session(lanes, self._draw(lanes, warm=True), warm=True)
        while self._open(lanes):
            session = self._draw(lanes, warm=False)
            if session is None:
                for lane in lanes:
                    lane.tail_from_ns = lane.tail_from_ns or self._clock.now_ns()
                return
            await self._session(lanes, session, warm=False)

    async def _arrivals(self, lane: Lane, load: OpenLoad) -> None:
        """Start sessions at absolute times; what is not started by the end of measure is dropped."""
        warm_up = load.model_copy(update={"tasks": None, "measure_s": load.warm_up_s})
        async with asyncio.TaskGroup() as group:
            if load.warm_up_s:
                for due_ns in self._due_ns(warm_up, "warm-up", self._start_ns):
                    await self._clock.sleep_until(due_ns)
                    session = self._draw([lane], warm=True)
                    group.create_task(self._session([lane], session, warm=True, due_ns=due_ns))
            for due_ns in self._due_ns(load, "measure", self._measure_ns):
                await self._clock.sleep_until(due_ns)
                session = self._draw([lane], warm=False)
                if session is None:
                    return
                if not self._open([lane]) or lane.in_flight >= (load.in_flight_max or np.inf):
                    lane.skipped += session.length
                    continue
                group.create_task(self._session([lane], session, warm=False, due_ns=due_ns))

    def _due_ns(self, load: OpenLoad, row: str, start_ns: int) -> list[int]:
        """Lay the plan's offsets on the clock: the same on every backend, from the seed."""
        dice = np.random.default_rng(stream_seed(self.job.seed, f"{self.job.name}/arrivals/{row}"))
        return [start_ns + int(offset) for offset in offsets_ns(load, dice)]

    # --- sessions and tasks --------------------------------------------------------------------

    def _draw(self, lanes: list[Lane], *, warm: bool) -> Session | None:
        """Deal the next session, the same to each lane; None when all are dealt, or none can be planned."""
        try:
            session, *_ = [(lane.warm_up if warm else lane.dealer).draw() for lane in lanes]
        except Exception as fault:  # noqa: BLE001 - what has ended must be kept: the run drains
            for lane in lanes:
                self._give_up(lane, fault_line(fault))
            return None
        return session

    async def _session(
        self, lanes: list[Lane], session: Session | None, *, warm: bool, due_ns: int | None = None
    ) -> None:
        """Run a session's tasks one after the other, whatever becomes of each."""
        if session is None:
            return
        histories: dict[str, History] = {}
        due: int | None = self._clock.now_ns() if due_ns is None else due_ns
        for k in range(session.first_k, session.first_k + session.length):
            failures = sum(lane.failed_tasks for lane in lanes)
            for lane in self._order(lanes, k):
                history = histories.get(lane.backend.name, ())
                setting = self._setting(lane, k, session, warm=warm, due_ns=due or self._clock.now_ns())
                histories[lane.backend.name] = await self._task(lane, setting, history, warm=warm)
                due = None
            failed = sum(lane.failed_tasks for lane in lanes) > failures
            last = k == session.first_k + session.length - 1
            due = await self._rest(lanes, k, failed=failed, warm=warm, last=last)
            if due is None:
                return

    async def _rest(self, lanes: list[Lane], k: int, *, failed: bool, warm: bool, last: bool) -> int | None:
        """Let think time pass after task k, outside task time, and at least the pause after a failure.

        Returns when the session's next task is due, which is now; None if there is none.
        """
        ended_ns = self._clock.now_ns()
        due_ns = ended_ns + (round(AFTER_FAILURE_S * 1e9) if failed else 0)
        await self._clock.sleep_until(due_ns)
        if last or not self._open(lanes):
            return None
        due_ns = max(due_ns, ended_ns + round(self._planner(warm=warm).task(k).think_s * 1e9))
        until_ns = self._measure_ns if warm else self._end_ns
        if until_ns is not None and due_ns >= until_ns:
            return None
        await self._clock.sleep_until(due_ns)
        return due_ns if self._open(lanes) else None

    def _planner(self, *, warm: bool) -> Planner:
        return self.job.warm_up_planner if warm else self.job.planner

    async def _task(self, lane: Lane, setting: TaskSetting, history: History, *, warm: bool) -> History:
        """Run one task to its end, its limit or the cut, and record it whatever happens."""
        step = Step(setting, lane.backend, clock=self._clock, recorder=Watch(self, lane, warm=warm))
        lane.in_flight += 1
        lane.started += not warm
        self._kept.began(setting.task_id, lane.backend.name, self.job.name, self._task_phase(lane, warm=warm))
        outcome: TaskOutcome = TaskOutcome.CUT
        reason: str | None = "the run ended"
        try:
            plan = self._planner(warm=warm).task(setting.k)
            if not warm:
                self.planned.add(setting.k)
            async with asyncio.timeout(self.job.task_limit_s):
                history = await self.job.workload.run(step, plan, history, self.job.parameters)
            outcome, reason = TaskOutcome.COMPLETED, None
        except TimeoutError:
            outcome, reason = TaskOutcome.TIMEOUT, f"hit the limit of {self.job.task_limit_s:g} s"
        except HarnessError:  # a sentence for a person, such as a full disk: it ends the run
            raise
        except Exception as fault:  # noqa: BLE001 - a fault of ours costs this task, not the others' records
            outcome, reason = TaskOutcome.FAILED, fault_line(fault)
            self._give_up(lane, f"{setting.task_id}: {reason}")
        finally:
            lane.in_flight -= 1
            record = step.finish(outcome, phase=self._task_phase(lane, warm=warm), reason=reason)
            lane.failed_tasks += record.outcome is TaskOutcome.FAILED
            self._kept.task(record)
            self._ended.set()
        return history

    def _setting(self, lane: Lane, k: int, session: Session, *, warm: bool, due_ns: int) -> TaskSetting:
        job = self.job
        repeat = f"r{job.repeat}/" if job.repeat else ""
        return TaskSetting(
            task_id=f"{lane.backend.name}/{job.name}/{repeat}{'w' if warm else ''}{k}",
            k=k,
            session=session.index,
            workload=job.name,
            preset=job.preset,
            seed=job.seed,
            scheduled_ns=due_ns,
            origin_ns=self.origin_ns,
            salt=f"{job.run_id}/{job.repeat}" if job.salted else None,
            repeat=job.repeat,
        )

    def _order(self, lanes: list[Lane], k: int) -> list[Lane]:
        """Who goes first in task k when one user does all backends: by the seed, not by habit."""
        if len(lanes) == 1:
            return lanes
        dice = np.random.default_rng(stream_seed(self.job.seed, f"{self.job.name}/order", k))
        return [lanes[i] for i in dice.permutation(len(lanes))]

    def _task_phase(self, lane: Lane, *, warm: bool) -> Phase:
        if warm:
            return Phase.WARM_UP
        return Phase.MEASURE if lane.tail_from_ns is None else Phase.TAIL

    def _open(self, lanes: list[Lane]) -> bool:
        """Whether these lanes may start another task."""
        if self._stopping.is_set() or any(lane.lost for lane in lanes):
            return False
        return self._end_ns is None or self._clock.now_ns() < self._end_ns

    async def _until_quiet(self) -> None:
        """Wait until no task is open; the second leg of a pair starts at once when the first has ended."""
        while any(lane.in_flight for lane in self.lanes):
            self._ended.clear()
            await self._ended.wait()

    def _mark(self, name: str) -> None:
        self.phases.setdefault(name, self._clock.now_ns() - self.origin_ns)

    def watch_call(self, lane: Lane, call: CallRecord, events: EventsRecord) -> None:
        """Keep a call; a backend whose calls fail hopelessly one after the other is given up."""
        self._kept.call(call, events)
        if lane.hopeless(call) and call.error is not None:
            self._give_up(lane, f"{LOST_AFTER} calls in a row failed, the last: {call.error.message}")

    def _give_up(self, lane: Lane, why: str) -> None:
        """Say that a backend cannot be measured any more; what is open may end."""
        lane.lost = lane.lost or why
        self._stopping.set()


@dataclass(frozen=True, slots=True)
class Watch:
    """A task's way to the engine: which phase it is, and where calls go."""

    engine: Engine
    lane: Lane
    warm: bool

    def phase(self) -> Phase:
        """Tell the phase of a call that is sent now: a warm-up task's calls warm up, whenever they come."""
        if self.warm:
            return Phase.WARM_UP
        return self.engine.phase() if self.lane.tail_from_ns is None else Phase.TAIL

    def call(self, call: CallRecord, events: EventsRecord) -> None:
        """Keep a call that has ended."""
        self.engine.watch_call(self.lane, call, events)
