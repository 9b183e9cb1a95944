"""One backend's side of a run: what it is dealt, how it fares, and when it is to be given up."""

import traceback
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from harness.records import CallOutcome, CallRecord
from harness.values import ErrorKind
from harness.workloads import Planner
from harness.workloads.step import LiveBackend, Session

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
    """Deals sessions in order, up to a number of tasks; the same row of sessions on every backend."""

    planner: Planner
    tasks: int | None = None
    next_session: int = 0

    def draw(self) -> Session | None:
        """Give the next session, cut to the tasks that are left; None when all are dealt."""
        session = self.planner.session(self.next_session)
        if self.tasks is not None and session.first_k >= self.tasks:
            return None
        self.next_session += 1
        if self.tasks is not None:
            length = min(session.length, self.tasks - session.first_k)
            session = Session(session.index, session.first_k, length)
        return session


@dataclass(slots=True)
class Lane:
    """One backend's side of the run.

    started: measured tasks that began; skipped: due tasks of an open load that were not sent.
    """

    backend: LiveBackend
    dealer: Dealer
    warm_up: Dealer
    in_flight: int = 0
    started: int = 0
    skipped: int = 0
    tail_from_ns: int | None = None
    lost: str | None = None
    failures: int = 0
    failed_tasks: int = 0

    @property
    def dropped(self) -> int:
        """Planned tasks that never began: in a run by tasks all that are missing, whatever kept them."""
        return self.skipped if self.dealer.tasks is None else self.dealer.tasks - self.started

    def hopeless(self, call: CallRecord) -> bool:
        """Count a call that has ended; tell whether so many in a row failed that no other will do better."""
        if call.outcome is CallOutcome.CUT:
            return False
        passing = call.status == HTTPStatus.TOO_MANY_REQUESTS or (call.status or 0) // 100 == SERVER_ERRORS
        failed = call.error is not None and call.error.kind in HOPELESS and not passing
        self.failures = self.failures + 1 if failed else 0
        return self.failures >= LOST_AFTER


def fault_line(fault: Exception) -> str:
    """Name a fault of ours and the line that raised it."""
    line = traceback.extract_tb(fault.__traceback__)[-1]
    where = f"{Path(line.filename).name}:{line.lineno}"
    return f"fault in the harness: {type(fault).__name__}: {fault} ({where})"
