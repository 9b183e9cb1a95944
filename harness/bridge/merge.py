"""One run under Locust, as its owner has it: opens DIR, deals the plan, merges what workers tell, judges."""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import gevent
import orjson
from gevent.event import Event

from harness.accounts import run_facts
from harness.bridge.ledger import Worker, account_of_all, machinery_of_all
from harness.certificate import standing
from harness.clock import monotonic_ns, wall_time
from harness.errors import HarnessError, RefusedError, UsageError
from harness.folder import describe
from harness.link import (
    Began,
    Begin,
    Call,
    Drain,
    GaveUp,
    Go,
    Gone,
    Message,
    Refused,
    Task,
    message_of,
    plain,
    unpacked,
)
from harness.measure.verdict import exit_code
from harness.meter import Spending
from harness.preparation import Prepared
from harness.records import Phase
from harness.results import FindingName, Standing, Verdict
from harness.scenario_text import read_text
from harness.sinks.prometheus import LiveMetrics, Serving, publish
from harness.sinks.records import RUN_FILE, RecordWriter, call_of, task_of, write_json

log = logging.getLogger(__name__)

READY_S = 60.0
"""How long engines may take to connect."""

AFTER_DRAIN_S = 10.0
"""How long after the drain a worker may take to settle."""

LEAD_NS = 20_000_000
"""Go names a time a little ahead, so that every engine is there when it comes."""

INTERRUPTED, INVALID = 130, 4

Send = Callable[[str, dict[str, Any]], None]
"""(worker's node, message as plain values): brings it to that worker."""


