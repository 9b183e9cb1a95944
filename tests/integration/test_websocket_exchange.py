"""The WebSocket exchange against servers on loopback that send chosen frames."""

import asyncio
import json
import ssl
import sys
import time

import pytest
import trustme

from harness.client.session import Endpoint
from harness.client.watchdog import CallLimits
from harness.client.websocket import WebSocketExchange
from harness.clock import MachineClock, monotonic_ns
from harness.errors import Interrupted
from harness.values import ErrorKind, Progress, Request, StampClock
from tests.raw_server import serve
from tests.websocket_server import CLOSE, PING, PONG, TEXT, closing, frame, received, upgrade

PATIENT = {"connect_s": 10, "first_output_s": 10, "stall_s": 10, "total_s": 20}
DONE = b'{"done":true}'
linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's stamps are Linux's")


def ask(number=1, conversation="task"):
    return Request("m", (), 1, path="/responses", conversation=conversation, body=b'{"ask":%d}' % number)


class Listener:
    """An on_read that keeps each message with its stamp, and what was said to have come behind."""

    def __init__(self):
        self.messages, self.stamps, self.behind = [], [], []
        self.heard = asyncio.Event()

    def __call__(self, data, stamp):
        if not data:
            self.behind.append((len(self.messages), stamp))
            return Progress.SILENT
        if json.loads(data).get("done"):
            return Progress.DONE
        self.messages.append(data)
        self.stamps.append(stamp)
        self.heard.set()
        return Progress.OUTPUT

    async def next(self):
        await self.heard.wait()
        self.heard.clear()


def as_message(body, lane):
    return json.dumps(json.loads(body) | ({"lane": lane} if lane else {})).encode()


def lane_of(message):
    return json.loads(message).get("lane", "")


def exchange(port, *, tls=None, headers=None, proxy=None, **limits):
    endpoint = Endpoint(
        f"{'https' if tls else 'http'}://127.0.0.1:{port}/v1",
        headers=headers or {},
        transport="websocket",
        proxy=proxy,
        as_message=as_message,
        lane_of=lane_of,
    )
    times = CallLimits(**(PATIENT | limits))
    return WebSocketExchange(endpoint, limits=times, clock=MachineClock(), ssl_context=tls)


@pytest.fixture(scope="module")
def tls():
    """(server's context, client's context)"""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


def one(number):
    return frame(b'{"n":%d}' % number)


def answering(*pieces, then="wait"):
    """A handler that answers the first message with each piece in a read of its own."""

    async def handler(peer):
        await upgrade(peer)
        await received(peer)
        for piece in pieces:
            await peer.send(piece)
            await asyncio.sleep(0.002)
        if then == "reset":
            peer.reset()
        elif then == "wait":
            await peer.gone()

    return handler


async def once(handler, **options):
    listener = Listener()
    async with serve(handler) as port, exchange(port, **options) as send:
        return await send(ask(), listener), listener


@linux
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_stamps_are_arrivals_though_the_loop_was_blocked(tls, secure):
    server_tls, client_tls = tls if secure else (None, None)

    async def main():
        listener, truths = Listener(), []

        async def handler(peer):
            await upgrade(peer)
            while True:
                await received(peer)
                for number in range(20):
                    before = monotonic_ns()
                    await peer.send(one(number))
                    time.sleep(0.005)
                    truths.append((before, monotonic_ns()))
                    await listener.next()
                await peer.send(frame(DONE))

        async with serve(handler, server_tls) as port, exchange(port, tls=client_tls) as send:
            timelines = []
            for _ in range(2):
                truths.clear()
                listener.stamps.clear()
                timelines.append(await send(ask(), listener))
        return timelines, listener, truths

    (new, reused), listener, truths = asyncio.run(main())
    assert (new.error, reused.error) == (None, None)
    assert reused.clock is StampClock.KERNEL
    assert len(listener.stamps) == len(truths) == 20
    for stamp, (before, unblocked) in zip(listener.stamps, truths, strict=True):
        assert before - 100_000 <= stamp < unblocked
    assert reused.sent_ns < listener.stamps[0]
    assert listener.stamps[-1] <= reused.done_ns
    assert (new.connection, reused.connection) == ("new", "reused")
    assert new.connect_ns > 0
    assert new.upgrade_ns > 0
    assert (new.tls_ns > 0) is secure
    assert (reused.connect_ns, reused.tls_ns, reused.upgrade_ns, reused.reconnects) == (0, 0, 0, 0)
    assert reused.round_trip_ns > 0


