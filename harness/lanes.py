"""One backend's side of a run: what it is dealt, how it fares, and when it is to be given up."""

from dataclasses import dataclass
from http import HTTPStatus

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

    def hopeless(self, call: CallRecord) -> bool:
        """Count a call that has ended; tell whether so many in a row failed that no other will do better."""
        if call.outcome is CallOutcome.CUT:
            return False
        passing = call.status == HTTPStatus.TOO_MANY_REQUESTS or (call.status or 0) // 100 == SERVER_ERRORS
        failed = call.error is not None and call.error.kind in HOPELESS and not passing
        self.failures = self.failures + 1 if failed else 0
        return self.failures >= LOST_AFTER
