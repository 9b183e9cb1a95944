"""The HTTP exchange against servers on loopback that answer with chosen bytes."""

import asyncio
import contextlib
import gzip
import resource
import ssl
import sys
import time

import pytest
import trustme
from aiohttp.client_proto import ResponseHandler

from harness.client.http import BODY_BYTES, CallLimits, Endpoint, HttpExchange
from harness.client.stamped_socket import StampedSocket
from harness.clock import MachineClock, monotonic_ns
from harness.errors import Interrupted
from harness.values import ErrorKind, Progress, Request, StampClock
from tests.raw_server import LAST_CHUNK, STREAM_HEAD, chunk, serve

PATIENT = {"connect_s": 10, "first_output_s": 10, "stall_s": 10, "total_s": 20}
REQUEST = Request("m", (), 1, path="/chat", body=b'{"stream":true}')
DONE = chunk(b"data: [DONE]\n\n")
linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's stamps are Linux's")
both_ways = pytest.mark.parametrize("sink", [True, False], ids=["sink", "iter_any"])


class Listener:
    """An on_read that splits events at blank lines and keeps each with its read's stamp."""

    def __init__(self):
        self.data, self.rest = b"", b""
        self.events, self.stamps = [], []
        self.heard = asyncio.Event()

    def __call__(self, data, stamp):
        self.data += data
        *events, self.rest = (self.rest + data).split(b"\n\n")
        progress = Progress.SILENT
        for event in events:
            if event == b"data: [DONE]":
                return Progress.DONE
            if event.startswith(b"data:"):
                self.events.append(event)
                self.stamps.append(stamp)
                progress = Progress.OUTPUT
        self.heard.set()
        return progress

    async def next(self):
        await self.heard.wait()
        self.heard.clear()


def exchange(port, *, tls=None, sink=True, headers=None, transport="keep-alive", **limits):
    scheme = "https" if tls else "http"
    endpoint = Endpoint(f"{scheme}://127.0.0.1:{port}/v1", headers=headers or {}, transport=transport)
    times = CallLimits(**(PATIENT | limits))
    return HttpExchange(endpoint, limits=times, clock=MachineClock(), ssl_context=tls, sink=sink)


async def ask(handler, *, listener=None, **options):
    """One exchange with a server of its own; returns (timeline, listener)."""
    listener = listener or Listener()
    async with serve(handler) as port, exchange(port, **options) as send:
        return await send(REQUEST, listener), listener


def answer(*pieces, then="wait"):
    """A handler that sends each piece by itself and then waits for the client, closes or resets."""

    async def handler(peer):
        await peer.request()
        for piece in pieces:
            await peer.send(piece)
            await asyncio.sleep(0.001)
        if then == "reset":
            peer.reset()
        elif then == "wait":
            await peer.gone()

    return handler


@pytest.fixture(scope="module")
def tls():
    """(server's context, client's context)"""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


def step_by_step(listener, truths, count):
    """A handler that sends the next event when the last one was heard, blocking the loop in between."""

    async def handler(peer):
        while True:
            await peer.request()
            await peer.send(STREAM_HEAD)
            for i in range(count):
                before = monotonic_ns()
                await peer.send(chunk(b"data: %d\n\n" % i))
                time.sleep(0.005)
                truths.append((before, monotonic_ns()))
                await listener.next()
            await peer.send(DONE + LAST_CHUNK)

    return handler


