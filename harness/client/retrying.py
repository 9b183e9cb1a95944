"""Asks again when a server refuses or a connection breaks, as the vendors' SDKs do unasked.

What an SDK hides is the point here: each attempt stays in the Timeline (`earlier`), and the waiting between
them lies between their marks. Only what failed before any output is asked again: a status of a refusal, or
no status at all. A stream that began and broke is a failed call, as in the SDKs.

Rules of openai 3.57 (`_base_client.py`); anthropic 2.14 differs in one: it waits for any `retry-after`,
however long. Both ask again after their own time limit, too, which is 600 s; a scenario's limits say what a
call may take, so here they end it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from random import Random

from harness.client.told import RETRY_AFTER
from harness.clock import Clock
from harness.errors import Interrupted
from harness.values import ErrorKind, Exchange, OnRead, Request, Timeline

RETRIES = 2
FIRST_S, LONGEST_S = 0.5, 8.0
JITTER = 0.25
ASKED_S_MAX = 120.0
"""A server that wants to be left alone for longer is not asked again."""

_STATUSES = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}
_FINAL = {ErrorKind.FIRST_OUTPUT_TIMEOUT, ErrorKind.TOTAL_TIMEOUT, ErrorKind.CLIENT_RESOURCE}
"""Failures without an answer that are not asked again: our own limits, and this machine's shortage."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """An `Exchange` that asks another one again; `total_s` as in `CallLimits`."""

    exchange: Exchange
    clock: Clock
    total_s: float

    async def __call__(self, request: Request, on_read: OnRead) -> Timeline:
        """Send `request` up to 1 + `RETRIES` times; the Timeline is the last attempt's, with those before.

        No wait ends later than `total_s` after the first attempt was sent. Cancelled, it raises
        `Interrupted` with the Timeline of the last attempt.
        """
        dice = Random(request.dice)
        earlier: tuple[Timeline, ...] = ()
        while True:
            timeline = replace(await _kept(self.exchange, request, on_read, earlier), earlier=earlier)
            wait_s = wait_before_next(timeline, dice.random) if len(earlier) < RETRIES else None
            if wait_s is None:
                return timeline
            due_ns = self.clock.now_ns() + round(wait_s * 1e9)
            first = earlier[0] if earlier else timeline
            if due_ns > first.sent_ns + round(self.total_s * 1e9):
                return timeline
            await _waited(self.clock.sleep_until(due_ns), timeline)
            earlier = (*earlier, replace(timeline, earlier=()))


def wait_before_next(attempt: Timeline, dice: Callable[[], float]) -> float | None:
    """Give the seconds to wait before asking again; None if it is not to be asked again.

    dice: gives a number from 0 to 1. What the server asks for goes before the own backoff, without jitter.
    """
    asked_s = attempt.limits_told.get(RETRY_AFTER, 0.0)
    if not _passing(attempt) or asked_s > ASKED_S_MAX:
        return None
    if asked_s > 0:
        return asked_s
    return min(FIRST_S * 2.0 ** len(attempt.earlier), LONGEST_S) * (1 - JITTER * dice())


def _passing(attempt: Timeline) -> bool:
    """Tell whether an attempt's failure may pass, and nothing of an answer has come."""
    status = attempt.status
    if status is None:
        return attempt.error is not None and attempt.error.kind not in _FINAL
    if status < HTTPStatus.BAD_REQUEST:
        return False
    if attempt.resend_told is not None:
        return attempt.resend_told
    return status in _STATUSES or status >= HTTPStatus.INTERNAL_SERVER_ERROR


async def _kept(
    exchange: Exchange, request: Request, on_read: OnRead, earlier: tuple[Timeline, ...]
) -> Timeline:
    """Make one attempt; if it is cancelled, those before it are not lost."""
    try:
        return await exchange(request, on_read)
    except Interrupted as stop:
        raise Interrupted(replace(stop.timeline, earlier=earlier)) from None


async def _waited(sleep: Awaitable[None], attempt: Timeline) -> None:
    """Wait; if that is cancelled, the failed attempt was the last one."""
    try:
        await sleep
    except asyncio.CancelledError:
        raise Interrupted(attempt) from None