@pytest.mark.parametrize(
    ("pieces", "messages", "reads", "behind"),
    [
        pytest.param([one(1) + one(2)], 2, 1, [], id="two messages in a read"),
        pytest.param([one(1)[:4], one(1)[4:]], 1, 1, [0], id="a message in two reads"),
        pytest.param([one(1) + one(2)[:1], one(2)[1:]], 2, 2, [1], id="half a header behind"),
        pytest.param([one(1) + one(2)[:5], one(2)[5:] + one(3)], 3, 2, [1], id="half a message behind"),
        pytest.param([one(1) + frame(b"x", PING)], 1, 1, [1], id="a ping behind"),
        pytest.param([frame(b"x", PING) + one(1)], 1, 1, [], id="a ping in front"),
        pytest.param(
            [frame(b'{"n"', last=False), frame(b"", PONG), frame(b":1}", 0)], 1, 1, [0, 0], id="fragments"
        ),
        pytest.param([frame(b'{"n":"%s"}' % (b"x" * 300))], 1, 1, [], id="16 bits of length"),
        pytest.param([frame(b'{"n":"%s"}' % (b"x" * 70_000))], 1, 1, None, id="64 bits of length"),
    ],
)
def test_messages_are_stamped_and_what_is_behind_them_is_told(pieces, messages, reads, behind):
    timeline, listener = asyncio.run(once(answering(*pieces, frame(DONE))))
    assert timeline.error is None
    assert len(listener.messages) == messages
    assert len(set(listener.stamps)) == reads
    if behind is not None:
        assert [place for place, _ in listener.behind] == behind
        assert all(stamp >= listener.stamps[0] for place, stamp in listener.behind if place)


def test_a_ping_is_answered():
    async def main():
        seen = []

        async def handler(peer):
            await upgrade(peer)
            await received(peer)
            await peer.send(frame(b"echo", PING))
            seen.append(await received(peer))
            await peer.send(frame(DONE))

        async with serve(handler) as port, exchange(port) as send:
            return await send(ask(), Listener()), seen

    timeline, seen = asyncio.run(main())
    assert timeline.error is None
    assert seen == [(PONG, b"echo")]


def test_one_connection_for_each_conversation_closed_when_it_is_over():
    async def main():
        heads, seen, farewells = [], [], []

        async def handler(peer):
            heads.append(await upgrade(peer))
            while True:
                opcode, payload = await received(peer)
                if opcode == CLOSE:
                    farewells.append(payload)
                    return
                seen.append((len(heads), payload))
                await peer.send(frame(DONE))

        async with serve(handler) as port, exchange(port, headers={"Authorization": "Bearer k"}) as send:
            for conversation in ("a", "a", "b"):
                timeline = await send(ask(conversation=conversation), Listener())
                assert timeline.error is None
            held = [send.holds(name) for name in ("a", "b", "c")]
            send.leave("a")
            await asyncio.sleep(0.02)
            return heads, seen, farewells, held, send.holds("a")

    heads, seen, farewells, held, after = asyncio.run(main())
    assert len(heads) == 2
    assert heads[0].startswith(b"GET /v1/responses HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer k\r\n" in heads[0]
    assert [number for number, _ in seen] == [1, 1, 2]
    assert farewells[0] == b"\x03\xe8"
    assert (held, after) == ([True, True, False], False)


@pytest.mark.parametrize("how", ["close frame", "end", "reset"])
def test_a_connection_that_the_server_closed_between_calls_is_opened_again_and_counted(how):
    async def main():
        async def handler(peer):
            await upgrade(peer)
            await received(peer)
            await peer.send(frame(DONE))
            if how == "close frame":
                await peer.send(closing(1001))
                await peer.gone()
            elif how == "reset":
                await asyncio.sleep(0.005)
                peer.reset()

        async with serve(handler) as port, exchange(port) as send:
            first = await send(ask(1), Listener())
            await asyncio.sleep(0.05)
            held = send.holds("task")
            return first, held, await send(ask(2), Listener())

    first, held, second = asyncio.run(main())
    assert held is False
    assert (first.error, second.error) == (None, None)
    assert (first.reconnects, second.reconnects) == (0, 1)
    assert second.connection == "new"
    assert second.upgrade_ns > 0


@pytest.mark.parametrize("how", ["close frame", "end"])
def test_t03_a_message_on_a_connection_that_the_server_closes_is_told_and_not_sent_again(how):
    async def main():
        seen = []

        async def handler(peer):
            await upgrade(peer)
            seen.append(await received(peer))
            await peer.send(frame(DONE))
            seen.append(await received(peer))
            if how == "close frame":
                await peer.send(closing(1001, b"idle"))

        async with serve(handler) as port, exchange(port) as send:
            await send(ask(1), Listener())
            return await send(ask(2), Listener()), seen

    timeline, seen = asyncio.run(main())
    assert timeline.error.kind is ErrorKind.STALE_CONNECTION
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("pieces", "then", "kind", "said"),
    [
        pytest.param([], "close", ErrorKind.RESET, "it had not answered in whole", id="no answer"),
        pytest.param([], "reset", ErrorKind.RESET, "Connection reset by peer", id="reset"),
        pytest.param([one(1)], "close", ErrorKind.TRUNCATED, "before the body's end", id="ends early"),
        pytest.param([one(1)], "reset", ErrorKind.RESET, "Connection reset by peer", id="reset amid"),
        pytest.param(
            [one(1), closing(1001, b"going")],
            "close",
            ErrorKind.TRUNCATED,
            "before the answer's end (close code 1001: going)",
            id="going away",
        ),
        pytest.param(
            [closing()],
            "close",
            ErrorKind.RESET,
            "closed the connection before the answer's end",
            id="closes",
        ),
        pytest.param(
            [closing(1011, b"oh no")],
            "close",
            ErrorKind.STREAM_ERROR,
            "closed the connection (close code 1011: oh no)",
            id="failed",
        ),
        pytest.param([b"HTTP/1.1 200 OK"], "close", ErrorKind.HTTP_ERROR, "no frames", id="no frames"),
        pytest.param([b"\x81\x85abcd12345"], "close", ErrorKind.HTTP_ERROR, "no frames", id="masked"),
        pytest.param([frame(b"x", 0)], "close", ErrorKind.HTTP_ERROR, "out of order", id="lost beginning"),
        pytest.param([frame(b"x", PING, last=False)], "close", ErrorKind.HTTP_ERROR, "in pieces", id="ping"),
        pytest.param(
            [b"\x81\x7f" + (1 << 40).to_bytes(8)],
            "close",
            ErrorKind.TOO_LARGE,
            "longer than 16 MiB",
            id="endless",
        ),
    ],
)
def test_what_breaks_is_a_value(pieces, then, kind, said):
    timeline, _ = asyncio.run(once(answering(*pieces, then=then)))
    assert timeline.error.kind is kind, timeline.error
    assert timeline.error.message.startswith("127.0.0.1:")
    assert said in timeline.error.message
    assert timeline.done_ns > timeline.sent_ns


