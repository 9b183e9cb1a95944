"""A server that tells in each event when it sent it: what the meter's own stamps are held against.

    python -m harness.simulator.truth_server [--port N] [--rate 750] [--tokens 1000] [--ttft-ms 20]
                                             [--pem FILE]

Chat completions on loopback at a fixed rate, in one thread, one write an event of some 250 bytes. When it
listens it prints a JSON line `{"url": "http://127.0.0.1:PORT/v1"}`, and with a certificate a second one for
TLS. Any POST is answered; `?tokens=N&rate=R&per_event=K` in its path are for that answer alone. `GET /stats`
tells `events`, `done`, `late_over_1ms` and `max_late_ns`. The schedule is absolute: what is late is sent at
once, and the lateness does not add up.

It is no simulated backend: those write through asyncio, which may keep bytes back, and stamp before that.
Truth is CLOCK_MONOTONIC in ns. Each event has `t_ns`, read before it is made, and `asked_ns`, when the
request had come, by the kernel's stamp where it gives one: this server may read it late. Between `t_ns`
and the write lies Python, and TLS's encryption, so an event also tells `last_ns`, the clock just before and
just after the send of the event in front of it.
"""

import argparse
import gc
import heapq
import os
import selectors
import socket
import ssl
import struct
import sys
from contextlib import suppress
from itertools import count
from select import select
from urllib.parse import parse_qs, urlsplit

import orjson

from harness.clock import monotonic_ns, realtime_ns

HOST = "127.0.0.1"
BACKLOG = 4096
SO_TIMESTAMPNS = 35
"""Said again here: nothing of the client may stand on the side that it is held against."""

LATE_NS = 1_000_000
PATIENCE_S = 5.0
"""A client that takes no bytes for so long ends the server: nothing that is measured waits so long."""

_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_EVENT = (
    b'data: {"id":"chatcmpl-%d","object":"chat.completion.chunk","created":1764561600,"model":"truth-1",'
    b'"choices":[{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}],"t_ns":%d,"asked_ns":%d,'
    b'"last_ns":[%d,%d],"i":%d%b}\n\n'
)
_USAGE = b',"usage":{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}'
_WORDS = [b" %b" % word for word in b"the agent calls a tool and waits for its answer".split()]