@linux
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_stamps_are_arrivals_though_the_loop_was_blocked(tls, secure):
    server_tls, client_tls = tls if secure else (None, None)

    async def main():
        listener, truths = Listener(), []
        handler = step_by_step(listener, truths, 20)
        async with serve(handler, server_tls) as port, exchange(port, tls=client_tls) as send:
            for _ in range(2):  # the kernel may begin to stamp only now
                truths.clear()
                listener.stamps.clear()
                timeline = await send(REQUEST, listener)
        return timeline, listener, truths

    timeline, listener, truths = asyncio.run(main())
    assert timeline.clock is StampClock.KERNEL
    assert len(listener.stamps) == len(truths) == 20
    for stamp, (before, unblocked) in zip(listener.stamps, truths, strict=True):
        assert before - 100_000 <= stamp < unblocked
    assert timeline.sent_ns < timeline.headers_ns <= listener.stamps[0]
    assert listener.stamps[-1] <= timeline.done_ns


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_parser_sees_only_the_beginning_and_the_end_of_a_stream_of_one_chunk_a_read(tls, secure, monkeypatch):
    server_tls, client_tls = tls if secure else (None, None)
    seen, through = [], ResponseHandler.data_received
    monkeypatch.setattr(
        ResponseHandler, "data_received", lambda to, data: seen.append(data) or through(to, data)
    )

    async def main():
        listener = Listener()
        handler = step_by_step(listener, [], 20)
        async with serve(handler, server_tls) as port, exchange(port, tls=client_tls) as send:
            for _ in range(2):  # the second answer finds the connection as the parser left it
                timeline = await send(REQUEST, listener)
        return timeline, listener

    timeline, listener = asyncio.run(main())
    assert timeline.error is None
    assert len(listener.events) == 40
    assert len(list(filter(None, seen))) <= 2 * 3  # the head, the next chunk, the end


@both_ways
@pytest.mark.parametrize("with_headers", [True, False], ids=["with the headers", "alone"])
def test_two_events_of_one_read_have_one_stamp(sink, with_headers):
    events = chunk(b"data: a\n\n") + chunk(b"data: b\n\n")
    pieces = [STREAM_HEAD + events] if with_headers else [STREAM_HEAD, events]
    timeline, listener = asyncio.run(ask(answer(*pieces, DONE + LAST_CHUNK), sink=sink))
    assert listener.events == [b"data: a", b"data: b"]
    assert len(set(listener.stamps)) == 1
    assert (timeline.headers_ns == listener.stamps[0]) is with_headers


def test_t10_slow_small_events_have_a_stamp_each():
    events = [chunk(b"data: %050d\n\n" % i) for i in range(20)]

    async def handler(peer):
        await peer.request()
        await peer.send(STREAM_HEAD)
        for event in events:
            await asyncio.sleep(0.01)
            await peer.send(event)
        await peer.send(DONE + LAST_CHUNK)
        await peer.gone()

    _, listener = asyncio.run(ask(handler))
    assert len(set(listener.stamps)) == 20
    assert (listener.stamps[-1] - listener.stamps[0]) / 19 >= 10_000_000


def test_t01_150_streams_are_open_at_once_and_none_waits_for_a_connection():
    async def main():
        open_now, all_open = set(), asyncio.Event()

        async def handler(peer):
            await peer.request()
            open_now.add(peer)
            if len(open_now) == 150:
                all_open.set()
            await peer.send(STREAM_HEAD)
            await all_open.wait()
            await peer.send(chunk(b"data: x\n\n") + DONE + LAST_CHUNK)

        async with serve(handler) as port, exchange(port) as send:
            return await asyncio.gather(*(send(REQUEST, Listener()) for _ in range(150)))

    timelines = asyncio.run(main())
    assert [timeline.error for timeline in timelines] == [None] * 150
    assert [timeline.connection for timeline in timelines] == ["new"] * 150


@both_ways
@pytest.mark.parametrize(
    ("head", "framing"),
    [
        pytest.param(STREAM_HEAD, chunk, id="chunked"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n", bytes, id="length, no content type"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream;x=y\r\n\r\n", bytes, id="until close"
        ),
    ],
)
def test_both_ways_of_reading_give_the_same_bytes(sink, head, framing):
    events = [framing(b"data: a\n"), framing(b"\ndata: b\n\n"), framing(b": end\n")]
    if framing is chunk:
        events.append(LAST_CHUNK)
    timeline, listener = asyncio.run(ask(answer(head, *events, then="close"), sink=sink))
    assert listener.data == b"data: a\n\ndata: b\n\n: end\n"
    assert timeline.error is None
    assert timeline.done_ns >= listener.stamps[-1]
    if not sink:
        assert timeline.clock is StampClock.LOOP


@both_ways
def test_done_is_done_though_the_connection_stays_open(sink):
    timeline, listener = asyncio.run(
        ask(answer(STREAM_HEAD + chunk(b"data: x\n\n"), DONE, chunk(b"data: late\n\n")), sink=sink)
    )
    assert timeline.error is None
    assert listener.events == [b"data: x"]


