"""What is asked again, when, and what is kept of it; the clock is turned by hand, the server is a script."""

import asyncio
from dataclasses import replace

import pytest

from harness.client.retrying import Retrying, wait_before_next
from harness.clock import HandClock
from harness.errors import Interrupted
from harness.values import CallError, ErrorKind, Progress, Request, Timeline
from tests.making import MS, S

REQUEST = Request("m", (), 1, dice="7/0/1", body=b"{}")


def attempt(status=None, error=None, **said):
    kind = None if error is None else CallError(error, "it broke")
    return Timeline(0, 10 * MS, status=status, error=kind, **said)


class Script:
    """Answers with the given attempts in turn, each 10 ms long on the clock; keeps when it was asked."""

    def __init__(self, clock, *attempts):
        self.clock, self.attempts, self.asked_ns = clock, list(attempts), []

    async def __call__(self, request, on_read):
        now = self.clock.now_ns()
        self.asked_ns.append(now)
        next_one = self.attempts.pop(0)
        await self.clock.sleep_until(now + 10 * MS)
        return replace(next_one, sent_ns=now, done_ns=now + 10 * MS)


def play(*attempts, until_s=1000, total_s=600, request=REQUEST):
    """Run a call to its end; returns (timeline, when each attempt was sent in seconds)."""

    async def main():
        clock = HandClock()
        script = Script(clock, *attempts)
        call = asyncio.ensure_future(Retrying(script, clock, total_s)(request, lambda *_: Progress.SILENT))
        await clock.advance(until_s * S)
        return await call, [ns / S for ns in script.asked_ns]

    return asyncio.run(main())


OK = attempt(200)
REFUSED = attempt(429, limits_told={"retry-after-s": 3.0})


def test_l16_each_attempt_is_kept_apart():
    timeline, asked_s = play(REFUSED, OK)
    assert asked_s == [0, 3.01]
    assert timeline.status == 200
    assert timeline.sent_ns == 3.01 * S
    [first] = timeline.earlier
    assert (first.sent_ns, first.done_ns, first.status) == (0, 10 * MS, 429)


def test_a_good_answer_is_asked_for_once():
    assert play(OK)[1] == [0]


def test_two_retries_and_no_more():
    timeline, asked_s = play(*[attempt(500)] * 9)
    assert len(asked_s) == 3
    assert [one.status for one in (*timeline.earlier, timeline)] == [500, 500, 500]


def test_the_backoff_doubles_with_jitter_from_the_calls_own_dice():
    _, asked_s = play(*[attempt(503)] * 3)
    waits = [asked_s[1] - 0.01, asked_s[2] - asked_s[1] - 0.01]
    assert 0.375 <= waits[0] <= 0.5
    assert 0.75 <= waits[1] <= 1.0
    assert play(*[attempt(503)] * 3)[1] == asked_s
    assert play(*[attempt(503)] * 3, request=replace(REQUEST, dice="7/0/2"))[1] != asked_s


@pytest.mark.parametrize(
    ("failed", "again"),
    [
        (attempt(408), True),
        (attempt(409), True),
        (attempt(429), True),
        (attempt(500), True),
        (attempt(529), True),
        (attempt(400), False),
        (attempt(401), False),
        (attempt(404), False),
        (attempt(301), False),
        (attempt(400, resend_told=True), True),
        (attempt(429, resend_told=False), False),
        (attempt(429, limits_told={"retry-after-s": 120.0}), True),
        (attempt(429, limits_told={"retry-after-s": 121.0}), False),
        (attempt(None, ErrorKind.STALE_CONNECTION), True),
        (attempt(None, ErrorKind.RESET), True),
        (attempt(None, ErrorKind.CONNECT), True),
        (attempt(None, ErrorKind.CONNECT_TIMEOUT), True),
        (attempt(None, ErrorKind.TLS), True),
        (attempt(None, ErrorKind.FIRST_OUTPUT_TIMEOUT), False),
        (attempt(None, ErrorKind.TOTAL_TIMEOUT), False),
        (attempt(None, ErrorKind.CLIENT_RESOURCE), False),
        (attempt(200, ErrorKind.RESET), False),  # its stream had begun
        (attempt(200, ErrorKind.IDLE_TIMEOUT), False),
    ],
)
def test_what_is_asked_again(failed, again):
    assert (wait_before_next(failed, lambda: 0.0) is not None) is again


@pytest.mark.parametrize(
    ("told_s", "before", "dice", "wait_s"),
    [
        (None, 0, 0.0, 0.5),
        (None, 0, 1.0, 0.375),
        (None, 1, 0.0, 1.0),
        (None, 9, 0.0, 8.0),
        (2.5, 1, 1.0, 2.5),  # what is asked for has no jitter
        (0.0, 0, 0.0, 0.5),
        (-3.0, 0, 0.0, 0.5),  # a date that has passed
    ],
)
def test_how_long_it_waits(told_s, before, dice, wait_s):
    told = {} if told_s is None else {"retry-after-s": told_s}
    failed = attempt(429, limits_told=told, earlier=(attempt(429),) * before)
    assert wait_before_next(failed, lambda: dice) == wait_s


def test_no_wait_ends_after_the_calls_total_limit():
    timeline, asked_s = play(REFUSED, OK, total_s=2.9)
    assert asked_s == [0]
    assert timeline.status == 429


def test_a_call_cut_while_it_waits_keeps_the_attempt_that_failed():
    async def main():
        clock = HandClock()
        call = asyncio.ensure_future(
            Retrying(Script(clock, REFUSED, REFUSED), clock, 600)(REQUEST, lambda *_: Progress.SILENT)
        )
        await clock.advance(5 * S)  # the second wait lasts until 6.02 s
        call.cancel()
        with pytest.raises(Interrupted) as stop:
            await call
        return stop.value.timeline

    timeline = asyncio.run(main())
    assert (timeline.status, len(timeline.earlier)) == (429, 1)


def test_a_call_cut_in_its_second_attempt_keeps_the_first():
    async def main():
        clock = HandClock()
        asked = asyncio.Event()

        async def exchange(request, on_read):
            if not asked.is_set():
                asked.set()
                return attempt(503)
            try:
                await clock.sleep_until(9 * S)
            except asyncio.CancelledError:
                raise Interrupted(Timeline(1 * S, 2 * S, status=200)) from None

        call = asyncio.ensure_future(Retrying(exchange, clock, 600)(REQUEST, lambda *_: Progress.SILENT))
        await clock.advance(2 * S)
        call.cancel()
        with pytest.raises(Interrupted) as stop:
            await call
        return stop.value.timeline

    timeline = asyncio.run(main())
    assert (timeline.status, [one.status for one in timeline.earlier]) == (200, [503])
