"""The engine as the child of a Locust process: `python -m harness.worker`, messages on stdin and stdout.

The same program as `harness run`, on a share of the plan, with users that come from outside. Locust's
patched Python is never in this process, and this one's loop never in Locust's.
"""

import asyncio
import fcntl
import os
import socket
import sys
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from harness.client.http import raise_file_limit
from harness.clock import MachineClock, wall_time
from harness.connect import connect
from harness.engine import Engine
from harness.errors import HarnessError, UsageError, first_fault
from harness.job import Job, Kept, Share, job_of
from harness.lanes import VirtualUser
from harness.link import (
    Began,
    Begin,
    Call,
    Done,
    Drain,
    Drained,
    Finished,
    GaveUp,
    Go,
    Leave,
    Lines,
    Message,
    Ready,
    Refused,
    Start,
    Stop,
    Task,
    packed,
    to_line,
)
from harness.measure.histogram import histogram
from harness.meter import Meter
from harness.preparation import Options, read_keys, read_scenario
from harness.records import CallRecord, EventsRecord, Phase, TaskRecord
from harness.sinks.records import EventsWriter, told
from harness.workloads.step import LiveBackend

F_SETPIPE_SZ = 1031
PIPE_BYTES = 1 << 20
"""What the pipe holds while Locust's process is busy; Linux gives a user at most this much unasked."""

READ_BYTES = 1 << 16

ORPHANED = 4
"""Exit code where the Locust process has died."""

_USER: ContextVar[int | None] = ContextVar("user", default=None)


class _Worker:
    """One run's share, from Go to Drained."""

    def __init__(self, tell: "asyncio.WriteTransport", events: EventsWriter) -> None:
        self._pipe = tell
        self._events = events
        self._clock = MachineClock()
        self._meter = Meter()
        self._users: dict[int, VirtualUser] = {}
        self._turns: dict[int, asyncio.Task[None]] = {}
        self._gave_up: set[str] = set()
        self._tasks = self._calls = 0
        self.asked = asyncio.Event()
        self.told = False
        self.engine: Engine

    def tell(self, message: Message) -> None:
        self._pipe.write(to_line(message))

    def prepare(self, go: Go, job: Job, backends: list[LiveBackend], *, here: bool) -> None:
        """Make the engine; its axis begins where all engines' axes do."""
        start_ns = go.monotonic_ns
        if not here:
            start_ns = self._clock.now_ns() + round((go.wall_s - wall_time()) * 1e9)
        kept = Kept(self._keep_call, self._keep_task, self._began)
        self.engine = Engine(
            job, backends, clock=self._clock, kept=kept, start_ns=start_ns, origin_ns=start_ns
        )

    async def run(self) -> None:
        """Run the engine until it has drained; its users come by `hear`."""
        async with asyncio.TaskGroup() as group:
            pulse = group.create_task(self._meter.pulse(self._clock))
            await self.engine.run()
            pulse.cancel()
        self.tell(Finished())

    def hear(self, message: Message) -> None:
        """Do what the Locust process asks for."""
        match message:
            case Start(user=user) if not self.engine.hosts:
                self.tell(Done(user, more=False))
            case Start(user=user, table=table):
                self._start(user, table)
            case Stop(user=user) if user in self._turns:
                self._turns[user].cancel()
            case Leave(user=user) if user in self._users:
                self.engine.leave(self._users.pop(user))
            case Drain(cut=cut):
                self.asked.set()
                (self.engine.cut if cut else self.engine.drain)()
            case Stop() | Leave():  # it is over already
                pass
            case _:
                raise ValueError(f"not for an engine that runs: {message!r}")

    def account(self) -> Drained:
        """Tell all that the owner of the run must know of this share."""
        return Drained(
            tasks=self._tasks,
            calls=self._calls,
            account=asdict(self.engine.account()),
            cpu_share=self._meter.cpu_share,
            lag_p99_ms=self._meter.lag_p99_ms(),
        )

    def _start(self, number: int, table: int) -> None:
        user = self._users.setdefault(number, VirtualUser(self.engine.tables()[table]))
        turn = self.engine.host(self._turn(number, user))
        self._turns[number] = turn

    async def _turn(self, number: int, user: VirtualUser) -> None:
        """Do one task for a user of Locust's, and say that it is over, however that came."""
        _USER.set(number)
        more = False
        try:
            more = await self.engine.turn(user)
        finally:
            self._turns.pop(number, None)
            self.tell(Done(number, more))

    def _began(self, task_id: str, backend: str, workload: str, phase: Phase) -> None:
        self.tell(Began(task_id, backend, workload, str(phase), _USER.get()))

    def _keep_call(self, call: CallRecord, events: EventsRecord) -> None:
        self._events.write(events)
        self._calls += 1
        gaps = histogram(np.asarray(events.gaps_us[1:], dtype=np.int64))
        self.tell(Call(told(call), packed(gaps)))

    def _keep_task(self, task: TaskRecord) -> None:
        self._tasks += 1
        self.tell(Task(asdict(task)))
        for lane in self.engine.lanes:
            if lane.lost is not None and lane.backend.name not in self._gave_up:
                self._gave_up.add(lane.backend.name)
                self.tell(GaveUp(lane.backend.name, lane.lost))