@pytest.mark.parametrize(
    ("tail", "transport", "connections"),
    [
        pytest.param(LAST_CHUNK, "keep-alive", ["new", "reused"], id="last chunk came"),
        pytest.param(b"", "keep-alive", ["new", "new"], id="last chunk missing"),
        pytest.param(LAST_CHUNK, "new-connection", ["new", "new"], id="new connections asked for"),
    ],
)
def test_connection_is_used_again_only_when_its_answer_is_complete(tail, transport, connections):
    async def handler(peer):
        while True:
            await peer.request()
            await peer.send(STREAM_HEAD + chunk(b"data: x\n\n") + DONE)
            await asyncio.sleep(0.005)  # a read of its own, after the exchange has returned
            await peer.send(tail)

    async def main():
        async with serve(handler) as port, exchange(port, transport=transport) as send:
            first = await send(REQUEST, Listener())
            await asyncio.sleep(0.03)
            return [first, await send(REQUEST, Listener())]

    timelines = asyncio.run(main())
    assert [timeline.connection for timeline in timelines] == connections
    assert [timeline.error for timeline in timelines] == [None, None]
    assert all(timeline.round_trip_ns > 0 for timeline in timelines)
    assert [timeline.connect_ns > 0 for timeline in timelines] == [one == "new" for one in connections]


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_sent_is_the_first_touch_of_the_network(tls, secure, monkeypatch):
    server_tls, client_tls = tls if secure else (None, None)
    touched = {"connect": [], "send": []}

    def spied(name):
        through = getattr(StampedSocket, name)

        def call(sock, *words):
            before = monotonic_ns()
            try:
                return through(sock, *words)
            finally:
                touched[name].append((before, monotonic_ns()))

        monkeypatch.setattr(StampedSocket, name, call)

    spied("connect")
    spied("send")

    async def main():
        handler = step_by_step(listener := Listener(), [], 2)
        async with serve(handler, server_tls) as port, exchange(port, tls=client_tls) as send:
            new = await send(REQUEST, listener)
            sends = len(touched["send"])
            return new, await send(REQUEST, listener), sends

    new, reused, sends = asyncio.run(main())
    assert (new.connection, reused.connection) == ("new", "reused")
    for timeline, (before, after) in [(new, touched["connect"][0]), (reused, touched["send"][sends])]:
        assert before <= timeline.sent_ns <= after
    assert (new.tls_ns > 0) is secure
    assert new.connect_ns > 0
    assert new.connect_ns + new.tls_ns < new.headers_ns - new.sent_ns
    assert (reused.connect_ns, reused.tls_ns, reused.dns_ns, reused.upgrade_ns) == (0, 0, 0, 0)


def test_looking_a_name_up_is_told_apart_from_connecting():
    async def main():
        async with serve(answer(STREAM_HEAD, DONE + LAST_CHUNK)) as port:
            endpoint = Endpoint(f"http://localhost:{port}/v1")
            async with HttpExchange(endpoint, limits=CallLimits(**PATIENT), clock=MachineClock()) as send:
                return await send(REQUEST, Listener())

    timeline = asyncio.run(main())
    assert timeline.error is None
    assert timeline.dns_ns > 0
    assert timeline.connect_ns > 0
    assert timeline.dns_ns + timeline.connect_ns < timeline.headers_ns - timeline.sent_ns


def test_connection_without_its_last_chunk_is_closed_after_a_moment():
    async def main():
        closed = asyncio.Event()

        async def handler(peer):
            await peer.request()
            await peer.send(STREAM_HEAD + DONE)
            await peer.gone()
            closed.set()

        async with serve(handler) as port, exchange(port) as send:
            await send(REQUEST, Listener())
            assert not closed.is_set()
            await asyncio.wait_for(closed.wait(), 10)

    asyncio.run(main())


