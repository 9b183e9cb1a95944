"""A socket that knows when the bytes it handed out reached the kernel.

The kernel stamps what arrives (SO_TIMESTAMPNS) and tells the stamp of the newest byte of a read. So
the stamp is exact for an event only if nothing lies behind that event in the read, and a read has to
end where the kernel's queue ended: a read cut short by its buffer would leave bytes of the same
segment behind, whose stamp it already carries. `recv` (asyncio's plain transport) therefore goes on
until the queue is empty; `recv_into` (asyncio's TLS, and nothing else) also waits for whole records.
"""

import socket
import struct
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from harness.client.marks import marking
from harness.clock import monotonic_ns, realtime_ns

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

READ_BYTES = 16_384
"""Bytes asked for at a time: larger buffers come from mmap and cost 10 us a read."""

STEP_NS = 20_000
"""A wall clock that moved by more than this was set; below, it is the noise of two readings."""

_KERNEL_STAMPS = sys.platform == "linux" and sys.maxsize > 2**32
_SO_TIMESTAMPNS = 35  # on x86-64 and arm64; Python has no name for it
_unpack = struct.Struct("qq").unpack  # struct timespec
_CONTROL_BYTES = 64
_TLS_HEADER_BYTES = 5
_TLS_TYPES = range(20, 25)
_TLS_RECORD_LIMIT = 16_384 + 2_048

Control = list[tuple[int, int, bytes]]


