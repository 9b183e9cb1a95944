"""Now and sleep-until, in nanoseconds on CLOCK_MONOTONIC; a test turns a `HandClock` instead."""

import asyncio
import heapq
import time
from typing import Protocol

monotonic_ns = time.monotonic_ns
"""CLOCK_MONOTONIC in nanoseconds, for the socket, which asks for it at every read."""

realtime_ns = time.time_ns
"""CLOCK_REALTIME in nanoseconds: only to move a kernel stamp to the monotonic axis."""


class Clock(Protocol):
    """What paces a run. Wall time is for labels only and is never subtracted."""

    def now_ns(self) -> int:
        """Nanoseconds on the clock's own axis; only differences mean something."""

    async def sleep_until(self, at_ns: int) -> None:
        """Return at `at_ns` or as soon after it as the machine allows; at once if it is past."""


class MachineClock:
    """The machine's monotonic clock under asyncio."""

    def now_ns(self) -> int:
        """CLOCK_MONOTONIC in nanoseconds."""
        return time.monotonic_ns()

    async def sleep_until(self, at_ns: int) -> None:
        """Sleep to an absolute time, so that lateness never adds up."""
        while (left := at_ns - time.monotonic_ns()) > 0:  # noqa: ASYNC110 - timers may fire early
            await asyncio.sleep(left / 1e9)


class HandClock:
    """Stands still until `advance`; sleepers wake in the order of their times."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now = start_ns
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def now_ns(self) -> int:
        """Tell the time it was turned to."""
        return self._now

    async def sleep_until(self, at_ns: int) -> None:
        """Wait until somebody has turned the clock to `at_ns`."""
        if at_ns <= self._now:
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (at_ns, id(woken), woken))
        await woken

    async def advance(self, to_ns: int) -> None:
        """Turn the clock to `to_ns`, waking each sleeper at its own time, and let all of them run."""
        while True:
            for _ in range(50):  # enough turns of the loop for chains of awaits to reach their sleep
                await asyncio.sleep(0)
            if not self._sleepers or self._sleepers[0][0] > to_ns:
                break
            at, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, at)
            if not woken.done():
                woken.set_result(None)
        self._now = to_ns


def wall_time() -> float:
    """Seconds since the epoch, for labels."""
    return time.time()
