"""One run, from a prepared scenario to DIR, the answer and an exit code: `harness run`."""

import asyncio
import os
import re
import signal
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import numpy as np
from pydantic import TypeAdapter

from harness.client.http import Endpoint, HttpExchange, TimeLimits, raise_file_limit
from harness.clock import MachineClock, cpu_ns, wall_time
from harness.engine import Engine, Job, Kept
from harness.errors import UnreachableError
from harness.machine import facts as machine_facts
from harness.measure.charge import call_usd
from harness.measure.conclude import BackendFacts, Records, RunFacts, conclude
from harness.measure.verdict import EXIT_CODES
from harness.preparation import Prepared
from harness.prices import prices_of
from harness.records import SCHEMA, CallRecord, EventsRecord, Phase, TaskRecord
from harness.results import FindingName
from harness.scenario import Backend, OpenLoad
from harness.sinks.records import RecordWriter, write_json
from harness.sinks.terminal import LiveProgress, limits_line, print_answer
from harness.wire import DIALECTS
from harness.workloads import WORKLOADS
from harness.workloads.step import LiveBackend

INTERRUPTED = 130
ITER_ANY = "HARNESS_ITER_ANY"
"""Environment variable: 1 forces the body reader that uses aiohttp's public interface only."""
PULSE_NS = 20_000_000
"""How often the loop's own lag is sampled."""
CONNECT_S_MAX = 30.0


@dataclass(slots=True)
class Spending:
    """Money spent so far, as far as servers told it; over the limit the run drains."""

    limit_usd: float | None
    usd: float = 0.0
    stopped: bool = False

    def passes(self, backend: Backend, call: CallRecord) -> bool:
        """Add a call; tell whether it is the one that passes the limit."""
        if backend.price is not None:
            self.usd += call_usd(call, prices_of(backend.model, backend.price)) or 0.0
        before, self.stopped = self.stopped, self.limit_usd is not None and self.usd > self.limit_usd
        return self.stopped and not before

    def findings(self) -> list[tuple[FindingName, str]]:
        """Say so if the limit ended the run."""
        if not self.stopped:
            return []
        detail = (
            f"the spend limit of USD {self.limit_usd:g} was passed at USD {self.usd:.2g}: the run was ended"
        )
        return [(FindingName.SPEND_LIMIT, detail)]


@dataclass(slots=True)
class Meter:
    """The engine's own condition while it runs."""

    lags_ms: list[float] = field(default_factory=list)
    cpu_share: float = 0.0

    async def pulse(self, clock: MachineClock) -> None:
        """Wake at absolute times and note how late: what any reading by this loop may be late."""
        began, cpu, due = clock.now_ns(), cpu_ns(), clock.now_ns()
        try:
            while True:
                due += PULSE_NS
                await clock.sleep_until(due)
                self.lags_ms.append((clock.now_ns() - due) / 1e6)
                due = max(due, clock.now_ns() - PULSE_NS)
        finally:
            self.cpu_share = (cpu_ns() - cpu) / max(1, clock.now_ns() - began)

    def lag_p99_ms(self) -> float | None:
        """99th percentile of the lag."""
        return float(np.quantile(self.lags_ms, 0.99)) if self.lags_ms else None


def run(prepared: Prepared) -> int:
    """Run, write DIR, print the answer; returns the exit code. HarnessError where it cannot start."""
    scenario, options = prepared.scenario, prepared.options
    run_id = uuid4().hex[:12]
    folder = options.out or default_folder(scenario.name)
    with RecordWriter(folder) as writer:
        about = describe(prepared, run_id)
        write_json(folder, "run.json", about)
        try:
            records, facts, phases = asyncio.run(_measure(prepared, run_id, writer))
        except ExceptionGroup as several:
            raise _first(several) from None
    about |= {"phases": phases, "facts": TypeAdapter(RunFacts).dump_python(facts, mode="json")}
    write_json(folder, "run.json", about)
    summary, verdict = conclude(records, facts)
    write_json(folder, "summary.json", summary)
    write_json(folder, "verdict.json", verdict)
    print_answer(summary, verdict, title=scenario.name, folder=str(folder))
    return INTERRUPTED if facts.interrupted else EXIT_CODES[verdict.verdict]


def _first(group: ExceptionGroup) -> Exception:
    """Take the first fault out of its nested groups: the others follow from it."""
    fault = group.exceptions[0]
    return _first(fault) if isinstance(fault, ExceptionGroup) else fault


def default_folder(name: str) -> Path:
    """Name DIR by UTC time and scenario."""
    word = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return Path("runs") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{word}"


def describe(prepared: Prepared, run_id: str) -> dict[str, Any]:
    """Make `run.json`'s first part: everything that is known before the first call."""
    return {
        "schema": SCHEMA,
        "run_id": run_id,
        "started": datetime.fromtimestamp(wall_time(), UTC).isoformat(),
        "scenario_file": str(prepared.options.scenario),
        "scenario": prepared.scenario.model_dump(mode="json", by_alias=True),
        "seed": prepared.scenario.seed,
        "machine": machine_facts(),
        "certificate": None,
    }