class Server:
    """All connections, and the heap of what is due."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.tokens = int(options.tokens)
        self.rate = float(options.rate)
        self.ttft_ns = round(options.ttft_ms * 1e6)
        self.numbers = count(1)
        self.due: list[tuple[int, int, Connection]] = []
        self.told = {"events": 0, "done": 0, "late_over_1ms": 0, "max_late_ns": 0}
        self._poll = selectors.DefaultSelector()
        self._open: dict[int, Connection] = {}
        self._listeners: dict[int, tuple[socket.socket, ssl.SSLContext | None]] = {}

    def listen(self, port: int, tls: ssl.SSLContext | None = None) -> str:
        """Take connections on `port`, 0 for a free one; gives the base URL."""
        listener = socket.create_server((HOST, port), backlog=BACKLOG)
        with suppress(OSError):  # where the kernel stamps nothing, a request has come when it is read
            listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)  # its connections inherit it
        self._listeners[listener.fileno()] = (listener, tls)
        self._poll.register(listener.fileno(), selectors.EVENT_READ)
        return f"http{'s' if tls else ''}://{HOST}:{listener.getsockname()[1]}/v1"

    def run(self, *, end: int) -> None:
        """Serve until the file `end`, a pipe, is closed at its other side."""
        watched = [self._poll.fileno(), end]
        while True:
            wait_s = max(0, self.due[0][0] - monotonic_ns()) / 1e9 if self.due else None
            ready = select(watched, [], [], wait_s)[0]  # it waits microseconds, epoll whole milliseconds
            if end in ready and not os.read(end, 4096):
                return
            if ready:
                self._read()
            while self.due and (late_ns := monotonic_ns() - self.due[0][0]) >= 0:
                _, _, connection = heapq.heappop(self.due)
                self.told["late_over_1ms"] += late_ns > LATE_NS
                self.told["max_late_ns"] = max(self.told["max_late_ns"], late_ns)
                if self._open.get(connection.number) is connection:
                    connection.emit()

    def _read(self) -> None:
        for key, _ in self._poll.select(0):
            number = key.fd
            if number in self._listeners:
                listener, tls = self._listeners[number]
                accepted, _ = listener.accept()
                self._open[accepted.fileno()] = Connection(self, accepted, tls)
                self._poll.register(accepted.fileno(), selectors.EVENT_READ)
            elif not self._open[number].receive():
                self._poll.unregister(number)
                self._open.pop(number).close()


class Connection:
    """One client's connection and the answer that runs on it."""

    def __init__(self, server: Server, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        self.number = sock.fileno()
        self._server = server
        self._socket = sock
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(PATIENCE_S)
        self._asked = b""
        self._answer = self._sent = self._events = self._per_event = self._interval_ns = 0
        self._arrived_ns = self._asked_ns = self._start_ns = 0
        self._last_ns = (0, 0)
        self._tls: ssl.SSLObject | None = None
        if tls is not None:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()

    def receive(self) -> bool:
        """Take what has come; False if the client has left."""
        try:
            read, control, _, _ = self._socket.recvmsg(65_536, 64)
            came: bytes | None = read
            self._arrived_ns = arrival_ns(control)
            if came and self._tls is not None:
                came = self._decrypt(self._tls, came)
        except (OSError, ssl.SSLError):
            return False
        self._asked += came or b""
        head, whole, rest = self._asked.partition(b"\r\n\r\n")
        _, told, size = head.lower().partition(b"content-length:")
        if whole and len(rest) >= (int(size.split(b"\r\n")[0]) if told else 0):
            self._asked = b""
            self._begin(head)
        return came != b""

    def _decrypt(self, tls: ssl.SSLObject, came: bytes) -> bytes | None:
        """Give what the client said in plain; None where it only shook hands."""
        self._incoming.write(came)
        said = None
        with suppress(ssl.SSLWantReadError):
            tls.do_handshake()  # nothing, once it is done
            said = tls.read(65_536)
        if self._outgoing.pending:
            self._socket.sendall(self._outgoing.read())
        return said

    def _begin(self, head: bytes) -> None:
        method, path, _ = head.split(b"\r\n")[0].decode().split(" ", 2)
        if method == "GET":
            told = orjson.dumps(self._server.told)
            self._send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))
            return
        asked = {key: float(values[0]) for key, values in parse_qs(urlsplit(path).query).items()}
        self._answer, self._sent = next(self._server.numbers), 0
        self._per_event = int(asked.get("per_event", 1))
        self._events = max(1, int(asked.get("tokens", self._server.tokens)) // self._per_event)
        self._interval_ns = round(1e9 * self._per_event / asked.get("rate", self._server.rate))
        self._asked_ns, self._start_ns = self._arrived_ns, monotonic_ns() + self._server.ttft_ns
        self._send(_HEAD)
        self._wait()

    def _wait(self) -> None:
        due_ns = self._start_ns + self._sent * self._interval_ns
        heapq.heappush(self._server.due, (due_ns, self._answer, self))

    def emit(self) -> None:
        """Send the next event, and the end behind the last one."""
        words = (_WORDS[(self._sent + i) % len(_WORDS)] for i in range(self._per_event))
        self._send(self._event(b'{"content":"%b"}' % b"".join(words), b"null"))
        self._sent += 1
        self._server.told["events"] += 1
        if self._sent < self._events:
            self._wait()
            return
        tokens = self._events * self._per_event
        ending = self._event(b"{}", b'"stop"', _USAGE % (tokens, tokens + 10))
        self._send(ending + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        self._server.told["done"] += 1

    def _event(self, delta: bytes, finish: bytes, more: bytes = b"") -> bytes:
        event = _EVENT % (
            100_000_000 + self._answer,
            delta,
            finish,
            monotonic_ns(),
            self._asked_ns,
            *self._last_ns,
            self._sent,
            more,
        )
        return b"%x\r\n%b\r\n" % (len(event), event)

    def _send(self, data: bytes) -> None:
        if self._tls is not None:
            self._tls.write(data)
            data = self._outgoing.read()
        before_ns = monotonic_ns()
        try:
            self._socket.sendall(data)
        except ConnectionError:  # the client has left; its end is read next
            return
        self._last_ns = (before_ns, monotonic_ns())


def arrival_ns(control: list[tuple[int, int, bytes]]) -> int:
    """Put the kernel's stamp of a read on CLOCK_MONOTONIC; the time of now where there is none."""
    if not control:
        return monotonic_ns()
    seconds, ns = struct.unpack("qq", control[0][2])
    pairs = [(monotonic_ns(), realtime_ns(), monotonic_ns()) for _ in range(4)]
    before, wall, after = min(pairs, key=lambda three: three[2] - three[0])  # the one least interrupted
    return int(seconds * 1_000_000_000 + ns - wall + (before + after) // 2)


def main(arguments: list[str] | None = None) -> None:
    """Serve until standard input, a pipe, is closed."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.simulator.truth_server", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--port", type=int, default=0, help="of the plain listener; 0: any")
    parser.add_argument("--rate", type=float, default=750, help="tokens a second of a stream")
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--ttft-ms", type=float, default=20)
    parser.add_argument("--pem", help="certificate and key: listen for TLS too")
    options = parser.parse_args(arguments)
    server = Server(options)
    urls = [server.listen(options.port)]
    if options.pem:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(options.pem)
        urls.append(server.listen(0, tls))
    for url in urls:
        sys.stdout.write(orjson.dumps({"url": url}).decode() + "\n")
    sys.stdout.flush()
    gc.freeze()
    gc.disable()  # nothing here is a cycle, and a collection would make events late
    server.run(end=sys.stdin.fileno())


if __name__ == "__main__":
    main()