class _Mail:
    """Messages from the Locust process; None when it is gone."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader, self._lines, self._waiting = reader, Lines(), list[Message]()

    async def next(self) -> Message | None:
        while not self._waiting:
            data = await self._reader.read(READ_BYTES)
            if not data:
                return None
            self._waiting = self._lines.feed(data)
        return self._waiting.pop(0)


async def _serve(read_fd: int, write_fd: int) -> None:
    """Connect, wait for Go, run, account. Ends at once when the Locust process is gone."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_fd, "rb"))
    pipe, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(write_fd, "wb"))
    mail = _Mail(reader)
    begin = await mail.next()
    if not isinstance(begin, Begin):
        return
    try:
        await _one_run(begin, mail, pipe)
    except* HarnessError as several:
        problem = first_fault(several)
        pipe.write(to_line(Refused(str(problem), getattr(problem, "exit_code", 4))))
        await mail.next()  # the Locust process reads to the end, then closes
    pipe.close()


async def _one_run(begin: Begin, mail: _Mail, pipe: asyncio.WriteTransport) -> None:
    """Run one share of the plan and stay until the account is told."""
    options = Options(scenario=Path(begin.scenario), **begin.overrides)
    scenario = read_scenario(options, begin.text)
    keys = read_keys(scenario)
    here = _sees(Path(begin.folder), begin.run_id)
    if not here and begin.urls:
        raise UsageError(
            "simulated backends are on the machine that starts them, and this worker is on another:"
            " give the scenario urls that every worker can reach"
        )
    name = f"events.{begin.index}.jsonl"
    folder = Path(begin.folder) if here else Path(begin.own_folder or f"runs/{begin.run_id}")
    share = Share(begin.index, begin.count)
    load = scenario.load.model_copy(update={"drain_s": begin.drain_s})
    scenario = scenario.model_copy(update={"load": load})
    job = job_of(scenario, run_id=begin.run_id, share=share, guests=True)
    raise_file_limit()
    async with AsyncExitStack() as stack:
        events = stack.enter_context(EventsWriter(folder, name))
        worker = _Worker(pipe, events)
        backends = await connect(scenario, keys, begin.urls, clock=MachineClock(), stack=stack, share=share)
        worker.tell(Ready(here, str((folder / name).absolute()), os.getpid(), socket.gethostname()))
        go = await mail.next()
        if not isinstance(go, Go):
            return
        worker.prepare(go, job, backends, here=here)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(worker.run())
            group.create_task(_listen(worker, mail))
            await running
            await worker.asked.wait()
            worker.told = True
            worker.tell(worker.account())


async def _listen(worker: _Worker, mail: _Mail) -> None:
    """Hand messages on until the Locust process is gone; without it nothing more is sent or written."""
    await worker.engine.opened.wait()
    while (message := await mail.next()) is not None:
        worker.hear(message)
    if not worker.told:
        os._exit(ORPHANED)


def _sees(folder: Path, run_id: str) -> bool:
    """Tell whether the owner's DIR is on this machine."""
    try:
        about: Any = orjson.loads((folder / "run.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(about, dict) and about.get("run_id") == run_id


def main() -> None:
    """Serve one run; what anything else prints goes to standard error."""
    read_fd, write_fd = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    with suppress(OSError):  # a pipe of the usual size serves as well
        fcntl.fcntl(write_fd, F_SETPIPE_SZ, PIPE_BYTES)
    asyncio.run(_serve(read_fd, write_fd))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
