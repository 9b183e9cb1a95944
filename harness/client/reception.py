"""What one exchange has seen so far, and the Timeline made of it at any moment."""

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import aiohttp
from aiohttp.client_proto import ResponseHandler

from harness.client.marks import Marks
from harness.client.stamped_socket import StampedSocket, by_fileno
from harness.client.told import limits_told, resend_told
from harness.clock import Clock, wall_time
from harness.values import CallError, OnRead, Progress, StampClock, Timeline

_OUTPUT = Progress.OUTPUT  # looking a member up costs more than the rest of a read
_TURNS_TO_READ = 2  # the loop looks for bytes in the first, hands them out before the second
_RTT = struct.Struct("68xI")  # struct tcp_info up to tcpi_rtt, the smoothed round trip in us


@dataclass(slots=True, eq=False)
class Reception:
    """The state of one exchange; however the body is read, its pieces come to `take`.

    `began_ns` is when the exchange was asked for. `ended` is done at the DONE mark, at the body's end, or
    with the exception that stopped it; `over` says so too, and stays right where the one who waits was
    cancelled. `first_output` is called once, when limits on silence begin to count from outputs.
    `upgrading`: the connection is not usable before it is a WebSocket; `leave` frees the call's lane there,
    told whether its answer is complete. `header_ns` is the stamp of a chunk's header that none of its data
    has followed yet, else 0. `between_chunks`: aiohttp's parser has had the end of a chunk and nothing of
    the next one.
    """

    clock: Clock
    on_read: OnRead
    ended: "asyncio.Future[None]"
    began_ns: int
    first_output: Callable[[], None] = lambda: None
    connection: Literal["new", "reused"] = "new"
    connected: bool = False
    reconnects: int = 0
    upgrading: bool = False
    upgrade_ns: int = 0
    round_trip_ns: int = 0
    cancelled_ns: int | None = None
    last_byte_ns: int | None = None
    over: bool = False
    transport: asyncio.Transport | None = None
    protocol: ResponseHandler | None = None
    response: aiohttp.ClientResponse | None = None
    headers_ns: int | None = None
    status: int | None = None
    content_type: str | None = None
    request_id: str | None = None
    limits_told: Mapping[str, float] = field(default_factory=dict)
    resend_told: bool | None = None
    framed: bool = True
    compressed: bool = False
    body: bytes | None = None
    received_bytes: int = 0
    last_output_ns: int | None = None
    done_ns: int | None = None
    marked_done: bool = False
    error: CallError | None = None
    stamps_kept: bool = True
    leave: Callable[[bool], None] | None = None
    header_ns: int = 0
    between_chunks: bool = False
    marks: Marks = field(init=False)
    _socket: StampedSocket | None = None
    _secure: bool = False
    _arrival_before_ns: int = 0
    _loop_reads_before: int = 0

    def __post_init__(self) -> None:
        self.marks = Marks(self.clock)

    @property
    def sent_ns(self) -> int:
        """When this exchange first touched the network; until then, when it was asked for."""
        return self.marks.sent_ns or self.began_ns

    def opened(self) -> None:
        """Note that the new connection stands, TLS included."""
        self.marks.opened()
        self.connected = not self.upgrading

    def upgraded(self, response: aiohttp.ClientResponse) -> None:
        """Note that the new connection is a WebSocket; what was read so far is no part of an answer."""
        self.response = response
        self.upgrade_ns = self.stamp_ns() - self.marks.asked_ns
        self.connected = True
        self._reads_from_here()

    def reuses(self) -> None:
        """Note that an idle connection was taken from the pool."""
        self.connection = "reused"
        self.connected = True

    def uses(self, connection: aiohttp.connector.Connection) -> None:
        """Find the stamped socket before an answer comes: a short one lets go of its connection."""
        self.transport, self.protocol = connection.transport, connection.protocol
        if self.transport is None:  # lost already; aiohttp tells when it reads
            return
        self._secure = self.transport.get_extra_info("sslcontext") is not None
        self._socket = by_fileno(self.transport.get_extra_info("socket").fileno())
        self._reads_from_here()

    def follows(self, opener: "Reception") -> None:
        """Read from the connection that was opened for another exchange, and is open."""
        self.reuses()
        self.protocol, self._socket = opener.protocol, opener._socket  # noqa: SLF001 - of its own kind
        self._reads_from_here()

    def _reads_from_here(self) -> None:
        if self._socket is not None:
            self._arrival_before_ns = self._socket.arrival_ns
            self._loop_reads_before = self._socket.loop_reads

    def answered(self, response: aiohttp.ClientResponse) -> None:
        """Keep the facts of the headers; to be called before any other read can happen."""
        self.response = response
        self.headers_ns = self.stamp_ns()
        self.round_trip()
        self.status = response.status
        headers = response.headers
        self.content_type = headers.get("Content-Type", "").partition(";")[0].strip().lower() or None
        self.request_id = headers.get("x-request-id")
        self.limits_told = limits_told(headers, wall_s=wall_time())
        self.resend_told = resend_told(headers)
        self.compressed = headers.get("Content-Encoding", "identity").strip().lower() not in {"", "identity"}
        self.framed = "Content-Length" in headers or "Transfer-Encoding" in headers

    def round_trip(self) -> None:
        """Ask the kernel for the path's round trip, while the connection is open."""
        self.round_trip_ns = _round_trip_ns(self._socket)

    def heard(self) -> bool:
        """Tell whether any byte of an answer has come."""
        return self._socket is not None and self._socket.arrival_ns != self._arrival_before_ns

    def lost(self) -> Exception | None:
        """Tell what broke the connection, if it broke: aiohttp's words for a cut body do not."""
        error = self.protocol.exception() if self.protocol is not None else None
        return error if isinstance(error, aiohttp.ClientOSError) else None

    def stamp_ns(self) -> int:
        """Arrival of the newest byte read from the connection."""
        return self._socket.arrival_ns if self._socket is not None else self.clock.now_ns()

    def take(self, data: bytes) -> None:
        """Hand a piece of the body on, with the stamp of the read that brought it.

        A mistake in `on_read` ends the exchange and is raised from it: inside the HTTP parser it would
        pass for a broken body.
        """
        if self.over:
            return
        self.received_bytes += len(data)
        sock = self._socket
        stamp = self.clock.now_ns() if sock is None else sock.arrival_ns
        try:
            if self.header_ns:
                if self.header_ns != stamp:  # it ended a read before this one, so no event ended that
                    self.on_read(b"", self.header_ns)
                self.header_ns = 0
            progress = self.on_read(data, stamp)
            if (sock is not None and sock.stopped) or not self.stamps_kept:
                self.on_read(b"", stamp)
        except Exception as mistake:  # noqa: BLE001 - raised again where the exchange waits
            self._finish(mistake)
            return
        if progress is _OUTPUT and self.last_output_ns is not None:  # the usual
            self.last_output_ns = stamp
        elif progress:
            self._moved(progress, stamp)

    def went_on(self) -> None:
        """Tell that the newest read brought bytes of something else behind all that was taken."""
        if not self.over:
            self.on_read(b"", self.stamp_ns())

    def _moved(self, progress: Progress, stamp: int) -> None:
        if progress == Progress.DONE:
            self.done_ns, self.marked_done = stamp, True
            self._finish()
            return
        first = self.last_output_ns is None
        self.last_output_ns = stamp
        if first:
            self.first_output()

    def end(self, error: BaseException | None = None) -> None:
        """Close the body: it came to its end, or `error` cut it."""
        if self.header_ns:  # of the last chunk, which has no data
            self.take(b"")
        if self.over:
            return
        if error is None:
            # a framed body ends with the read that completed it; a bare close is no read
            self.done_ns = self.stamp_ns() if self.framed else self.clock.now_ns()
        self._finish(error)

    def _finish(self, error: BaseException | None = None) -> None:
        """Wake who waits, unless it was cancelled."""
        self.over = True
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)

    async def cancelled(self) -> None:
        """Note when the caller cancelled, and take what lies in the kernel's queue by now.

        That is all that can be seen of what a server sends after: on a closed connection nothing comes.
        """
        self.cancelled_ns = self.clock.now_ns()
        with suppress(asyncio.CancelledError):  # cancelled twice is cancelled
            for _ in range(_TURNS_TO_READ):
                await asyncio.sleep(0)
        self.last_byte_ns = self.stamp_ns() if self.heard() else None

    def timeline(self) -> Timeline:
        """Put into one value what is known now."""
        stamped = self._socket is not None and self._socket.loop_reads == self._loop_reads_before
        answered = self.headers_ns is not None or self.received_bytes > 0
        kernel = stamped and self.stamps_kept and answered
        return Timeline(
            sent_ns=self.sent_ns,
            done_ns=self.clock.now_ns() if self.done_ns is None else self.done_ns,
            headers_ns=self.headers_ns,
            status=self.status,
            content_type=self.content_type,
            body=self.body,
            connection=self.connection,
            clock=StampClock.KERNEL if kernel else StampClock.LOOP,
            dns_ns=self.marks.dns_ns(),
            connect_ns=self.marks.connect_ns(),
            tls_ns=self.marks.secure_ns() if self._secure else 0,
            upgrade_ns=self.upgrade_ns,
            round_trip_ns=self.round_trip_ns,
            reconnects=self.reconnects,
            last_byte_ns=self.last_byte_ns,
            cancelled_ns=self.cancelled_ns,
            received_bytes=self.received_bytes,
            request_id=self.request_id,
            error=self.error,
            warnings=("compressed",) if self.compressed else (),
            limits_told=self.limits_told,
            resend_told=self.resend_told,
        )


def _round_trip_ns(sock: StampedSocket | None) -> int:
    """Ask the kernel for the connection's smoothed round trip; 0 where it does not tell."""
    option = getattr(socket, "TCP_INFO", None)
    if sock is None or option is None or sock.fileno() < 0:
        return 0
    (rtt_us,) = _RTT.unpack(sock.getsockopt(socket.IPPROTO_TCP, option, _RTT.size))
    return int(rtt_us) * 1000