def test_t03_request_on_a_stale_connection_is_told_and_not_sent_again():
    async def main():
        requests = []

        async def handler(peer):
            requests.append(await peer.request())
            await peer.send(STREAM_HEAD + DONE + LAST_CHUNK)
            requests.append(await peer.request())

        async with serve(handler) as port, exchange(port) as send:
            await send(REQUEST, Listener())
            return await send(REQUEST, Listener()), requests

    timeline, requests = asyncio.run(main())
    assert timeline.connection == "reused"
    assert timeline.error.kind is ErrorKind.STALE_CONNECTION
    assert len(requests) == 2


@both_ways
@pytest.mark.parametrize(
    ("pieces", "then", "kind"),
    [
        pytest.param([], "close", ErrorKind.RESET, id="closed before the headers"),
        pytest.param([], "reset", ErrorKind.RESET, id="reset before the headers"),
        pytest.param([STREAM_HEAD, chunk(b"data: x\n\n")], "reset", ErrorKind.RESET, id="reset in the body"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\n\r\n", b"data: x\n\n"], "reset", ErrorKind.RESET, id="reset, no length"
        ),
        pytest.param(
            [STREAM_HEAD, chunk(b"data: x\n\n")], "close", ErrorKind.TRUNCATED, id="chunks end early"
        ),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", b"data: x\n\n"],
            "close",
            ErrorKind.TRUNCATED,
            id="length ends early",
        ),
        pytest.param([STREAM_HEAD, b"no chunk\r\n"], "wait", ErrorKind.HTTP_ERROR, id="broken chunk"),
        pytest.param([b"SSH-2.0-OpenSSH\r\n"], "wait", ErrorKind.HTTP_ERROR, id="no HTTP"),
    ],
)
def test_what_breaks_is_a_value(pieces, then, kind, sink):
    timeline, listener = asyncio.run(ask(answer(*pieces, then=then), sink=sink))
    assert timeline.error.kind is kind, timeline.error
    assert "127.0.0.1" in timeline.error.message
    assert timeline.done_ns > timeline.sent_ns
    assert len(listener.events) == (b"data" in b"".join(pieces))


HEAD = STREAM_HEAD.removesuffix(b"\r\n")
INVALID = "sent no valid HTTP/1.1: "


