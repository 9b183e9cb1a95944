"""What a queueing model takes and gives: jobs, their queue, and the emissions of their tokens. Pure."""

from bisect import insort
from collections import deque
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from harness.simulator.prefix_cache import Prefix


@dataclass(slots=True, eq=False)
class Job:
    """One request as the hardware sees it. The model writes the last two fields when it starts on it.

    prefixes: the prompt, message by message, shortest prefix first; the last one is the whole prompt.
    output_tokens: at least 1. cached_tokens: prompt tokens that need no prefill. queued_ns: how long it
    waited, ready, for its turn. Whoever serves it writes when it arrived and when its first and its newest
    tokens were due.
    """

    id: int
    prefixes: tuple[Prefix, ...]
    output_tokens: int
    arrived_ns: int = 0
    first_ns: int = 0
    newest_ns: int = 0
    cached_tokens: int = 0
    queued_ns: int = 0


class Emission(NamedTuple):
    """`tokens` of a job leave the backend in one event at `at_ns`; `last` if the job is done."""

    job_id: int
    at_ns: int
    tokens: int
    last: bool


class Arrivals:
    """Jobs not yet started, first ready first."""

    def __init__(self) -> None:
        self._queue: deque[tuple[int, Job]] = deque()

    def put(self, job: Job, ready_ns: int) -> None:
        """Queue `job` behind all that are ready no later."""
        insort(self._queue, (ready_ns, job), key=itemgetter(0))

    def discard(self, job_id: int) -> None:
        """Drop a job, if it is here."""
        self._queue = deque(item for item in self._queue if item[1].id != job_id)

    def next_ns(self) -> int | None:
        """When the first one is ready."""
        return self._queue[0][0] if self._queue else None

    def take(self, at_ns: int) -> tuple[int, Job] | None:
        """Remove and return the first one as (when it was ready, job) if that is not after `at_ns`."""
        return self._queue.popleft() if self._queue and self._queue[0][0] <= at_ns else None

    def count_ready(self, now_ns: int) -> int:
        """How many are ready at `now_ns`."""
        return sum(ready_ns <= now_ns for ready_ns, _ in self._queue)