@dataclass(slots=True)
class Run:
    """One run, from DIR's first file to its verdict. `finished` is called when all has come to its end."""

    prepared: Prepared
    writer: RecordWriter
    send: Send
    finished: Callable[[str], None]
    drain_s: float
    lost_allowed: bool = False
    run_id: str = field(default_factory=lambda: uuid4().hex[:12])
    workers: dict[str, Worker] = field(default_factory=dict)
    interrupted: bool = False
    ending: bool = False
    users: list[dict[str, float]] = field(default_factory=list)
    refused: Refused | None = None
    failed: HarnessError | None = None
    origin_ns: int = 0
    _changed: Event = field(default_factory=Event)
    _live: LiveMetrics | None = None
    _serving: Serving | None = None
    _about: dict[str, Any] = field(init=False)
    _standing: Standing = field(init=False)
    _spending: Spending = field(init=False)

    @property
    def folder(self) -> Path:
        """DIR."""
        return self.writer.folder

    def begin(self, nodes: Iterable[str]) -> None:
        """Open DIR, let every worker connect, and start; raises HarnessError where one cannot."""
        self._spending = Spending(self.prepared.scenario.spend_limit_usd)
        self._publish()
        self._standing = standing()
        self._about = describe(self.prepared, self.run_id, standing=self._standing)
        write_json(self.folder, RUN_FILE, self._about)
        self.workers = {node: Worker(index, node) for index, node in enumerate(nodes)}
        urls = self.prepared.simulators.urls() if self.prepared.simulators else []
        for worker in self.workers.values():
            self._say(worker, self._begin(worker, urls))
        if not self._wait(lambda: all(worker.ready for worker in self.workers.values()), READY_S):
            if self.refused:
                raise RefusedError(self.refused.sentence, self.refused.exit_code)
            late = ", ".join(worker.name for worker in self.workers.values() if not worker.ready)
            raise UsageError(f"not ready after {READY_S:g} s: {late}")
        self.origin_ns = monotonic_ns() + LEAD_NS
        for worker in self.workers.values():
            self._say(worker, Go(self.origin_ns, wall_time() + LEAD_NS / 1e9))
        log.info(
            "measuring into %s with %d worker%s",
            self.folder,
            len(self.workers),
            "s" * (len(self.workers) > 1),
        )

    def abandon(self) -> None:
        """Leave nothing of a run that did not come to its start."""
        if not self.origin_ns:
            self.writer.close()
            self.writer.take_back()
            self.take_down(wait=False)

    def take_down(self, *, wait: bool) -> None:
        """End the page of live numbers; wait: not before its last ones have been fetched."""
        serving, self._serving = self._serving, None
        if serving:
            if wait:
                serving.last_scrape(log.info)
            serving.close()

    def hear(self, node: str, values: dict[str, Any]) -> None:
        """Take what a worker tells: to disk first, then into the books."""
        worker = self.workers.get(node)
        if worker is None:
            return
        message = message_of(values)
        match message:
            case Call() | Task() | Began():
                self._keep(worker, message)
            case Refused() if not worker.ready:
                self.refused = message
            case Refused(sentence=sentence):
                self.lose(worker, sentence)
            case Gone():
                self.lose(worker, "its engine ended")
            case GaveUp(backend=backend, why=why):
                self._end(f"{backend} was given up: {why}")
        worker.hear(message)
        self._look()

    def fail(self, problem: HarnessError) -> None:
        """End what is open, and the run: its records cannot be written any more."""
        if self.failed is None:
            self.failed = problem
            log.error("%s", problem)
            self.cut()
            self._end("its records cannot be written")

    def lose(self, worker: Worker, why: str) -> None:
        """Enter that a worker is gone; what it told stays."""
        if worker.lost is None and not worker.settled:
            began = bool(self.origin_ns)
            worker.lost, worker.lost_s = why, (monotonic_ns() - self.origin_ns) / 1e9 if began else None
            log.warning("%s is lost: %s", worker.name, why)
            if self._live:
                for task_id in worker.open:
                    self._live.lost(task_id)
            self._look()

    def watch_users(self, *, wanted: int, have: int) -> None:
        """Note each change of how many users were wanted and there: a shortage can be read to the second."""
        now = {"wanted": wanted, "have": have}
        if not self.users or {key: self.users[-1][key] for key in now} != now:
            self.users.append({"from_s": round((monotonic_ns() - self.origin_ns) / 1e9, 1), **now})
        if have < wanted and any(worker.lost for worker in self.workers.values()):
            log.warning("%d of %d users are there", have, wanted)

    def drain(self) -> None:
        """Let every worker come to its end; those that do not are lost."""
        self.ending = True
        alive = [worker for worker in self.workers.values() if not worker.lost]
        still = sum(len(worker.open) for worker in alive)
        log.info("draining: %d open tasks may end within %g s", still, self.drain_s)
        for worker in alive:
            self._say(worker, Drain())
        limit_s = self.drain_s + AFTER_DRAIN_S
        self._wait(lambda: all(worker.settled or worker.lost for worker in alive), limit_s)
        for worker in alive:
            if not worker.settled:
                self.lose(worker, f"it did not settle within {limit_s:g} s of being asked to")
            elif missed := worker.missed():
                worker.settled = False
                self.lose(worker, missed)

    def cut(self) -> None:
        """End all that is open, in a drain that is under way."""
        for worker in self.workers.values():
            if not worker.settled:
                self._say(worker, Drain(cut=True))

    def conclude(self) -> int:
        """Write the facts, have the answer made from DIR alone, and give the exit code by its verdict."""
        if self.failed is not None:
            return INVALID
        workers = list(self.workers.values())
        scenario, lasted_ns = self.prepared.scenario, monotonic_ns() - self.origin_ns
        self.writer.close()
        self._join_events()
        account = account_of_all(workers, scenario, lasted_ns=lasted_ns, interrupted=self.interrupted)
        machinery = machinery_of_all(
            workers, scenario, standing=self._standing, lost_allowed=self.lost_allowed
        )
        caveats = [*self._spending.findings(), *self._elsewhere()]
        from harness.report import write_facts  # heavy, and not before the end

        about = self._about | {
            "phases": [account.phases],
            "origin_monotonic_ns": self.origin_ns,
            "users": self.users,
            "workers": [worker.written() for worker in workers],
        }
        write_facts(self.folder, about, run_facts(scenario, [account], machinery, caveats=caveats))
        return INTERRUPTED if self._report() != 0 or self.interrupted else self._code()

    def _publish(self) -> None:
        """Serve live numbers where they are asked for."""
        port, scenario = self.prepared.options.prometheus_port, self.prepared.scenario
        if port is not None:
            self._serving = publish(scenario, run=self.run_id, port=port, tell=log.info)
            self._live = self._serving.metrics

    def _report(self) -> int:
        """Make the answer in a process of its own: a web interface goes on, and heartbeats do."""
        width = shutil.get_terminal_size((110, 24)).columns
        command = [sys.executable, "-m", "harness", "report", str(self.folder)]
        return subprocess.run(command, check=False, env=os.environ | {"COLUMNS": str(width)}).returncode

    def _code(self) -> int:
        told = orjson.loads((self.folder / "verdict.json").read_bytes())["verdict"]
        return exit_code(Verdict(told), allow_inconclusive=self.prepared.options.allow_inconclusive)

    def _begin(self, worker: Worker, urls: list[str]) -> Begin:
        options = self.prepared.options
        return Begin(
            scenario=str(options.scenario),
            text=read_text(options.scenario),
            overrides={
                "measure_s": options.measure_s,
                "tasks": options.tasks,
                "seed": options.seed,
                "backends": options.backends,
            },
            urls=urls,
            run_id=self.run_id,
            index=worker.index,
            count=len(self.workers),
            folder=str(self.folder.absolute()),
            own_folder=None,
            drain_s=self.drain_s,
        )

    def _say(self, worker: Worker, message: Message) -> None:
        self.send(worker.node, plain(message))

    def _wait(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Wait for messages until it is done, somebody refuses, or it has taken too long."""
        until_ns = monotonic_ns() + round(limit_s * 1e9)
        while not done() and self.refused is None:
            left_s = (until_ns - monotonic_ns()) / 1e9
            if left_s <= 0:
                return False
            self._changed.clear()
            self._changed.wait(min(left_s, 1.0))
        return done()

    def _look(self) -> None:
        """Wake who waits for messages; end the run where nobody has anything left to do."""
        self._changed.set()
        if all(one.finished or one.lost for one in self.workers.values()):
            self._end("all shares of the plan are done")

    def _end(self, why: str) -> None:
        """Have the run ended, once."""
        if not self.ending:
            self.ending = True
            gevent.spawn(self.finished, why)

    def _keep(self, worker: Worker, message: Call | Task | Began) -> None:
        """Write a record; count it where Prometheus may ask."""
        match message:
            case Call():
                self._keep_call(worker, message)
            case Task(line=line):
                self.writer.task(line)
                if self._live:
                    self._live.task(task_of(line))
            case Began() if self._live:
                phase = Phase(message.phase)
                self._live.began(message.task_id, message.backend, message.workload, phase)

    def _keep_call(self, worker: Worker, call: Call) -> None:
        line = call.line
        self.writer.call_line(line)
        if worker.ready and not worker.ready.here:
            self.writer.gaps(line["call_id"], unpacked(call.gaps))
        if self._spending.limit_usd is None and self._live is None:
            return
        record = call_of(line)
        if self._live:
            self._live.call(record, unpacked(call.gaps))
        if self._spending.passes(self.prepared.scenario.backends[line["backend"]], record):
            self._end(f"the spend limit of USD {self._spending.limit_usd:g} is passed")

    def _join_events(self) -> None:
        """Make one file of the workers' events that are here."""
        here = [worker.ready.events for worker in self.workers.values() if worker.ready and worker.ready.here]
        with (self.folder / "events.jsonl").open("ab") as joined:
            for path in map(Path, here):
                with path.open("rb") as part:
                    shutil.copyfileobj(part, joined, 1 << 20)
        for path in map(Path, here):
            path.unlink()

    def _elsewhere(self) -> list[tuple[FindingName, str]]:
        """Tell where the events are that stayed on other machines."""
        return [
            (FindingName.REMOTE_EVENTS, f"events of {worker.name} are in its {worker.ready.events}")
            for worker in self.workers.values()
            if worker.ready is not None and not worker.ready.here
        ]
