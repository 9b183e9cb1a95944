"""One backend's side of a run: what it is dealt, how it fares, when it is given up; and who uses it."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import numpy as np

from harness.arrivals import stream_seed
from harness.job import WHOLE, Job, Share
from harness.records import CallOutcome, CallRecord, EventsRecord, Phase
from harness.values import ErrorKind
from harness.workloads import Planner
from harness.workloads.step import History, LiveBackend, Session, TaskSetting

LOST_AFTER = 10
"""So many hopeless calls in a row mean that a backend is gone; the run then drains."""

SERVER_ERRORS = 5
"""First digit of statuses that may pass."""

HOPELESS = {
    ErrorKind.CONNECT,
    ErrorKind.TLS,
    ErrorKind.CONNECT_TIMEOUT,
    ErrorKind.HTTP_ERROR,
    ErrorKind.NOT_STREAMED,
    ErrorKind.NOT_SSE,
}
"""Failures that repeating does not mend; 429 and 5xx are HTTP errors that may pass, so they reset."""


@dataclass(slots=True)
class Dealer:
    """Deals a share's sessions in order, up to a number of tasks; the same row of them on every backend."""

    planner: Planner
    tasks: int | None = None
    share: Share = WHOLE
    dealt: int = 0

    def peek(self) -> Session | None:
        """Look at the next session, cut to the tasks that are left; None when all are dealt."""
        session = self.planner.session(self.share.index + self.dealt * self.share.count)
        if self.tasks is None:
            return session
        if session.first_k >= self.tasks:
            return None
        return Session(session.index, session.first_k, min(session.length, self.tasks - session.first_k))

    def draw(self) -> Session | None:
        """Give the next session; None when all are dealt."""
        session = self.peek()
        self.dealt += session is not None
        return session


def tasks_in(planner: Planner, tasks: int, share: Share) -> int:
    """Count how many of the first `tasks` tasks a share is dealt."""
    if share == WHOLE:
        return tasks
    dealer = Dealer(planner, tasks, share)
    return sum(session.length for session in iter(dealer.draw, None))


@dataclass(slots=True)
class Lane:
    """One backend's side of the run.

    started: measured tasks that began; skipped: due tasks of an open load that were not sent;
    seats: measured sessions that users are in.
    """

    backend: LiveBackend
    dealer: Dealer
    warm_up: Dealer
    in_flight: int = 0
    started: int = 0
    skipped: int = 0
    seats: int = 0
    tail_from_ns: int | None = None
    lost: str | None = None
    failures: int = 0
    failed_tasks: int = 0

    @property
    def dropped(self) -> int:
        """Planned tasks that never began: in a run by tasks all that are missing, whatever kept them."""
        if self.dealer.tasks is None:
            return self.skipped
        return tasks_in(self.dealer.planner, self.dealer.tasks, self.dealer.share) - self.started

    @property
    def done(self) -> bool:
        """Whether all that this lane was to do has been dealt and done."""
        return self.lost is not None or not (self.in_flight or self.seats or self.dealer.peek())

    def hopeless(self, call: CallRecord) -> bool:
        """Count a call that has ended; tell whether so many in a row failed that no other will do better."""
        if call.outcome in (CallOutcome.CUT, CallOutcome.CANCELLED):
            return False
        passing = call.status == HTTPStatus.TOO_MANY_REQUESTS or (call.status or 0) // 100 == SERVER_ERRORS
        failed = call.error is not None and call.error.kind in HOPELESS and not passing
        self.failures = self.failures + 1 if failed else 0
        return self.failures >= LOST_AFTER


@dataclass(slots=True)
class Seat:
    """A user's place in a session: task `k` is next, due at `due_ns` or as soon as the user comes."""

    session: Session
    warm: bool
    k: int
    due_ns: int
    histories: dict[str, History] = field(default_factory=dict)

    @property
    def first(self) -> bool:
        """Whether the session has yet to begin."""
        return self.k == self.session.first_k

    @property
    def over(self) -> bool:
        """Whether the session has no further task."""
        return self.k >= self.session.first_k + self.session.length


@dataclass(slots=True)
class VirtualUser:
    """Does one session after the other on one lane, or each task on several by turns (`alternate`).

    free_ns: no task before it, since the last one failed; draws: whether it may take another session.
    """

    lanes: list[Lane]
    seat: Seat | None = None
    free_ns: int = 0
    draws: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """A task's way to the engine: which phase it is, and where calls go."""

    run_phase: Callable[[], Phase]
    keep: Callable[[Lane, CallRecord, EventsRecord], None]
    lane: Lane
    warm: bool

    def phase(self) -> Phase:
        """Tell the phase of a call that is sent now: a warm-up task's calls warm up, whenever they come."""
        if self.warm:
            return Phase.WARM_UP
        return self.run_phase() if self.lane.tail_from_ns is None else Phase.TAIL

    def call(self, call: CallRecord, events: EventsRecord) -> None:
        """Keep a call that has ended."""
        self.keep(self.lane, call, events)


def in_turn(job: Job, lanes: list[Lane], k: int) -> list[Lane]:
    """Tell who goes first in task k when one user does all backends: by the seed, not by habit."""
    if len(lanes) == 1:
        return lanes
    dice = np.random.default_rng(stream_seed(job.seed, f"{job.name}/order", k))
    return [lanes[i] for i in dice.permutation(len(lanes))]


def setting_of(job: Job, lane: Lane, seat: Seat, *, scheduled_ns: int, origin_ns: int) -> TaskSetting:
    """Say which task it is that a user does next."""
    repeat = f"r{job.repeat}/" if job.repeat else ""
    return TaskSetting(
        task_id=f"{lane.backend.name}/{job.name}/{repeat}{'w' if seat.warm else ''}{seat.k}",
        k=seat.k,
        session=seat.session.index,
        workload=job.name,
        preset=job.preset,
        seed=job.seed,
        scheduled_ns=scheduled_ns,
        origin_ns=origin_ns,
        salt=f"{job.run_id}/{job.repeat}" if job.salted else None,
        repeat=job.repeat,
    )


def fault_line(fault: Exception) -> str:
    """Name a fault of ours and the line that raised it."""
    line = traceback.extract_tb(fault.__traceback__)[-1]
    where = f"{Path(line.filename).name}:{line.lineno}"
    return f"fault in the harness: {type(fault).__name__}: {fault} ({where})"
