"""One run, from a prepared scenario to DIR, the answer and an exit code: `harness run`."""

import asyncio
import re
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from harness.client.http import raise_file_limit
from harness.clock import MachineClock, wall_time
from harness.connect import connect, identity
from harness.engine import Engine, Job, Kept
from harness.errors import StoppedError
from harness.machine import facts as machine_facts
from harness.measure.facts import BackendFacts, RunFacts
from harness.meter import Meter, Spending
from harness.preparation import Prepared
from harness.prices import prices_of
from harness.records import SCHEMA, CallRecord, EventsRecord, Phase, TaskRecord
from harness.report import finish, read_run, write_facts
from harness.results import FindingName
from harness.scenario import OpenLoad, objectives_of
from harness.sinks.progress import BEAT_S, LiveProgress, limits_line
from harness.sinks.records import RECORD_FILES, RUN_FILE, RecordWriter, write_json
from harness.workloads import WORKLOADS

INTERRUPTED = 130
BEFORE_THE_FIRST = "interrupted before the first call"


@dataclass(slots=True)
class _Run:
    """A run under way: what it has kept, and the engines that ran, one a repeat."""

    prepared: Prepared
    run_id: str
    writer: RecordWriter
    meter: Meter = field(default_factory=Meter)
    engines: list[Engine] = field(default_factory=list)
    clock: MachineClock = field(default_factory=MachineClock)


def run(prepared: Prepared) -> int:
    """Run, write DIR, print the answer; returns the exit code. HarnessError where it cannot start."""
    folder = prepared.options.out or default_folder(prepared.scenario.name)
    try:
        return _run(prepared, folder)
    except KeyboardInterrupt:
        calls = folder / RECORD_FILES[1]
        begun = calls.exists() and calls.stat().st_size
        told = f"interrupted; its records until then stay in {folder}" if begun else BEFORE_THE_FIRST
        raise StoppedError(told) from None


def _run(prepared: Prepared, folder: Path) -> int:
    with RecordWriter(folder) as writer:
        running = _Run(prepared, uuid4().hex[:12], writer)
        write_json(folder, RUN_FILE, describe(running))
        try:
            facts = asyncio.run(_measure(running))
        except ExceptionGroup as several:
            raise _first(several) from None
    phases = [engine.phases for engine in running.engines]
    write_facts(
        folder,
        describe(running) | {"phases": phases, "origin_monotonic_ns": running.engines[0].origin_ns},
        facts,
    )
    code = finish(folder, *read_run(folder), allow_inconclusive=prepared.options.allow_inconclusive)
    return INTERRUPTED if facts.interrupted else code


def _first(group: ExceptionGroup) -> Exception:
    """Take the first fault out of its nested groups: the others follow from it."""
    fault = group.exceptions[0]
    return _first(fault) if isinstance(fault, ExceptionGroup) else fault


def default_folder(name: str) -> Path:
    """Make a DIR of its own, named by UTC time and scenario; runs of the same second are numbered."""
    word = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    first = Path("runs") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{word}"
    for number in count(1):
        folder = first if number == 1 else first.with_name(f"{first.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:
            break  # whoever writes there tells why
        return folder
    return first


def describe(running: _Run) -> dict[str, Any]:
    """Make `run.json`'s first part: everything that is known before the first call."""
    prepared = running.prepared
    return {
        "schema": SCHEMA,
        "run_id": running.run_id,
        "started": datetime.fromtimestamp(wall_time(), UTC).isoformat(),
        "scenario_file": str(prepared.options.scenario),
        "scenario": prepared.scenario.model_dump(mode="json", by_alias=True),
        "seed": prepared.scenario.seed,
        "machine": machine_facts(),
        "certificate": None,
    }


async def _measure(running: _Run) -> RunFacts:
    """Connect, run the engine as often as asked for, and gather what it kept."""
    prepared = running.prepared
    scenario, options = prepared.scenario, prepared.options
    spending = Spending(scenario.spend_limit_usd)
    raise_file_limit()
    tasks = scenario.load.tasks
    totals = dict.fromkeys(scenario.backends, None if tasks is None else tasks * options.repeat)
    async with AsyncExitStack() as stack:
        backends = await connect(prepared, running.clock, stack)
        progress = stack.enter_context(LiveProgress(totals, quiet=options.quiet))
        progress.say(limits_line(scenario))
        kept = _keeper(running, spending, progress)
        _drain_on_interrupt(running, progress)
        for repeat in range(options.repeat):
            engine = Engine(
                _job(running, repeat),
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
    scenario = running.prepared.scenario

    def keep_call(call: CallRecord, events: EventsRecord) -> None:
        running.writer.call(call, events)
        if spending.passes(scenario.backends[call.backend], call):
            progress.say(f"spend limit of USD {spending.limit_usd:g} passed; the run drains")
            running.engines[-1].drain()

    def keep_task(task: TaskRecord) -> None:
        running.writer.task(task)
        if task.phase is not Phase.WARM_UP:
            progress.task_ended(task.backend, task.outcome)

    return Kept(keep_call, keep_task)


def _job(running: _Run, repeat: int) -> Job:
    scenario = running.prepared.scenario
    entry = scenario.workloads[0]
    workload = WORKLOADS[entry.kind]
    planner = workload.planner
    return Job(
        name=entry.name,
        preset=entry.preset,
        workload=workload,
        parameters=entry.parameters,
        planner=planner(entry.parameters, seed=scenario.seed, name=entry.name),
        warm_up_planner=planner(entry.parameters, seed=scenario.seed, name=entry.name, sequence="warm-up"),
        task_limit_s=entry.task_limit_s,
        load=scenario.load,
        seed=scenario.seed,
        run_id=running.run_id,
        salted=scenario.cache_salt == "on",
        repeat=repeat,
    )


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
    scenario, engines = running.prepared.scenario, running.engines
    job = engines[0].job
    planned = sorted(set[int]().union(*(engine.planned for engine in engines)))
    return RunFacts(
        title=scenario.name,
        workload=job.name,
        seed=job.seed,
        backends={name: _backend_facts(running, name) for name in scenario.backends},
        baseline=scenario.compare.baseline if scenario.compare else None,
        objectives=objectives_of(scenario),
        repeats=len(engines),
        salted=job.salted,
        interrupted=any(engine.interrupted for engine in engines),
        measure_s=sum(_lasted_s(engine, "drain") for engine in engines),
        run_s=sum(_lasted_s(engine, "end") for engine in engines),
        cpu_share=running.meter.cpu_share,
        loop_lag_p99_ms=running.meter.lag_p99_ms(),
        asked_per_s=scenario.load.tasks_per_s if isinstance(scenario.load, OpenLoad) else None,
        caveats=[*job.workload.caveats(job.planner, planned), *caveats],
    )


def _lasted_s(engine: Engine, mark: str) -> float:
    """Time from the start of measure to a mark, or to the end if the run never came to it."""
    until = engine.phases.get(mark, engine.phases["end"])
    return max(0.0, (until - engine.phases["measure"]) / 1e9)


def _backend_facts(running: _Run, name: str) -> BackendFacts:
    scenario, options = running.prepared.scenario, running.prepared.options
    backend = scenario.backends[name]
    never_run = (options.repeat - len(running.engines)) * (scenario.load.tasks or 0)
    lanes = [lane for engine in running.engines for lane in engine.lanes if lane.backend.name == name]
    return BackendFacts(
        identity=identity(name, backend),
        prices=prices_of(backend.model, backend.price),
        dropped=sum(lane.dropped for lane in lanes) + never_run,
        lost=next((lane.lost for lane in lanes if lane.lost is not None), None),
    )