@both_ways
@pytest.mark.parametrize(
    ("pieces", "kind", "said", "status"),
    [
        pytest.param(
            [HEAD + b"x-a: " + b"a" * 10_000 + b"\r\n\r\n"],
            ErrorKind.HTTP_ERROR,
            INVALID + "Got more than 8190 bytes when reading",
            None,
            id="long header",
        ),
        pytest.param(
            [HEAD + b"x: y\r\n" * 500 + b"\r\n"],
            ErrorKind.HTTP_ERROR,
            INVALID + "Too many headers received",
            None,
            id="many headers",
        ),
        pytest.param(
            [HEAD + b"Content-Length: 5\r\n\r\n"],
            ErrorKind.HTTP_ERROR,
            INVALID + "Content-Length can't be present with Transfer-Encoding",
            None,
            id="both lengths",
        ),
        pytest.param(
            [STREAM_HEAD, b"SECRET\r\n"],
            ErrorKind.HTTP_ERROR,
            INVALID + "Invalid character in chunk size",
            200,
            id="bad chunk",
        ),
        pytest.param([b"SECRET\r\n"], ErrorKind.HTTP_ERROR, INVALID + "Bad status line", None, id="no HTTP"),
        pytest.param(
            [HEAD + b"Content-Encoding: br\r\n\r\n", chunk(b"data: SECRET\n\n" * 9)],
            ErrorKind.NOT_SSE,
            "sent a compressed body though it was asked not to (`identity`), and it cannot be read",
            200,
            id="brotli",
        ),
        pytest.param(
            [HEAD + b"Content-Encoding: gzip\r\n\r\n", chunk(b"SECRET")],
            ErrorKind.NOT_SSE,
            "sent a compressed body though it was asked not to (`identity`), and it cannot be read",
            200,
            id="no gzip",
        ),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Le"],
            ErrorKind.RESET,
            "closed the connection: it had not answered in whole",
            None,
            id="cut headers",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_that_quotes_nothing(pieces, kind, said, status, sink):
    timeline, _ = asyncio.run(ask(answer(*pieces, then="close"), sink=sink))
    place, _, sentence = timeline.error.message.partition(" ")
    assert place.startswith("127.0.0.1:")
    assert (timeline.error.kind, sentence, timeline.status) == (kind, said, status)


@pytest.mark.parametrize(
    ("encoding", "warnings"),
    [(b"gzip", ("compressed",)), (b"Identity", ()), (b"", ())],
    ids=["gzip", "identity", "none"],
)
def test_a_compressed_body_is_read_and_told(encoding, warnings):
    body = gzip.compress(b"data: x\n\n") if encoding == b"gzip" else b"data: x\n\n"
    head = HEAD + b"Content-Encoding: " + encoding + b"\r\n\r\n"
    timeline, listener = asyncio.run(ask(answer(head, chunk(body) + LAST_CHUNK)))
    assert (timeline.error, timeline.warnings) == (None, warnings)
    assert listener.data == b"data: x\n\n"


def test_refused_connection_names_host_and_port():
    async def main():
        async with serve(answer()) as port:
            pass
        async with exchange(port) as send:
            return await send(REQUEST, Listener()), port

    timeline, port = asyncio.run(main())
    assert timeline.error.kind is ErrorKind.CONNECT
    assert timeline.error.message == f"cannot connect to 127.0.0.1:{port}: Connection refused"


def test_unknown_certificate_is_a_tls_failure(tls):
    async def main():
        untrusting = ssl.create_default_context()
        async with serve(answer(), tls[0]) as port, exchange(port, tls=untrusting) as send:
            return await send(REQUEST, Listener())

    timeline = asyncio.run(main())
    assert timeline.error.kind is ErrorKind.TLS
    assert "certificate" in timeline.error.message


def test_server_without_tls_is_a_tls_failure():
    async def handler(peer):
        await peer.reader.read(100)
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def main():
        async with serve(handler) as port, exchange(port, tls=ssl.create_default_context()) as send:
            return await send(REQUEST, Listener())

    assert asyncio.run(main()).error.kind is ErrorKind.TLS


def pinging(*pieces):
    async def handler(peer):
        await peer.request()
        for piece in pieces:
            await peer.send(piece)
        with contextlib.suppress(ConnectionError):
            while True:
                await peer.send(chunk(b": ping\n\n"))
                await asyncio.sleep(0.005)

    return handler


@both_ways
@pytest.mark.parametrize(
    ("handler", "limits", "kind", "sentence"),
    [
        pytest.param(
            pinging(STREAM_HEAD, chunk(b"data: x\n\n")),
            {"stall_s": 0.1},
            ErrorKind.IDLE_TIMEOUT,
            "no output for 0.1 s after the last one (stall limit)",
            id="only comments after the first output",
        ),
        pytest.param(
            pinging(STREAM_HEAD),
            {"first_output_s": 0.1},
            ErrorKind.FIRST_OUTPUT_TIMEOUT,
            "no output after 0.1 s (first-output limit)",
            id="only comments",
        ),
        pytest.param(
            answer(),
            {"first_output_s": 0.1},
            ErrorKind.FIRST_OUTPUT_TIMEOUT,
            "no output after 0.1 s (first-output limit)",
            id="no headers",
        ),
        pytest.param(
            pinging(STREAM_HEAD, chunk(b"data: x\n\n")),
            {"total_s": 0.1},
            ErrorKind.TOTAL_TIMEOUT,
            "not complete after 0.1 s (total limit)",
            id="total",
        ),
    ],
)
def test_limits(handler, limits, kind, sentence, sink):
    timeline, listener = asyncio.run(ask(handler, sink=sink, **limits))
    assert (timeline.error.kind, timeline.error.message) == (kind, sentence)
    assert timeline.done_ns - timeline.sent_ns >= 100_000_000
    if listener.events:
        assert timeline.status == 200


def test_t12_comments_keep_a_stalled_stream_open_but_no_output_ends_it():
    handler = pinging(STREAM_HEAD, chunk(b"data: x\n\n"))
    timeline, listener = asyncio.run(ask(handler, stall_s=0.1))
    assert timeline.error.kind is ErrorKind.IDLE_TIMEOUT
    assert timeline.sent_ns < listener.stamps[0] < timeline.done_ns - 99_000_000  # TTFT is kept
    assert listener.data.count(b": ping") > 3


def test_connect_limit():
    async def never(peer):
        await peer.reader.read()

    async def main():  # TLS is never answered, so the connection is never complete
        tls = ssl.create_default_context()
        async with serve(never) as port, exchange(port, tls=tls, connect_s=0.1) as send:
            return await send(REQUEST, Listener())

    timeline = asyncio.run(main())
    assert timeline.error.kind is ErrorKind.CONNECT_TIMEOUT
    assert timeline.error.message == "no connection after 0.1 s (connect limit)"


def reply(status, body, content_type=b"application/json"):
    head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nX-Request-Id: r-1\r\nContent-Length: %d\r\n\r\n"
    return head % (status, content_type, len(body)) + body


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        pytest.param(429, b'{"error":"slow down"}', "application/json", id="error"),
        pytest.param(200, b'{"choices":[]}', "application/json", id="not a stream"),
        pytest.param(500, b"", "text/event-stream", id="error without a body"),
    ],
)
def test_body_that_is_no_stream_is_kept(status, body, content_type):
    pieces = reply(b"%d X" % status, body, content_type.encode())
    timeline, listener = asyncio.run(ask(answer(pieces)))
    assert (timeline.status, timeline.body, timeline.content_type) == (status, body, content_type)
    assert timeline.request_id == "r-1"
    assert timeline.error is None
    assert listener.data == b""