class WallOffset:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC, watched for steps.

    Both clocks are slewed together, so the difference is one constant until somebody sets the wall
    clock: it is measured carefully once, and each read only checks that it still holds.
    """

    __slots__ = ("_monotonic", "_realtime", "ns")

    def __init__(
        self, monotonic: Callable[[], int] = monotonic_ns, realtime: Callable[[], int] = realtime_ns
    ) -> None:
        self._monotonic = monotonic
        self._realtime = realtime
        self.ns = self._measure()

    def now_ns(self) -> int:
        """Tell the monotonic time, and notice if the wall clock was set since the last look."""
        now = self._monotonic()
        if not -STEP_NS < self._realtime() - now - self.ns < STEP_NS:
            measured = self._measure()  # or the process was only held up between the two readings
            if abs(measured - self.ns) > STEP_NS:
                self.ns = measured
        return now

    def _measure(self) -> int:
        """Take the tightest of several readings: one with a pause inside is worth nothing."""
        best_width = offset = 0
        for attempt in range(8):
            before = self._monotonic()
            wall = self._realtime()
            width = self._monotonic() - before
            if attempt == 0 or width < best_width:
                best_width, offset = width, wall - before - width // 2
        return offset


_WALL = WallOffset()


class StampedSocket(socket.socket):
    """Keeps the arrival time of the newest byte it has handed out.

    `arrival_ns` is on CLOCK_MONOTONIC. `loop_reads` counts the reads whose stamp is not the kernel's
    word for exactly these bytes: compare it before and after to know whether all of some reads were.
    `stopped`: the newest read's stamp is an upper bound only: the read may have left bytes behind that
    its stamp is already that of, or the stamp is the loop's. Connecting and sending are told to the marks
    of the exchange on whose behalf they happen.
    """

    __slots__ = (
        "_held",
        "_late_error",
        "_offset_ns",
        "_records",
        "_wall",
        "arrival_ns",
        "loop_reads",
        "stopped",
    )

    def __init__(self, family: int = -1, kind: int = -1, proto: int = -1, fileno: int | None = None) -> None:
        super().__init__(family, kind, proto, fileno)
        self.loop_reads = 0
        self.stopped = False
        self._held = b""
        self._late_error: OSError | None = None
        self._records = True
        self.watch(_WALL)

    def watch(self, wall: WallOffset) -> None:
        """Take the wall clock's offset from `wall` from now on."""
        self._wall = wall
        self.arrival_ns = wall.now_ns()
        self._offset_ns = wall.ns

    def connect(self, address: Any, /) -> None:  # noqa: ANN401 - handed on as it is
        """Connect, and tell when it begins."""
        marks = marking.get()
        if marks is not None:
            marks.connecting()
        super().connect(address)

    def getpeername(self) -> Any:  # noqa: ANN401 - the peer's address, of whatever family
        """Tell the peer. asyncio asks once, when it takes a connected socket into use, before any TLS."""
        marks = marking.get()
        if marks is not None:
            marks.connected()
        return super().getpeername()

    def send(self, data: "ReadableBuffer", flags: int = 0, /) -> int:
        """Send, and tell when it begins."""
        marks = marking.get()
        if marks is not None:
            marks.sent()
        return super().send(data, flags)

    def sendmsg(self, buffers: "Iterable[ReadableBuffer]", /, *more: Any) -> int:  # noqa: ANN401 - handed on as they are
        """Send several buffers at once, as asyncio does from Python 3.12 on, and tell when it begins."""
        marks = marking.get()
        if marks is not None:
            marks.sent()
        return super().sendmsg(buffers, *more)

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Read all that is queued, up to `bufsize`, and keep the stamp of the newest byte."""
        if self._late_error is not None:
            self._raise_late()
        size = READ_BYTES if bufsize > READ_BYTES else bufsize  # noqa: FURB136 - min() is slow
        data, control, _, _ = self.recvmsg(size, _CONTROL_BYTES, flags)
        if len(data) == READ_BYTES:
            data, control = self._drain(data, control, bufsize)
        if data:
            self._stamp(control, len(data) < bufsize)
        return data

    def recv_into(self, buffer: "bytearray | memoryview", nbytes: int = 0, flags: int = 0) -> int:  # type: ignore[override]
        """Read into asyncio's TLS buffer, but hand out whole TLS records only.

        A queue may end inside a record. Its stamp then belongs to bytes that cannot be decrypted yet,
        and the event in front of them would pass for exact. So such a read is held until the rest of
        the record, which is already under way, has come: the event in front keeps an upper bound and
        the record's own event gets its exact stamp. A stream that is not TLS, or that fills the whole
        buffer inside a record, is handed out as it comes, and its reads count as `loop_reads`.
        """
        self._raise_late()
        view = memoryview(buffer)[: nbytes or None]
        held = len(self._held)
        view[:held] = self._held
        try:
            count, control, _, _ = self.recvmsg_into([view[held:]], _CONTROL_BYTES, flags)
        except BlockingIOError:
            raise
        except OSError as error:
            if not held:
                raise
            count, control, self._late_error = 0, [], error
        self._held = b""
        if not count:  # the end: what was held will never be whole
            if held:
                self._stamp([], exact=False)
            return held
        total = held + count
        end = record_end(view[:total]) if self._records else 0
        if total < end and total < len(view):
            self._held = bytes(view[:total])
            raise BlockingIOError
        self._records = end == total
        self._stamp(control, self._records and total < len(view))
        return total

    def _drain(self, data: bytes, control: Control, limit: int) -> tuple[bytes, Control]:
        """Go on behind a full read until the queue is empty; the newest stamp holds for all."""
        pieces, left = [data], limit - len(data)
        while len(pieces[-1]) == READ_BYTES and left:
            try:
                more, more_control, _, _ = self.recvmsg(min(left, READ_BYTES), _CONTROL_BYTES)
            except BlockingIOError:
                break
            except OSError as error:  # the kernel tells it once; it belongs behind these bytes
                self._late_error = error
                break
            if not more:
                break
            pieces.append(more)
            control, left = more_control, left - len(more)
        return b"".join(pieces), control

    def _raise_late(self) -> None:
        error, self._late_error = self._late_error, None
        if error is not None:
            raise error

    def _stamp(self, control: Control, exact: bool) -> None:
        """Move the kernel's stamp to the monotonic axis, or take the time of now if it cannot be right.

        It cannot be if the wall clock was set since this socket's last read, or if it lies before that
        read or after now.
        """
        now = self._wall.now_ns()
        offset = self._wall.ns
        before = self.arrival_ns
        if control and offset == self._offset_ns:
            seconds, ns = _unpack(control[0][2])
            arrival = seconds * 1_000_000_000 + ns - offset
            if exact and before <= arrival <= now:  # the usual
                self.arrival_ns = arrival
                self.stopped = False
                return
            if before - STEP_NS <= arrival <= now + STEP_NS:
                self.arrival_ns = min(max(arrival, before), now)
                self.stopped = not exact
                self.loop_reads += not exact
                return
        self.arrival_ns = now  # later than the arrival: a bound, not a stamp
        self.stopped = True
        self.loop_reads += 1
        self._offset_ns = offset


def record_end(stream: memoryview) -> int:
    """Offset at which the last TLS record begun in `stream` ends: past its end if the record is open.

    `stream` starts with a record. -1: these are no TLS records.
    """
    at = 0
    while at < len(stream):
        if stream[at] not in _TLS_TYPES:
            return -1
        if at + _TLS_HEADER_BYTES > len(stream):
            return at + _TLS_HEADER_BYTES
        length = stream[at + 3] << 8 | stream[at + 4]
        if length > _TLS_RECORD_LIMIT:
            return -1
        at += _TLS_HEADER_BYTES + length
    return at


_open: "WeakValueDictionary[int, StampedSocket]" = WeakValueDictionary()


def stamped(address_info: tuple[int, int, int, str, tuple[Any, ...]]) -> StampedSocket:
    """Make the socket of one connection; for `aiohttp.TCPConnector(socket_factory=...)`."""
    family, kind, protocol, _, _ = address_info
    sock = StampedSocket(family, kind, protocol)
    if _KERNEL_STAMPS:
        with suppress(OSError):  # some sandboxes have no such option: then the loop's clock stamps
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    _open[sock.fileno()] = sock
    return sock


def by_fileno(fileno: int) -> StampedSocket:
    """Find an open socket that `stamped` made; asyncio shows only a wrapper of it."""
    return _open[fileno]
