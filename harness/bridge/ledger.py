"""What the owner of a run knows of its workers: who they are, what is open, what was told, what was lost."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from harness.accounts import Account, LaneAccount, Machinery, merged
from harness.folder import default_folder
from harness.job import Share, job_of, plan_ns
from harness.lanes import Dealer
from harness.link import Began, Call, Drained, Finished, Message, Ready, Settled, Task
from harness.measure.facts import LostWorker
from harness.preparation import Prepared
from harness.records import Phase
from harness.results import Standing
from harness.scenario import OpenLoad, Scenario
from harness.sinks.records import RUN_FILE, RecordWriter


@dataclass(slots=True)
class Worker:
    """One worker's books. node: Locust's name for it; lost_s: when it died, from the start of the run.

    open: task_id -> backend, of tasks under way; told: backend -> numbers of measured tasks that ended.
    """

    index: int
    node: str
    ready: Ready | None = None
    open: dict[str, str] = field(default_factory=dict)
    told: dict[str, set[int]] = field(default_factory=dict)
    tasks: int = 0
    calls: int = 0
    finished: bool = False
    drained: Drained | None = None
    settled: bool = False
    lost: str | None = None
    lost_s: float | None = None

    def hear(self, message: Message) -> None:
        """Enter what the worker tells."""
        match message:
            case Ready():
                self.ready = message
            case Began(task_id=task_id, backend=backend):
                self.open[task_id] = backend
            case Call():
                self.calls += 1
            case Task(line=line):
                self.tasks += 1
                self.open.pop(line["task_id"], None)
                if line["phase"] != Phase.WARM_UP:
                    self.told.setdefault(line["backend"], set()).add(line["k"])
            case Drained():
                self.drained = message
            case Finished() | Settled():
                self.finished = True
                self.settled = isinstance(message, Settled)
            case _:
                pass

    @property
    def name(self) -> str:
        """Name it so that a person finds it."""
        if self.ready is None:
            return f"worker {self.index} ({self.node})"
        return f"worker {self.index} (on {self.ready.host}, engine {self.ready.pid})"

    def written(self) -> dict[str, Any]:
        """Say who it was, for `run.json`."""
        ready = self.ready
        return {
            "index": self.index,
            "host": ready.host if ready else None,
            "engine_pid": ready.pid if ready else None,
            "tasks": self.tasks,
            "calls": self.calls,
            "lost": self.lost,
            "lost_s": self.lost_s,
        }

    def missed(self) -> str | None:
        """Tell if less was told than the engine says that it wrote; None if nothing is missing."""
        if self.drained is None or (self.tasks, self.calls) == (self.drained.tasks, self.drained.calls):
            return None
        return (
            f"of its {self.drained.tasks} tasks and {self.drained.calls} calls"
            f" {self.tasks} and {self.calls} came here"
        )


def share_ks(scenario: Scenario, share: Share) -> set[int] | None:
    """Tell which measured tasks a share of the plan has; None where no plan says (closed load by time)."""
    job = job_of(scenario, run_id="", share=share)
    load = scenario.load
    dealer = Dealer(job.planner, load.tasks, share)
    if load.tasks is not None:
        sessions = list(iter(dealer.draw, None))
    elif isinstance(load, OpenLoad):
        arrivals = len(plan_ns(job, load, "measure"))
        sessions = list(islice(iter(dealer.draw, None), arrivals))
    else:
        return None
    return {k for one in sessions for k in range(one.first_k, one.first_k + one.length)}


def lost_worker(worker: Worker, scenario: Scenario, count: int) -> LostWorker:
    """Say what went with a worker: the part of its share that never came, or the tasks it had open."""
    planned = share_ks(scenario, Share(worker.index, count))
    gone = {
        name: list(worker.open.values()).count(name)
        if planned is None
        else len(planned - worker.told.get(name, set()))
        for name in scenario.backends
    }
    ended = sum(len(ks) for ks in worker.told.values())
    what = "tasks that it had open" if planned is None else f"tasks of its share (every {count}. session"
    what += "" if planned is None else f" from number {worker.index} on)"
    lost = ", ".join(f"{n} on {name}" for name, n in gone.items())
    at = "" if worker.lost_s is None else f" {worker.lost_s:.1f} s after the start"
    detail = (
        f"{worker.name} was lost{at}: {worker.lost}; {ended} of its tasks are kept, gone are {what}: {lost}"
    )
    return LostWorker(tasks=gone, detail=detail)


def account_of_all(
    workers: Sequence[Worker], scenario: Scenario, *, lasted_ns: int, interrupted: bool
) -> Account:
    """Join the accounts that came; without any, only what the owner saw itself."""
    told = [_account(worker.drained) for worker in workers if worker.drained is not None]
    if told:
        return replace(merged(told), interrupted=interrupted)
    return Account(
        phases={"measure": min(lasted_ns, round(scenario.load.warm_up_s * 1e9)), "end": lasted_ns},
        lanes=dict.fromkeys(scenario.backends, LaneAccount(0, None)),
        planned=sorted(set[int]().union(*(ks for worker in workers for ks in worker.told.values()))),
        interrupted=interrupted,
    )


def machinery_of_all(
    workers: Sequence[Worker], scenario: Scenario, *, standing: Standing, lost_allowed: bool
) -> Machinery:
    """Tell how the meters fared: the worst engine's figures, for each has a core and a loop of its own.

    standing: of this machine; it says nothing of workers on others.
    """
    elsewhere = [worker.name for worker in workers if worker.ready is not None and not worker.ready.here]
    if elsewhere:
        standing = Standing(why=f"{', '.join(elsewhere)} measured on other machines")
    drained = [worker.drained for worker in workers if worker.drained is not None]
    lags = [one.lag_p99_ms for one in drained if one.lag_p99_ms is not None]
    return Machinery(
        cpu_share=max((one.cpu_share for one in drained), default=0.0),
        loop_lag_p99_ms=max(lags, default=None),
        lost_workers=[
            lost_worker(worker, scenario, len(workers)) for worker in workers if worker.lost is not None
        ],
        lost_allowed=lost_allowed,
        standing=standing,
    )


def _account(drained: Drained) -> Account:
    told = drained.account
    lanes = {name: LaneAccount(**lane) for name, lane in told["lanes"].items()}
    return Account(told["phases"], lanes, told["planned"], told["interrupted"])


def open_folder(prepared: Prepared) -> RecordWriter:
    """Open DIR."""
    out = prepared.options.out
    return RecordWriter(_free(out) if out else default_folder(prepared.scenario.name))


def _free(folder: Path) -> Path:
    """Give a folder that holds no run: a second start from the web interface must not end the first one's."""
    for number in range(2, 1000):
        if not (folder / RUN_FILE).exists():
            break
        folder = folder.with_name(f"{folder.name.removesuffix(f'-{number - 1}')}-{number}")
    return folder
