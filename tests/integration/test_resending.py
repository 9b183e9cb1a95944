"""Retries and caps over real connections, from the server's bytes to the record."""

import asyncio
import contextlib
import itertools
import json

import pytest

from harness.client.limits import Capped, Quota, admission
from harness.client.retrying import Retrying
from harness.clock import MachineClock, monotonic_ns
from harness.measure.calls import calls_of
from harness.measure.metrics.registry import METRICS
from harness.records import Phase, TaskOutcome
from harness.values import Block, ErrorKind, Role
from harness.wire import DIALECTS
from harness.workloads.step import LiveBackend, PlannedCall, Step, TaskSetting
from tests.integration.test_http_exchange import exchange
from tests.making import MS, S
from tests.raw_server import LAST_CHUNK, STREAM_HEAD, chunk, serve

SLOW_DOWN = json.dumps({"error": {"message": "slow down", "type": "requests"}}).encode()
TOLD = b"x-ratelimit-limit-requests: 500\r\nx-ratelimit-reset-requests: 1m30s\r\n"


def refusal(status=429, headers=b""):
    head = b"HTTP/1.1 %d No\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n"
    return head % (status, len(SLOW_DOWN), headers) + SLOW_DOWN


def event(content=None, **said):
    delta = {} if content is None else {"content": content}
    return chunk(
        b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, **said}]}).encode() + b"\n\n"
    )


async def answer(peer, ttft_s=0.0, headers=b""):
    head = STREAM_HEAD.removesuffix(b"\r\n") + headers + b"\r\n"
    await peer.send(head)
    await asyncio.sleep(ttft_s)
    await peer.send(event("a"))
    await peer.send(event("b", finish_reason="stop") + chunk(b"data: [DONE]\n\n") + LAST_CHUNK)


class Kept:
    """Keeps what a step records."""

    def __init__(self):
        self.calls = []

    def phase(self):
        return Phase.MEASURE

    def call(self, call, events):
        self.calls.append(call)


async def task(port, *, calls=1, retry=True, quota=None, pause_s=0.0):
    """One task of some calls over one exchange; returns (its call records, its task record)."""
    clock, kept = MachineClock(), Kept()
    async with exchange(port) as send:
        if quota is not None:
            send = Capped(send, admission(quota), clock)
        if retry:
            send = Retrying(send, clock, 600)
        backend = LiveBackend("b", "m", DIALECTS["openai-chat"], send, "keep-alive")
        start = clock.now_ns()
        setting = TaskSetting("b/w/0", 0, 0, "w", None, 7, start, start, None)
        step = Step(setting, backend, clock=clock, recorder=kept)
        for i in range(calls):
            if i:
                await step.agent(pause_s)
            await step.call(PlannedCall((Block("q", 90, Role.USER),), 10))
        return kept.calls, step.finish(TaskOutcome.COMPLETED, phase=Phase.MEASURE)


def in_turn(*answers):
    """A server whose n-th request, on whichever connection, gets the n-th answer."""
    left = list(answers)

    async def handler(peer):
        while True:
            await peer.request()
            await left.pop(0)(peer)

    return handler


async def refuse_at_first(peer):
    await asyncio.sleep(0.01)
    await peer.send(refusal(headers=b"Retry-After: 3\r\n" + TOLD))


def test_l16_429_with_retry_after_then_an_answer():
    async def main():
        async with serve(in_turn(refuse_at_first, lambda peer: answer(peer, 0.2, TOLD))) as port:
            return await task(port)

    [call], done = asyncio.run(main())
    first, last = call.attempts
    assert (first["status"], last["status"]) == (429, 200)
    assert first["error"] == {"kind": "http_error", "message": "HTTP 429: slow down"}
    assert call.sent_ns == last["sent_ns"]
    assert 3.0 * S <= last["sent_ns"] - first["done_ns"] < 3.5 * S
    columns = calls_of([call])
    ttft_ns, user_ns = (METRICS[name].value(columns)[0] for name in ("ttft_s", "user_ttft_s"))
    assert 195 * MS <= ttft_ns < 700 * MS
    assert 3.2 * S <= user_ns < 4.5 * S
    assert user_ns - ttft_ns == last["sent_ns"] - first["sent_ns"]
    assert call.limits_told == {"limit-requests": 500, "reset-requests-s": 90}
    assert done.outcome is TaskOutcome.COMPLETED
    assert sum(done.breakdown.values()) == pytest.approx(1)
    retry_ns = done.breakdown["retry"] * (done.ended_ns - done.scheduled_ns)
    assert retry_ns == pytest.approx(last["sent_ns"] - first["sent_ns"])