def test_only_the_first_64_kib_of_such_a_body_are_kept():
    body = bytes(range(256)) * 1024
    timeline, _ = asyncio.run(ask(answer(reply(b"500 X", body))))
    assert timeline.body == body[:BODY_BYTES]
    assert timeline.error is None


def test_status_of_a_body_that_breaks_is_kept():
    broken = b"HTTP/1.1 503 X\r\nContent-Length: 99\r\n\r\nbusy"
    timeline, _ = asyncio.run(ask(answer(broken, then="close")))
    assert (timeline.status, timeline.body, timeline.error) == (503, b"busy", None)


def test_redirect_is_not_followed():
    moved = b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
    timeline, _ = asyncio.run(ask(answer(moved)))
    assert (timeline.status, timeline.error) == (307, None)


def test_request_on_the_wire():
    async def main():
        seen = []

        async def handler(peer):
            for _ in range(2):
                seen.append(await peer.request())
                cookie = STREAM_HEAD.replace(b"OK\r\n", b"OK\r\nSet-Cookie: a=b\r\n")
                await peer.send(cookie + DONE + LAST_CHUNK)

        async with serve(handler) as port, exchange(port, headers={"Authorization": "Bearer k"}) as send:
            for _ in range(2):
                await send(REQUEST, Listener())
        return seen

    (head, body), (again, _) = asyncio.run(main())
    assert head.startswith(b"POST /v1/chat HTTP/1.1\r\n")
    for line in (
        b"Content-Type: application/json",
        b"Accept: text/event-stream",
        b"Accept-Encoding: identity",
        b"Authorization: Bearer k",
    ):
        assert head.count(b"\r\n" + line + b"\r\n") == 1
    assert body == REQUEST.body
    assert b"cookie" not in again.lower()


def test_large_body_is_sent_whole():
    async def main():
        seen = []

        async def handler(peer):
            seen.append(await peer.request())
            await peer.send(STREAM_HEAD + DONE + LAST_CHUNK)

        request = Request("m", (), 1, path="/chat", body=b"x" * (3 << 20))
        async with serve(handler) as port, exchange(port) as send:
            timeline = await send(request, Listener())
        return timeline, seen[0][1] == request.body

    timeline, whole = asyncio.run(main())
    assert timeline.error is None
    assert whole


