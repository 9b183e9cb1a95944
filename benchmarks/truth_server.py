"""A server that tells in each event when it sent it: chat completions at a fixed rate, plain or over TLS.

    python truth_server.py --port N --rate 750 --tokens 1000 --ttft-ms 50 [--cert FILE --key FILE]

One thread, loopback only, one write per token, one event of some 250 bytes per write. Any POST is
answered; `?tokens=N` in its path makes an answer shorter. `GET /stats` tells `events`, `done`,
`late_over_1ms` and `max_late_ns`. The schedule is absolute: what is late is sent at once, and the
lateness does not add up.

Truth is CLOCK_MONOTONIC in ns. `t_ns` is read before an event is made. Between that and its write lies
Python, and TLS's encryption, so an event also tells `last_ns`, the clock just before and just after the
send of the event in front of it.
"""

import argparse
import gc
import heapq
import select
import socket
import ssl
from contextlib import suppress
from itertools import count
from time import monotonic_ns

LATE_NS = 1_000_000
PATIENCE_S = 5.0
"""A client that takes no bytes for so long ends the server: nothing that is measured waits so long."""

_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_EVENT = (
    b'data: {"id":"chatcmpl-%d","object":"chat.completion.chunk","created":1764561600,"model":"bench-1",'
    b'"choices":[{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}],"t_ns":%d,"last_ns":[%d,%d],"i":%d%b}'
    b"\n\n"
)
_USAGE = b',"usage":{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}'
_WORDS = [b'{"content":" %b"}' % word for word in b"the agent calls a tool and waits for its answer".split()]


class Server:
    """All connections, and the heap of what is due."""

    def __init__(self, options: argparse.Namespace, tls: ssl.SSLContext | None) -> None:
        self.tokens = options.tokens
        self.interval_ns = round(1e9 / options.rate)
        self.ttft_ns = round(options.ttft_ms * 1e6)
        self.tls = tls
        self.numbers = count(1)
        self.due: list[tuple[int, int, Connection]] = []
        self.told = {"events": 0, "done": 0, "late_over_1ms": 0, "max_late_ns": 0}
        self._listener = socket.create_server(("127.0.0.1", options.port), backlog=4096)
        self._poll = select.epoll()
        self._open: dict[int, Connection] = {}

    def run(self) -> None:
        """Serve for ever."""
        self._poll.register(self._listener.fileno(), select.EPOLLIN)
        watched = [self._poll.fileno()]
        while True:
            wait_s = max(0, self.due[0][0] - monotonic_ns()) / 1e9 if self.due else None
            if select.select(watched, [], [], wait_s)[0]:  # it waits microseconds, epoll whole milliseconds
                self._read()
            while self.due and (late_ns := monotonic_ns() - self.due[0][0]) >= 0:
                _, _, connection = heapq.heappop(self.due)
                self.told["late_over_1ms"] += late_ns > LATE_NS
                self.told["max_late_ns"] = max(self.told["max_late_ns"], late_ns)
                if self._open.get(connection.number) is connection:
                    connection.emit()

    def _read(self) -> None:
        for number, _ in self._poll.poll(0):
            if number == self._listener.fileno():
                accepted, _ = self._listener.accept()
                self._open[accepted.fileno()] = Connection(self, accepted)
                self._poll.register(accepted.fileno(), select.EPOLLIN)
            elif not self._open[number].receive():
                self._poll.unregister(number)
                self._open.pop(number).close()


class Connection:
    """One client's connection and the answer that runs on it."""

    def __init__(self, server: Server, sock: socket.socket) -> None:
        self.number = sock.fileno()
        self._server = server
        self._socket = sock
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(PATIENCE_S)
        self._asked = b""
        self._answer = self._sent = self._tokens = self._start_ns = 0
        self._last_ns = (0, 0)
        self._tls: ssl.SSLObject | None = None
        if server.tls is not None:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._tls = server.tls.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()

    def receive(self) -> bool:
        """Take what has come; False if the client has left."""
        try:
            came = self._socket.recv(65_536)
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
        line = head.split(b"\r\n")[0]
        if line.startswith(b"GET"):
            told = str(self._server.told).replace("'", '"').encode()
            self._send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))
            return
        _, asked, tokens = line.partition(b"tokens=")
        self._answer, self._sent = next(self._server.numbers), 0
        self._tokens = int(tokens.split()[0]) if asked else self._server.tokens
        self._start_ns = monotonic_ns() + self._server.ttft_ns
        self._send(_HEAD)
        self._wait()

    def _wait(self) -> None:
        due_ns = self._start_ns + self._sent * self._server.interval_ns
        heapq.heappush(self._server.due, (due_ns, self._answer, self))

    def emit(self) -> None:
        """Send the next event, and the end behind the last one."""
        self._send(self._event(_WORDS[self._sent % len(_WORDS)], b"null"))
        self._sent += 1
        self._server.told["events"] += 1
        if self._sent < self._tokens:
            self._wait()
            return
        usage = _USAGE % (self._tokens, self._tokens + 10)
        self._send(self._event(b"{}", b'"stop"', usage) + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        self._server.told["done"] += 1

    def _event(self, delta: bytes, finish: bytes, more: bytes = b"") -> bytes:
        event = _EVENT % (
            100_000_000 + self._answer,
            delta,
            finish,
            monotonic_ns(),
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, default=750)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--ttft-ms", type=float, default=0)
    parser.add_argument("--cert")
    parser.add_argument("--key")
    options = parser.parse_args()
    tls = None
    if options.cert:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(options.cert, options.key)
    gc.freeze()
    gc.disable()  # nothing here is a cycle, and a collection would make events late
    Server(options, tls).run()


if __name__ == "__main__":
    main()
