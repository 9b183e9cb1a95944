"""What the engine works on: the job, and a lane a backend with its row of sessions."""

from dataclasses import dataclass
from typing import Any

from harness.scenario import ClosedLoad, OpenLoad
from harness.workloads import Planner, Workload
from harness.workloads.step import LiveBackend, Session


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


@dataclass(slots=True)
class Dealer:
    """Deals sessions in order, up to a number of tasks; the same row of sessions on every backend."""

    planner: Planner
    tasks: int | None = None
    next_session: int = 0
    dealt: int = 0

    def draw(self) -> Session | None:
        """Give the next session, cut to the tasks that are left; None when all are dealt."""
        session = self.planner.session(self.next_session)
        if self.tasks is not None and session.first_k >= self.tasks:
            return None
        self.next_session += 1
        if self.tasks is not None:
            length = min(session.length, self.tasks - session.first_k)
            session = Session(session.index, session.first_k, length)
        self.dealt = session.first_k + session.length
        return session


@dataclass(slots=True)
class Lane:
    """One backend's side of the run."""

    backend: LiveBackend
    dealer: Dealer
    warm_up: Dealer
    in_flight: int = 0
    dropped: int = 0
    tail_from_ns: int | None = None
    lost: str | None = None
    failures: int = 0
    failed_tasks: int = 0