@pytest.mark.parametrize("started", [True, False], ids=["in the body", "before the headers"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_cancelling_closes_the_connection_and_keeps_what_was_measured(tls, secure, started):
    server_tls, client_tls = tls if secure else (None, None)

    async def main():
        asked, closed, listener = asyncio.Event(), asyncio.Event(), Listener()

        async def handler(peer):
            await peer.request()
            asked.set()
            if started:
                await peer.send(STREAM_HEAD + chunk(b"data: x\n\n"))
            await peer.gone()
            closed.set()

        async with serve(handler, server_tls) as port, exchange(port, tls=client_tls) as send:
            task = asyncio.ensure_future(send(REQUEST, listener))
            await (listener.heard if started else asked).wait()
            task.cancel()
            with pytest.raises(Interrupted) as interrupted:
                await task
            await asyncio.wait_for(closed.wait(), 10)
        return interrupted.value.timeline, listener

    timeline, listener = asyncio.run(main())
    assert timeline.sent_ns < timeline.done_ns
    assert timeline.error is None
    assert (timeline.status, len(listener.events)) == ((200, 1) if started else (None, 0))


@linux
def test_what_was_under_way_when_a_call_was_cancelled_is_taken():
    async def main():
        peers, listener = [], Listener()

        async def handler(peer):
            peers.append(peer)
            await peer.request()
            await peer.send(STREAM_HEAD + chunk(b"data: x\n\n"))
            await peer.gone()

        async with serve(handler) as port, exchange(port) as send:
            task = asyncio.ensure_future(send(REQUEST, listener))
            await listener.next()
            task.cancel()
            asyncio.get_running_loop().call_soon(peers[0].writer.write, chunk(b"data: y\n\n"))
            with pytest.raises(Interrupted) as interrupted:
                await task
        return interrupted.value.timeline, listener

    timeline, listener = asyncio.run(main())
    assert listener.events == [b"data: x", b"data: y"]
    assert listener.stamps[0] < timeline.cancelled_ns < listener.stamps[1] == timeline.last_byte_ns


def relay(port, piece_bytes):
    """A handler that passes the answers of the server at `port` on in small pieces."""

    async def handler(peer):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def back():
            while data := await reader.read(65_536):
                for at in range(0, len(data), piece_bytes):
                    await peer.send(data[at : at + piece_bytes])
                    await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(back())
            while data := await peer.reader.read(65_536):
                writer.write(data)
            writer.close()

    return handler


@pytest.mark.parametrize("piece_bytes", [3, 11, 100])
def test_tls_records_cut_anywhere_give_the_same_bytes(tls, piece_bytes):
    events = [chunk(b"data: %d\n\n" % i) for i in range(20)]

    async def main():
        origin = answer(STREAM_HEAD, *events, DONE + LAST_CHUNK)
        async with (
            serve(origin, tls[0]) as port,
            serve(relay(port, piece_bytes)) as relay_port,
            exchange(relay_port, tls=tls[1]) as send,
        ):
            listener = Listener()
            return await send(REQUEST, listener), listener

    timeline, listener = asyncio.run(main())
    assert timeline.error is None
    assert listener.events == [b"data: %d" % i for i in range(20)]


@linux
def test_new_connections_are_stamped_by_the_kernel_one_after_the_other():
    async def main():
        handler = answer(STREAM_HEAD, DONE + LAST_CHUNK)
        async with serve(handler) as port, exchange(port, transport="new-connection") as send:
            await send(REQUEST, Listener())
            await asyncio.sleep(0.1)  # the first connection is closed now, and the kernel asked by none
            return [await send(REQUEST, Listener()) for _ in range(10)]

    assert {timeline.clock for timeline in asyncio.run(main())} == {StampClock.KERNEL}


def test_t06_running_out_of_files_is_the_clients_fault():
    async def main():
        async with serve(answer()) as port, exchange(port) as send:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            assert soft == hard  # raised when the exchange was opened
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                return await send(REQUEST, Listener())
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    timeline = asyncio.run(main())
    assert timeline.error.kind is ErrorKind.CLIENT_RESOURCE
    assert timeline.error.message == "this machine ran out of sockets: Too many open files"


@both_ways
def test_a_mistake_in_on_read_is_raised_as_it_is(sink):
    def mistaken(data, stamp):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(ask(answer(STREAM_HEAD, chunk(b"data: x\n\n")), listener=mistaken, sink=sink))


def test_headers_are_not_shown():
    endpoint = Endpoint("http://h/v1", headers={"Authorization": "Bearer secret"})
    assert "secret" not in repr(endpoint)
