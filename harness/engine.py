"""Starts tasks on plan, pairs backends, caps, drains. Every asyncio task belongs to a TaskGroup.

A lane is one backend with its own dealer of sessions; lanes know nothing of each other, so task k
is the same on each and starts there when that lane's users are ready for it.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from harness.accounts import Account, LaneAccount
from harness.arrivals import ramp_offsets_ns
from harness.clock import Clock
from harness.errors import HarnessError
from harness.job import Job, Kept, cap_of, plan_ns
from harness.lanes import (
    LOST_AFTER,
    Dealer,
    Lane,
    Seat,
    VirtualUser,
    Watch,
    fault_line,
    in_turn,
    setting_of,
)
from harness.records import CallRecord, EventsRecord, Phase, TaskOutcome
from harness.scenario import OpenLoad
from harness.workloads import Planner
from harness.workloads.step import History, LiveBackend, Session, Step, TaskSetting

AFTER_FAILURE_S = 1.0
"""A closed-loop user's pause after a failed task, so that a refusing backend is not hammered."""


class Engine:
    """One run of one job on its backends. `run` returns when all is drained and recorded.

    `start_ns`: when it starts, if not now. `origin_ns`: where the records' axis begins, if before that.
    `planned`: measured tasks that have a plan.
    """

    def __init__(
        self,
        job: Job,
        backends: Sequence[LiveBackend],
        *,
        clock: Clock,
        kept: Kept,
        origin_ns: int | None = None,
        start_ns: int | None = None,
    ) -> None:
        self.job = job
        self.lanes = [
            Lane(
                backend,
                Dealer(job.planner, job.load.tasks, job.share),
                Dealer(job.warm_up_planner, share=job.share),
            )
            for backend in backends
        ]
        self._start_ns = clock.now_ns() if start_ns is None else start_ns
        self.origin_ns = self._start_ns if origin_ns is None else origin_ns
        self.phases = {"warm-up": self._start_ns - self.origin_ns} if job.load.warm_up_s else {}
        self._clock = clock
        self._kept = kept
        self.interrupted = False
        self.planned: set[int] = set()
        self.opened = asyncio.Event()
        self.hosts = False
        self._stopping = asyncio.Event()
        self._aborting = asyncio.Event()
        self._ended = asyncio.Event()
        self._measure_ns = self._start_ns + round(job.load.warm_up_s * 1e9)
        self.phases["measure"] = self._measure_ns - self.origin_ns
        measure_s = job.load.measure_s
        self._end_ns = None if measure_s is None else self._measure_ns + round(measure_s * 1e9)

    def account(self) -> Account:
        """Close the books: what this engine knows of itself beside its records."""
        return Account(
            phases=self.phases,
            lanes={lane.backend.name: LaneAccount(lane.dropped, lane.lost) for lane in self.lanes},
            planned=sorted(self.planned),
            interrupted=self.interrupted,
        )

    def drain(self) -> None:
        """Start nothing more; what is open may end."""
        self._stopping.set()

    def cut(self) -> None:
        """End all that is open."""
        self._aborting.set()
        self.drain()

    def stop(self) -> None:
        """Drain because somebody asks for it; a second call cuts what is still open."""
        if self.interrupted:
            self.cut()
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
        self.hosts = False
        for task in waited:
            task.cancel()
        await asyncio.wait({crowd})

    async def _crowd(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            for run in self._runners():
                group.create_task(run)
            self.opened.set()

    def host(self, guest: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a guest's coroutine among the users, while `hosts` is true; it ends with the run."""
        return self._group.create_task(guest)

    def _runners(self) -> Iterable[Coroutine[Any, Any, None]]:
        load = self.job.load
        if isinstance(load, OpenLoad):
            return [self._arrivals(lane, load) for lane in self.lanes]
        if self.job.guests:
            return [self._until_done()]
        offsets = ramp_offsets_ns(load.users, load.ramp_s)
        return [self._user(lanes, offset) for lanes in self.tables() for offset in offsets]

    def tables(self) -> list[list[Lane]]:
        """Give the lanes that a user of a closed load does: one, or all by turns (`alternate`)."""
        return [self.lanes] if self.job.load.pairing == "alternate" else [[lane] for lane in self.lanes]

    async def _user(self, lanes: list[Lane], offset_ns: int) -> None:
        """Be one closed-loop user until nothing is left for it."""
        await self._clock.sleep_until(self._start_ns + offset_ns)
        user = VirtualUser(lanes)
        while await self.turn(user):
            pass
        self.leave(user)

    async def _arrivals(self, lane: Lane, load: OpenLoad) -> None:
        """Start sessions at absolute times; what is not started by the end of measure is dropped."""
        warm_up = load.model_copy(update={"tasks": None, "measure_s": load.warm_up_s})
        starts = [(True, self._start_ns + ns) for ns in plan_ns(self.job, warm_up, "warm-up")]
        starts += [(False, self._measure_ns + ns) for ns in plan_ns(self.job, load, "measure")]
        async with asyncio.TaskGroup() as group:
            for warm, due_ns in starts:
                await self._clock.sleep_until(due_ns)
                session = self._draw([lane], warm=warm)
                if session is None:
                    return
                if not warm and not (self._open([lane]) and lane.in_flight < cap_of(self.job)):
                    lane.skipped += session.length
                    continue
                group.create_task(self._arrived(lane, session, warm=warm, due_ns=due_ns))

    def _draw(self, lanes: list[Lane], *, warm: bool) -> Session | None:
        """Deal the next session, the same to each lane; None when all are dealt, or none can be planned."""
        try:
            session, *_ = [(lane.warm_up if warm else lane.dealer).draw() for lane in lanes]
        except Exception as fault:  # noqa: BLE001 - what has ended must be kept: the run drains
            for lane in lanes:
                self._give_up(lane, fault_line(fault))
            return None
        return session

    async def _arrived(self, lane: Lane, session: Session, *, warm: bool, due_ns: int) -> None:
        """Be an open load's user, which goes again after one session."""
        seat = Seat(session, warm, session.first_k, due_ns)
        lane.seats += not warm
        user = VirtualUser([lane], seat=seat, draws=False)
        while await self.turn(user):
            pass
        self.leave(user)

    async def turn(self, user: VirtualUser) -> bool:
        """Let a user do its next task, when its rest is over; tell whether there was one for it."""
        seat = await self._seated(user)
        if seat is None:
            return False
        failures = sum(lane.failed_tasks for lane in user.lanes)
        due: int | None = seat.due_ns
        for lane in in_turn(self.job, user.lanes, seat.k):
            history = seat.histories.get(lane.backend.name, ())
            due_ns = self._clock.now_ns() if due is None else due
            setting = setting_of(self.job, lane, seat, scheduled_ns=due_ns, origin_ns=self.origin_ns)
            seat.histories[lane.backend.name] = await self._task(lane, setting, history, warm=seat.warm)
            due = None
        ended_ns = self._clock.now_ns()
        failed = sum(lane.failed_tasks for lane in user.lanes) > failures
        user.free_ns = ended_ns + (round(AFTER_FAILURE_S * 1e9) if failed else 0)
        seat.k += 1
        if not seat.over and self._open(user.lanes):
            think_s = self._planner(warm=seat.warm).task(seat.k - 1).think_s
            seat.due_ns = max(user.free_ns, ended_ns + round(think_s * 1e9))
        return True

    def leave(self, user: VirtualUser) -> None:
        """End a user's session, whatever of it is left: nobody else goes on with its history."""
        if user.seat is not None and not user.seat.warm:
            for lane in user.lanes:
                lane.seats -= 1
            self._ended.set()
        user.seat = None

    async def _seated(self, user: VirtualUser) -> Seat | None:
        """Let a user rest, outside of task time, and give its place before its next task; None: no task."""
        await self._clock.sleep_until(max(user.free_ns, self._start_ns))
        seat = user.seat
        if seat is not None and self._goes_on(user.lanes, seat):
            came_ns = self._clock.now_ns()
            await self._clock.sleep_until(seat.due_ns)
            if not seat.first:  # an arrival's first task keeps its scheduled time
                seat.due_ns = max(seat.due_ns, came_ns)
            return seat if seat.first or self._open(user.lanes) else None
        self.leave(user)
        return self._sit_down(user) if user.draws else None

    def _goes_on(self, lanes: list[Lane], seat: Seat) -> bool:
        """Tell whether a session's next task is due before its phase ends."""
        until_ns = self._measure_ns if seat.warm else self._end_ns
        due = until_ns is None or seat.due_ns < until_ns
        return seat.first or (due and not seat.over and self._open(lanes))

    def _sit_down(self, user: VirtualUser) -> Seat | None:
        """Deal a user its next session, which starts now; None when it is to go home."""
        if not self._open(user.lanes):
            return None
        now = self._clock.now_ns()
        warm = now < self._measure_ns
        session = self._draw(user.lanes, warm=warm)
        if session is None:
            for lane in user.lanes:
                lane.tail_from_ns = lane.tail_from_ns or now
            return None
        for lane in user.lanes:
            lane.seats += not warm
        user.seat = Seat(session, warm, session.first_k, now)
        return user.seat

    def _planner(self, *, warm: bool) -> Planner:
        return self.job.warm_up_planner if warm else self.job.planner

    async def _task(self, lane: Lane, setting: TaskSetting, history: History, *, warm: bool) -> History:
        """Run one task to its end, its limit or the cut, and record it whatever happens."""
        watch = Watch(run_phase=self.phase, keep=self._watch_call, lane=lane, warm=warm)
        step = Step(setting, lane.backend, clock=self._clock, recorder=watch)
        lane.in_flight += 1
        lane.started += not warm
        self._kept.began(setting.task_id, lane.backend.name, self.job.name, self._task_phase(lane, warm=warm))
        outcome: TaskOutcome = TaskOutcome.CUT
        reason: str | None = None
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
            if outcome is TaskOutcome.CUT:
                reason = "the run ended" if self.phase() is Phase.DRAIN else "its user was stopped"
            record = step.finish(outcome, phase=self._task_phase(lane, warm=warm), reason=reason)
            lane.failed_tasks += record.outcome is TaskOutcome.FAILED
            self._kept.task(record)
            self._ended.set()
        return history

    def _task_phase(self, lane: Lane, *, warm: bool) -> Phase:
        if warm:
            return Phase.WARM_UP
        return Phase.MEASURE if lane.tail_from_ns is None else Phase.TAIL

    def _open(self, lanes: list[Lane]) -> bool:
        """Whether these lanes may start another task."""
        if self._stopping.is_set() or any(lane.lost for lane in lanes):
            return False
        return self._end_ns is None or self._clock.now_ns() < self._end_ns

    async def _until_done(self) -> None:
        """Wait until guests have done all that there was to do."""
        self.hosts = True
        while not all(lane.done for lane in self.lanes):
            self._ended.clear()
            await self._ended.wait()
        self.hosts = False

    async def _until_quiet(self) -> None:
        """Wait until no task is open; the second leg of a pair starts at once when the first has ended."""
        while any(lane.in_flight for lane in self.lanes):
            self._ended.clear()
            await self._ended.wait()

    def _mark(self, name: str) -> None:
        self.phases.setdefault(name, self._clock.now_ns() - self.origin_ns)

    def _watch_call(self, lane: Lane, call: CallRecord, events: EventsRecord) -> None:
        """Keep a call; a backend whose calls fail hopelessly one after the other is given up."""
        self._kept.call(call, events)
        if lane.hopeless(call) and call.error is not None:
            self._give_up(lane, f"{LOST_AFTER} calls in a row failed, the last: {call.error.message}")

    def _give_up(self, lane: Lane, why: str) -> None:
        """Say that a backend cannot be measured any more; what is open may end."""
        lane.lost = lane.lost or why
        self._stopping.set()
