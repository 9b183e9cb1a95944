"""Bytes of no event behind an event in its read: then the read's stamp is not the event's."""

import asyncio
import socket
import sys
import time

import pytest

from harness.client.http import CallLimits, Endpoint, HttpExchange
from harness.clock import MachineClock, monotonic_ns
from harness.values import Request
from harness.wire import DIALECTS
from tests.raw_server import LAST_CHUNK, STREAM_HEAD, chunk, serve

LIMITS = CallLimits(connect_s=10, first_output_s=10, stall_s=10, total_s=20)
REQUEST = Request("m", (), 1, path="/chat", body=b"{}")
EVENT = chunk(b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n')
US = 1000
HEADER, REST = EVENT[:4], EVENT[4:]
DONE = chunk(b"data: [DONE]\n\n")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's stamps are Linux's")


def bounds(*reads):
    """(low, high) of the first event, and clock readings before and after its write.

    The client reads once for each of `reads`, which the server writes in parts, 2 ms apart, while the
    loop that both share does nothing else.
    """
    truth = []

    async def handler(peer):
        await peer.request()
        peer.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await peer.send(STREAM_HEAD)
        await asyncio.sleep(0.01)
        for parts in reads:
            for part in parts:
                time.sleep(0.002)
                before = monotonic_ns()
                peer.writer.write(part)
                if part is EVENT:
                    truth.extend((before, monotonic_ns()))
            await asyncio.sleep(0.01)
        await peer.gone()

    async def main():
        decoder, clock = DIALECTS["openai-chat"].decoder(), MachineClock()
        async with serve(handler) as port:
            endpoint = Endpoint(f"http://127.0.0.1:{port}/v1")
            async with HttpExchange(endpoint, limits=LIMITS, clock=clock) as send:
                timeline = await send(REQUEST, decoder.feed)
        assert timeline.error is None
        return decoder.answer(ended=True)

    answer = asyncio.run(main())
    return answer.low_ns[0], answer.high_ns[0], truth


@pytest.mark.parametrize(
    ("reads", "exact"),
    [
        pytest.param([[EVENT], [DONE + LAST_CHUNK]], True, id="nothing behind it"),
        pytest.param([[EVENT, HEADER], [REST], [DONE + LAST_CHUNK]], False, id="the next header in its read"),
        pytest.param([[EVENT], [HEADER], [REST], [DONE + LAST_CHUNK]], True, id="the next header alone"),
        pytest.param([[EVENT], [HEADER, REST], [DONE + LAST_CHUNK]], True, id="header and data of the next"),
        pytest.param([[EVENT, LAST_CHUNK]], False, id="the last chunk in its read"),
        pytest.param([[EVENT], [LAST_CHUNK]], True, id="the last chunk alone"),
    ],
)
def test_event_is_exact_only_if_its_read_ends_with_it(reads, exact):
    low, high, (before, after) = bounds(*reads)
    assert (low == high) is exact
    assert low <= after + US
    assert before <= high + US


def test_chunk_cut_in_its_data_tells_nothing_of_the_read_before():
    low, high, _ = bounds([EVENT], [HEADER + REST[:9]], [REST[9:]], [DONE + LAST_CHUNK])
    assert low == high


def test_a_reader_without_stamps_of_its_own_calls_no_event_exact():
    async def ask():
        async def talk(peer):
            await peer.request()
            await peer.send(STREAM_HEAD)
            for _ in range(3):
                await asyncio.sleep(0.005)
                await peer.send(EVENT)
            await peer.send(DONE + LAST_CHUNK)

        async with serve(talk) as port:
            endpoint = Endpoint(f"http://127.0.0.1:{port}")
            decoder = DIALECTS["openai-chat"].decoder()
            async with HttpExchange(endpoint, limits=LIMITS, clock=MachineClock(), sink=False) as exchange:
                await exchange(REQUEST, decoder.feed)
            return decoder.answer(ended=True)

    answer = asyncio.run(ask())
    assert len(answer.high_ns) == 3
    assert all(low < high for low, high in zip(answer.low_ns, answer.high_ns, strict=True))
