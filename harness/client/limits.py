"""The client's own caps on requests and tokens a minute, so that a run stays inside its quota.

The caps never pace: up to a whole minute's quota may go at once, and then nothing goes until its oldest part
is a minute old. In any minute at most the quota goes, give or take one call, which fits every way in which
vendors count a minute. What a call waits here is part of its task's time.

asyncio-throttle looks every 10 ms whether there is room. So one caller at a time stands before it, in the
order in which they came, and the others sleep.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from asyncio_throttle.throttler import Throttler

from harness.clock import Clock
from harness.errors import Interrupted
from harness.values import Exchange, OnRead, Request, Timeline

MINUTE_S = 60.0
SLOTS = 1000
"""A cap of more is counted in so many equal slots: a slot a token would be a list of half a million times."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What may go out in `period_s`; None is no cap."""

    requests: int | None = None
    tokens: int | None = None
    period_s: float = MINUTE_S


class Cap:
    """Lets an amount through at most `per_period` a period. Amounts are rounded to slots, without drift."""

    def __init__(self, per_period: int, *, period_s: float) -> None:
        slots = min(per_period, SLOTS)
        self._slot = per_period / slots
        self._paid = 0.0  # of slots taken, what has not been used yet: always less than one slot
        self._throttler = Throttler(slots, period_s)

    async def take(self, amount: float) -> None:
        """Wait until there is room; what a caller that gives up has taken is not given back.

        More than the cap's whole amount takes more than a period.
        """
        slots = max(0, ceil((amount - self._paid) / self._slot - 1e-9))
        paid = self._paid + slots * self._slot - amount
        for _ in range(slots):
            await self._throttler.acquire()  # type: ignore[no-untyped-call]
        self._paid = paid


@dataclass(frozen=True, slots=True)
class Admission:
    """One backend's door: callers pass it one by one, in the order in which they came."""

    caps: Mapping[str, Cap]
    door: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def admit(self, request: Request) -> None:
        """Wait until a request fits into all caps."""
        async with self.door:
            if "tokens" in self.caps:
                await self.caps["tokens"].take(charge(request))
            if "requests" in self.caps:
                await self.caps["requests"].take(1)


@dataclass(frozen=True, slots=True)
class Capped:
    """An `Exchange` that waits for its quota before it sends, and tells how long (`limit_wait_ns`)."""

    exchange: Exchange
    admission: Admission
    clock: Clock

    async def __call__(self, request: Request, on_read: OnRead) -> Timeline:
        """Wait, then send. Cancelled while it waits, nothing was sent: `sent_ns` is `done_ns`."""
        came_ns = self.clock.now_ns()
        try:
            await self.admission.admit(request)
        except asyncio.CancelledError:
            now_ns = self.clock.now_ns()
            raise Interrupted(Timeline(now_ns, now_ns, limit_wait_ns=now_ns - came_ns)) from None
        waited_ns = self.clock.now_ns() - came_ns
        try:
            timeline = await self.exchange(request, on_read)
        except Interrupted as stop:
            raise Interrupted(replace(stop.timeline, limit_wait_ns=waited_ns)) from None
        return replace(timeline, limit_wait_ns=waited_ns)


def admission(quota: Quota) -> Admission:
    """Make the door of a quota."""
    asked = {"requests": quota.requests, "tokens": quota.tokens}
    return Admission(
        {name: Cap(amount, period_s=quota.period_s) for name, amount in asked.items() if amount is not None}
    )


def charge(request: Request) -> int:
    """Tokens that a request counts for before it runs: its prompt as planned, and all it may answer."""
    return sum(block.tokens for block in request.blocks) + request.max_tokens
