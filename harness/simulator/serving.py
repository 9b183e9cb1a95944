"""A queueing model under the wall clock: one timer per profile writes events when they are due.

The schedule is absolute: a timer that fires late sends at once whatever is due, and the lateness does
not add up.
"""

import asyncio
import selectors
from collections import deque
from collections.abc import Callable
from pathlib import Path
from select import select
from typing import Any
from zlib import crc32

import numpy as np
import orjson

from harness.clock import Clock
from harness.simulator.backend_model import build_model
from harness.simulator.jobs import Job
from harness.simulator.profiles import Profile

Deliver = Callable[[int, bool], None]
"""Called with (tokens, last) when they are to be sent."""


class PreciseSelector(selectors.DefaultSelector):
    """Epoll waits whole milliseconds, which is most of a token at 750/s; select waits microseconds."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for the selector's own descriptor, then ask it without waiting."""
        if timeout is not None and timeout > 0:
            select([self.fileno()], [], [], timeout)
            timeout = 0
        return super().select(timeout)


class StreamLog:
    """One JSON line per request, flushed; of this server alone: what stood in the file before is gone."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, line: dict[str, Any]) -> None:
        """Append `line`."""
        self._file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        self._file.flush()


class Serving:
    """One profile being served: its model, its timer, and whom to tell of each emission."""

    def __init__(self, profile: Profile, *, clock: Clock, seed: int) -> None:
        self.profile = profile
        seeds = np.random.SeedSequence([seed, crc32(profile.name.encode())])
        self._model = build_model(profile, np.random.default_rng(seeds))
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._open: dict[int, tuple[Job, Deliver]] = {}
        self._jobs = 0
        self._events = 0
        self._peak = 0
        self._late_us: deque[int] = deque(maxlen=100_000)

    def start(self, job: Job, deliver: Deliver, *, received_ns: int) -> None:
        """Let `job` run; `deliver` is called at each emission's time, from the timer."""
        job.arrived_ns = received_ns
        self._open[job.id] = (job, deliver)
        self._peak = max(self._peak, len(self._open))
        self._jobs += 1
        self._model.submit(job, received_ns)
        self._arm()

    def cancel(self, job: Job) -> None:
        """Forget `job`, finished or not."""
        if self._open.pop(job.id, None):
            self._model.cancel(job.id, self._clock.now_ns())
            self._arm()

    def stats(self) -> dict[str, Any]:
        """Count what happened; lateness (sent - due) is of the newest 100,000 emissions."""
        late = np.array(self._late_us or [0])
        p50, p99 = np.percentile(late, [50, 99])
        return {
            "profile": self.profile.name,
            "events": self._events,
            "streams": self._jobs,
            "active": len(self._open),
            "queued": self._model.queued(),
            "peak": self._peak,
            "late_p50_us": float(p50),
            "late_p99_us": float(p99),
        }

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        at_ns = self._model.next_at_ns()
        if at_ns is not None:
            self._timer = self._loop.call_at(at_ns / 1e9, self._send_due)

    def _send_due(self) -> None:
        for emission in self._model.advance(self._clock.now_ns()):
            self._late_us.append((self._clock.now_ns() - emission.at_ns) // 1000)
            self._events += 1
            job, deliver = self._open[emission.job_id]
            job.first_ns, job.newest_ns = job.first_ns or emission.at_ns, emission.at_ns
            if emission.last:
                del self._open[emission.job_id]
            deliver(emission.tokens, emission.last)
        self._arm()