def refusing(answer):
    async def handler(peer):
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(answer)
        await peer.gone()

    return handler


@pytest.mark.parametrize(
    ("status", "location"), [(401, b""), (429, b""), (307, b"Location: http://127.0.0.1:9/\r\n"), (200, b"")]
)
def test_a_refused_upgrade_keeps_the_servers_answer_and_follows_nothing(status, location):
    body = b'{"error":{"message":"no"}}'
    head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % (status, len(body))
    timeline, _ = asyncio.run(once(refusing(head + location + b"\r\n" + body)))
    assert (timeline.status, timeline.body, timeline.error) == (status, body, None)
    assert timeline.content_type == "application/json"


def test_an_upgrade_that_breaks_is_not_sent_again():
    async def main():
        seen = []

        async def handler(peer):
            seen.append(await peer.reader.readuntil(b"\r\n\r\n"))

        async with serve(handler) as port, exchange(port) as send:
            return await send(ask(), Listener()), seen

    timeline, seen = asyncio.run(main())
    assert timeline.error.kind is ErrorKind.RESET
    assert len(seen) == 1


def test_wrong_handshake_is_an_error():
    answer = b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"
    timeline, _ = asyncio.run(once(refusing(answer)))
    assert timeline.error.kind is ErrorKind.HTTP_ERROR


@pytest.mark.parametrize(
    ("limits", "kind"),
    [
        ({"first_output_s": 0.1}, ErrorKind.FIRST_OUTPUT_TIMEOUT),
        ({"total_s": 0.1}, ErrorKind.TOTAL_TIMEOUT),
    ],
)
def test_limits(limits, kind):
    async def main():
        gone = asyncio.Event()

        async def handler(peer):
            await upgrade(peer)
            await received(peer)
            await peer.gone()
            gone.set()

        async with serve(handler) as port, exchange(port, **limits) as send:
            timeline = await send(ask(), Listener())
            await asyncio.wait_for(gone.wait(), 10)
            return timeline

    timeline = asyncio.run(main())
    assert timeline.error.kind is kind
    assert timeline.done_ns - timeline.sent_ns >= 100_000_000


def test_upgrade_that_never_comes_hits_the_connect_limit():
    async def handler(peer):
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.gone()

    timeline, _ = asyncio.run(once(handler, connect_s=0.1))
    assert timeline.error.kind is ErrorKind.CONNECT_TIMEOUT