async def _measure(
    prepared: Prepared, run_id: str, writer: RecordWriter
) -> tuple[Records, RunFacts, dict[str, int]]:
    """Connect, run the engine with its meter, and gather what it kept."""
    scenario, clock, records, meter = prepared.scenario, MachineClock(), Records(), Meter()
    spending = Spending(scenario.spend_limit_usd)
    raise_file_limit()
    job = _job(prepared, run_id)
    totals = dict.fromkeys(scenario.backends, scenario.load.tasks)
    async with AsyncExitStack() as stack:
        backends = await _connect(prepared, clock, stack)
        progress = stack.enter_context(LiveProgress(totals, quiet=prepared.options.quiet))
        progress.say(limits_line(scenario))

        def keep_call(call: CallRecord, events: EventsRecord) -> None:
            writer.call(call, events)
            records.calls.append(call)
            records.gaps_us[call.call_id] = np.asarray(events.gaps_us, dtype=np.int64)
            if spending.passes(scenario.backends[call.backend], call):
                progress.say(f"spend limit of USD {spending.limit_usd:g} passed; the run drains")
                engine.drain()

        def keep_task(task: TaskRecord) -> None:
            writer.task(task)
            records.tasks.append(task)
            if task.phase is not Phase.WARM_UP:
                progress.task_ended(task.backend, task.outcome)

        engine = Engine(job, backends, clock=clock, kept=Kept(keep_call, keep_task))
        _drain_on_interrupt(engine, progress)
        async with asyncio.TaskGroup() as group:
            pulse = group.create_task(meter.pulse(clock))
            await engine.run()
            pulse.cancel()
    facts = _facts(prepared, engine, meter)
    facts = replace(facts, caveats=[*facts.caveats, *spending.findings()])
    return records, facts, engine.phases | {"origin_monotonic": engine.origin_ns}


def _job(prepared: Prepared, run_id: str) -> Job:
    scenario = prepared.scenario
    entry = scenario.workloads[0]
    workload = WORKLOADS[entry.kind]
    return Job(
        name=entry.name,
        preset=entry.preset,
        workload=workload,
        parameters=entry.parameters,
        planner=workload.planner(entry.parameters, seed=scenario.seed, name=entry.name),
        warm_up_planner=workload.planner(
            entry.parameters, seed=scenario.seed, name=entry.name, sequence="warm-up"
        ),
        task_limit_s=entry.task_limit_s,
        load=scenario.load,
        seed=scenario.seed,
        run_id=run_id,
        salted=scenario.cache_salt == "on",
    )


async def _connect(prepared: Prepared, clock: MachineClock, stack: AsyncExitStack) -> list[LiveBackend]:
    """Open an exchange for each backend; a backend that cannot be reached ends the run here."""
    simulated = iter(prepared.simulators.urls() if prepared.simulators is not None else ())
    live = []
    for name, backend in prepared.scenario.backends.items():
        url = backend.url or next(simulated)
        if backend.url is not None:
            await _reach(name, url, backend.limits.connect_s)
        dialect = DIALECTS[backend.dialect]
        headers = {"Authorization": f"Bearer {prepared.keys[name]}"} if name in prepared.keys else {}
        exchange = HttpExchange(
            Endpoint(
                url=url, headers=headers, transport=backend.transport, stream_types=dialect.stream_types
            ),
            limits=TimeLimits(**backend.limits.model_dump()),
            clock=clock,
            ssl_context=ssl.create_default_context() if url.startswith("https:") else None,
            sink=os.environ.get(ITER_ANY) != "1",
        )
        live.append(
            LiveBackend(
                name=name,
                model=backend.model,
                dialect=dialect,
                exchange=await stack.enter_async_context(exchange),
                transport=backend.transport,
                service_tier=backend.service_tier,
                output_control="x_plan" if backend.simulate else backend.output_control,
                extra_body=backend.extra_body,
                key=prepared.keys.get(name),
                prices=prices_of(backend.model, backend.price),
            )
        )
    return live


async def _reach(name: str, url: str, connect_s: float) -> None:
    """Open and close one connection: a wrong address is told before anything is measured."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(min(connect_s, CONNECT_S_MAX)):
            _, writer = await asyncio.open_connection(parts.hostname, port)
            writer.close()
    except TimeoutError:
        problem = f"no answer within {min(connect_s, CONNECT_S_MAX):g} s"
    except OSError as error:
        problem = _words(error)
    else:
        return
    raise UnreachableError(
        f"backends.{name}.url: cannot reach {parts.hostname}:{port}: {problem};"
        " is the server up, and the url right?"
    )


def _words(error: OSError) -> str:
    """Word why a connection failed; asyncio's own texts hold addresses, and of several they are a list."""
    if error.errno is None:
        return "none of its addresses takes a connection"
    return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)


def _drain_on_interrupt(engine: Engine, progress: LiveProgress) -> None:
    """Make Ctrl-C drain once and cut twice; records are on disk either way."""

    def interrupt() -> None:
        again = engine.interrupted
        progress.say("stopping now" if again else "draining: open tasks may end; Ctrl-C again cuts them")
        engine.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)


def _facts(prepared: Prepared, engine: Engine, meter: Meter) -> RunFacts:
    scenario, job = prepared.scenario, engine.job
    ended_ns = engine.phases.get("drain", engine.phases["end"])
    tasks = max(lane.dealer.dealt for lane in engine.lanes)
    return RunFacts(
        workload=job.name,
        backends={
            lane.backend.name: BackendFacts(
                simulated=lane.backend.simulated,
                tier_asked=lane.backend.service_tier,
                dropped=lane.dropped,
                lost=lane.lost,
            )
            for lane in engine.lanes
        },
        salted=job.salted,
        interrupted=engine.interrupted,
        measure_s=max(0.0, (ended_ns - engine.phases["measure"]) / 1e9),
        cpu_share=meter.cpu_share,
        loop_lag_p99_ms=meter.lag_p99_ms(),
        asked_per_s=scenario.load.tasks_per_s if isinstance(scenario.load, OpenLoad) else None,
        caveats=job.workload.caveats(job.planner, range(tasks)),
    )
