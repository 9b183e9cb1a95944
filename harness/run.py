"""One run, from a prepared scenario to DIR, the answer and an exit code: `harness run`."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np

from harness.accounts import run_facts
from harness.certificate import standing
from harness.client.http import raise_file_limit
from harness.clock import MachineClock
from harness.connect import connect
from harness.engine import Engine
from harness.errors import StoppedError, first_fault
from harness.folder import default_folder, describe
from harness.job import Kept, job_of
from harness.measure.facts import RunFacts
from harness.measure.histogram import histogram
from harness.meter import Meter, Spending
from harness.preparation import Prepared
from harness.records import CallRecord, EventsRecord, Phase, TaskRecord
from harness.report import finish, read_run, write_facts
from harness.results import FindingName, Standing
from harness.screen import Screen
from harness.sinks.progress import BEAT_S, LiveProgress, limits_line
from harness.sinks.records import RECORD_FILES, RUN_FILE, RecordWriter, write_json

if TYPE_CHECKING:
    from harness.sinks.prometheus import LiveMetrics

INTERRUPTED = 130
BEFORE_THE_FIRST = "interrupted before the first call"


@dataclass(slots=True)
class _Run:
    """A run under way: what it has kept, and the engines that ran, one a repeat; `live`: for Prometheus."""

    prepared: Prepared
    run_id: str
    writer: RecordWriter
    standing: Standing
    meter: Meter = field(default_factory=Meter)
    engines: list[Engine] = field(default_factory=list)
    clock: MachineClock = field(default_factory=MachineClock)
    live: "LiveMetrics | None" = None


def run(prepared: Prepared) -> int:
    """Run, write DIR, print the answer; returns the exit code. HarnessError where it cannot start."""
    folder = prepared.options.out or default_folder(prepared.scenario.name)
    try:
        with ExitStack() as stack:
            return _run(prepared, folder, stack)
    except KeyboardInterrupt:
        calls = folder / RECORD_FILES[1]
        begun = calls.exists() and calls.stat().st_size
        told = f"interrupted; its records until then stay in {folder}" if begun else BEFORE_THE_FIRST
        raise StoppedError(told) from None


def _run(prepared: Prepared, folder: Path, stack: ExitStack) -> int:
    """Run and conclude; what `stack` holds ends after the answer has been given."""
    with RecordWriter(folder) as writer:
        running = _Run(prepared, uuid4().hex[:12], writer, standing())
        about = describe(prepared, running.run_id, standing=running.standing)
        running.live = _publish(running, stack)
        write_json(folder, RUN_FILE, about)
        try:
            facts = asyncio.run(_measure(running))
        except ExceptionGroup as several:
            raise first_fault(several) from None
    phases = [engine.phases for engine in running.engines]
    write_facts(
        folder,
        about | {"phases": phases, "origin_monotonic_ns": running.engines[0].origin_ns},
        facts,
    )
    code = finish(folder, *read_run(folder), allow_inconclusive=prepared.options.allow_inconclusive)
    return INTERRUPTED if facts.interrupted else code


def _publish(running: _Run, stack: ExitStack) -> "LiveMetrics | None":
    """Serve live numbers where the command line asks for them."""
    port, scenario = running.prepared.options.prometheus_port, running.prepared.scenario
    if port is None:
        return None
    from harness.sinks.prometheus import published  # 0.1 s of imports that other runs do without

    tell = Screen(stderr=True).tell
    return stack.enter_context(published(scenario, run=running.run_id, port=port, tell=tell))


async def _measure(running: _Run) -> RunFacts:
    """Connect, run the engine as often as asked for, and gather what it kept."""
    prepared = running.prepared
    scenario, options = prepared.scenario, prepared.options
    spending = Spending(scenario.spend_limit_usd)
    raise_file_limit()
    tasks = scenario.load.tasks
    totals = dict.fromkeys(scenario.backends, None if tasks is None else tasks * options.repeat)
    async with AsyncExitStack() as stack:
        urls = prepared.simulators.urls() if prepared.simulators is not None else ()
        backends = await connect(scenario, prepared.keys, urls, clock=running.clock, stack=stack)
        progress = stack.enter_context(LiveProgress(totals, quiet=options.quiet))
        progress.say(limits_line(scenario))
        kept = _keeper(running, spending, progress)
        _drain_on_interrupt(running, progress)
        for repeat in range(options.repeat):
            engine = Engine(
                job_of(scenario, run_id=running.run_id, repeat=repeat),
                backends,
                clock=running.clock,
                kept=kept,
                origin_ns=running.engines[0].origin_ns if running.engines else None,
            )
            running.engines.append(engine)
            async with asyncio.TaskGroup() as group:
                pulse = group.create_task(running.meter.pulse(running.clock))
                beat = group.create_task(_beat(engine, progress))
                await engine.run()
                pulse.cancel()
                beat.cancel()
            if engine.interrupted or spending.stopped or any(lane.lost for lane in engine.lanes):
                break
    return _facts(running, spending.findings())


async def _beat(engine: Engine, progress: LiveProgress) -> None:
    """Show that the run lives, also while no task ends."""
    while True:
        await asyncio.sleep(BEAT_S)
        open_tasks = {lane.backend.name: lane.in_flight for lane in engine.lanes}
        progress.beat(open_tasks, phase=str(engine.phase()))


def _keeper(running: _Run, spending: Spending, progress: LiveProgress) -> Kept:
    """Say where records go: to disk first, then to the budget and to the eye."""
    scenario, live = running.prepared.scenario, running.live

    def keep_call(call: CallRecord, events: EventsRecord) -> None:
        running.writer.call(call, events)
        if live is not None:
            live.call(call, histogram(np.asarray(events.gaps_us[1:], dtype=np.int64)))
        if spending.passes(scenario.backends[call.backend], call):
            progress.say(f"spend limit of USD {spending.limit_usd:g} passed; the run drains")
            running.engines[-1].drain()

    def keep_task(task: TaskRecord) -> None:
        running.writer.task(task)
        if live is not None:
            live.task(task)
        if task.phase is not Phase.WARM_UP:
            progress.task_ended(task.backend, task.outcome)

    return Kept(keep_call, keep_task) if live is None else Kept(keep_call, keep_task, live.began)


def _drain_on_interrupt(running: _Run, progress: LiveProgress) -> None:
    """Make Ctrl-C drain once and cut twice; records are on disk either way."""

    def interrupt() -> None:
        engine = running.engines[-1]
        again = engine.interrupted
        progress.say("stopping now" if again else "draining: open tasks may end; Ctrl-C again cuts them")
        engine.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)


def _facts(running: _Run, caveats: Sequence[tuple[FindingName, str]]) -> RunFacts:
    prepared = running.prepared
    never_run = prepared.options.repeat - len(running.engines)
    return run_facts(
        prepared.scenario,
        [engine.account() for engine in running.engines],
        replace(running.meter.machinery(), standing=running.standing),
        never_run=never_run * (prepared.scenario.load.tasks or 0),
        caveats=caveats,
    )