def test_calls_at_the_same_time_go_in_lanes_of_one_connection():
    async def main():
        heads, listeners = [], [Listener() for _ in range(3)]

        async def handler(peer):
            heads.append(await upgrade(peer))
            await received(peer)
            await peer.send(frame(DONE))
            asked = [json.loads((await received(peer))[1]) for _ in range(3)]
            for call in reversed(asked):
                told = {"lane": call["lane"]} if "lane" in call else {}
                await peer.send(frame(json.dumps({"n": call["ask"]} | told).encode()))
                await peer.send(frame(json.dumps({"done": True} | told).encode()))
            await peer.gone()

        async with serve(handler) as port, exchange(port) as send:
            await send(ask(), Listener())
            calls = [send(ask(number), listener) for number, listener in enumerate(listeners)]
            return await asyncio.gather(*calls), listeners, heads

    timelines, listeners, heads = asyncio.run(main())
    assert [timeline.error for timeline in timelines] == [None] * 3
    assert [json.loads(one.messages[0])["n"] for one in listeners] == [0, 1, 2]
    assert len(heads) == 1


def test_cancelling_closes_the_connection_and_keeps_what_was_measured():
    async def main():
        closed, listener = asyncio.Event(), Listener()

        async def handler(peer):
            await upgrade(peer)
            await received(peer)
            await peer.send(one(1))
            await peer.gone()
            closed.set()

        async with serve(handler) as port, exchange(port) as send:
            task = asyncio.ensure_future(send(ask(), listener))
            await listener.next()
            task.cancel()
            with pytest.raises(Interrupted) as interrupted:
                await task
            await asyncio.wait_for(closed.wait(), 10)
            return interrupted.value.timeline, listener, send.holds("task")

    timeline, listener, held = asyncio.run(main())
    assert timeline.error is None
    assert len(listener.messages) == 1
    assert timeline.cancelled_ns >= timeline.last_byte_ns
    assert held is False


def test_cancelling_one_of_two_calls_leaves_the_other_its_connection():
    async def main():
        listeners = [Listener(), Listener()]

        async def handler(peer):
            await upgrade(peer)
            for _ in range(2):
                await received(peer)
            await peer.send(one(1))
            await listeners[0].next()
            while not tasks[0].done():
                await asyncio.sleep(0.001)
            await peer.send(one(2))  # of the answer that nobody wants any more
            await peer.send(frame(b'{"n":3,"lane":"lane-1"}'))
            await peer.send(frame(b'{"done":true,"lane":"lane-1"}'))
            await peer.gone()
            gone.set()

        gone = asyncio.Event()
        async with serve(handler) as port, exchange(port) as send:
            tasks = [asyncio.ensure_future(send(ask(i), listeners[i])) for i in range(2)]
            await listeners[0].heard.wait()
            tasks[0].cancel()
            with pytest.raises(Interrupted):
                await tasks[0]
            timeline = await tasks[1]
            await asyncio.wait_for(gone.wait(), 10)
            return timeline, listeners

    timeline, listeners = asyncio.run(main())
    assert timeline.error is None
    assert [len(one.messages) for one in listeners] == [1, 1]


def test_a_mistake_in_on_read_is_raised_as_it_is():
    def mistaken(data, stamp):
        raise ZeroDivisionError

    async def main():
        async with serve(answering(one(1))) as port, exchange(port) as send:
            await send(ask(), mistaken)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())


def test_what_comes_with_the_answer_to_the_upgrade_is_no_part_of_an_answer():
    async def main():
        async def handler(peer):
            await upgrade(peer, then=frame(b'{"hello":1}') + one(1)[:2])
            await received(peer)
            await peer.send(one(1)[2:] + frame(DONE))
            await peer.gone()

        listener = Listener()
        async with serve(handler) as port, exchange(port) as send:
            return await send(ask(), listener), listener

    timeline, listener = asyncio.run(main())
    assert timeline.error is None
    assert listener.messages == [b'{"n":1}']


def test_large_message_is_sent_whole():
    async def main():
        seen = []

        async def handler(peer):
            await upgrade(peer)
            seen.append(await received(peer))
            await peer.send(frame(DONE))
            await peer.gone()

        body = json.dumps({"ask": "x" * 300_000}).encode()
        request = Request("m", (), 1, path="/responses", conversation="t", body=body)
        async with serve(handler) as port, exchange(port) as send:
            return await send(request, Listener()), seen, body

    timeline, [(opcode, payload)], body = asyncio.run(main())
    assert timeline.error is None
    assert opcode == TEXT
    assert json.loads(payload) == json.loads(body)