def test_l16_retries_are_off_by_default_and_429_is_a_failed_call():
    async def main():
        async with serve(in_turn(refuse_at_first)) as port:
            return await task(port, retry=False)

    [call], done = asyncio.run(main())
    assert (call.status, call.attempts, call.error.kind) == (429, [], ErrorKind.HTTP_ERROR)
    assert call.limits_told["retry-after-s"] == 3
    assert done.breakdown["retry"] == 0
    assert done.outcome is TaskOutcome.FAILED


@pytest.mark.parametrize("status", [200, 503])
def test_a_broken_answer_is_asked_again_only_if_nothing_of_it_came(status):
    async def breaks(peer):
        await peer.send(STREAM_HEAD if status == 200 else refusal(503)[:-5])
        peer.reset()

    async def main():
        async with serve(in_turn(breaks, answer)) as port:
            return await task(port)

    [call], _ = asyncio.run(main())
    if status == 200:
        assert (call.error.kind, call.attempts) == (ErrorKind.RESET, [])
    else:
        assert (call.error, [one["status"] for one in call.attempts]) == (None, [503, 200])


def test_t03_a_request_that_met_the_closing_of_its_connection_is_sent_again_and_marked():
    connections = 0

    async def handler(peer):
        nonlocal connections
        connections += 1
        await peer.request()
        await answer(peer)
        if connections == 1:  # closes as the next request arrives on it
            with contextlib.suppress(asyncio.IncompleteReadError):
                await peer.request()
            peer.close()
            return
        await peer.gone()

    async def main():
        async with serve(handler) as port:
            return await task(port, calls=2, pause_s=0.05)

    (_, call), done = asyncio.run(main())
    assert [one["error"] and one["error"]["kind"] for one in call.attempts] == ["stale_connection", None]
    assert (call.error, call.connection, connections) == (None, "new", 2)
    columns = calls_of([call])
    user_ns = METRICS["user_ttft_s"].value(columns)[0]
    assert user_ns == call.first_output_ns - call.attempts[0]["sent_ns"] > METRICS["ttft_s"].value(columns)[0]
    assert done.outcome is TaskOutcome.COMPLETED


def test_t03_with_retry_off_it_is_a_failed_call_of_its_own_kind():
    async def handler(peer):
        await peer.request()
        await answer(peer)
        await peer.request()
        peer.close()

    async def main():
        async with serve(handler) as port:
            return await task(port, calls=2, retry=False, pause_s=0.05)

    (_, call), _ = asyncio.run(main())
    assert (call.error.kind, call.attempts) == (ErrorKind.STALE_CONNECTION, [])


def test_waits_for_the_own_caps_are_limit_and_each_attempt_passes_them():
    came = []

    def noting(then):
        async def handle(peer):
            came.append(monotonic_ns())
            await then(peer)

        return handle

    async def refuse(peer):
        await peer.send(refusal(headers=b"retry-after-ms: 50\r\n"))

    async def main():
        async with serve(in_turn(noting(answer), noting(refuse), noting(answer))) as port:
            return await task(port, calls=2, quota=Quota(requests=1, period_s=0.8))

    calls, done = asyncio.run(main())
    assert all(later - earlier >= 0.5 * S for earlier, later in itertools.pairwise(came))
    waits = [one["limit_wait_ns"] for one in calls[1].attempts]
    assert calls[1].limit_wait_ns == sum(waits)
    assert min(waits) > 0
    limit_ns = done.breakdown["limit"] * (done.ended_ns - done.scheduled_ns)
    assert limit_ns == pytest.approx(sum(call.limit_wait_ns for call in calls))
    assert done.breakdown["retry"] > 0
    assert sum(done.breakdown.values()) == pytest.approx(1)
