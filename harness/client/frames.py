"""A WebSocket's bytes cut into messages (RFC 6455, section 5); knows when a read ended inside one."""

import os
from collections.abc import Iterator
from enum import IntEnum

from harness.values import ErrorKind

MESSAGE_BYTES = 16 * 2**20
"""A longer message is refused: an event of a stream is some hundred bytes."""

_CONTROL_BYTES = 125
_LENGTH_BYTES = {126: 2, 127: 8}
_FIN, _RESERVED, _MASKED, _LENGTH, _OPCODE = 0x80, 0x70, 0x80, 0x7F, 0x0F


class Opcode(IntEnum):
    """What a frame is."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class BrokenError(Exception):
    """These bytes are no WebSocket's: the kind of the failure, and what the server did."""

    def __init__(self, kind: ErrorKind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


class ClosedError(Exception):
    """The server closed the WebSocket with a frame that says so; `code` is None where it names none."""

    def __init__(self, payload: bytes) -> None:
        self.code = int.from_bytes(payload[:2]) if len(payload) > 1 else None
        self.reason = payload[2:].decode(errors="replace")
        super().__init__(self.reason)


class FrameReader:
    """Takes bytes of a server as they come; `clean`: they ended where a message or a control frame did."""

    __slots__ = ("_kept", "_message", "_needed", "_opcode")

    def __init__(self) -> None:
        self._kept = bytearray()  # of a frame that is not complete
        self._needed = 0  # so many bytes must be there before it is worth looking again
        self._message: list[bytes] = []  # fragments of a message whose last one has not come
        self._opcode = Opcode.CONTINUATION

    @property
    def clean(self) -> bool:
        """Whether nothing is kept."""
        return not self._kept and not self._message

    def feed(self, data: bytes) -> Iterator[tuple[Opcode, bytes]]:
        """Give what `data` completes: whole messages (TEXT, BINARY) and control frames, in order.

        Raises BrokenError where the bytes are no frames of a server; what came before it has been given.
        """
        if self._kept:
            self._kept += data
            if len(self._kept) < self._needed:
                return
            data = bytes(self._kept)
            self._kept.clear()
        at = 0
        while at < len(data):
            end, start = self._frame(data, at)
            if end > len(data):
                self._kept += data[at:]
                self._needed = end - at
                return
            whole = self._whole(data[at], data[start:end])
            at = end
            if whole is not None:
                yield whole

    def _frame(self, data: bytes, at: int) -> tuple[int, int]:
        """Find where the frame that begins at `at` ends, and its payload begins; as far as can be told."""
        if len(data) < at + 2:
            return at + 2, at
        first, second = data[at], data[at + 1]
        if first & _RESERVED or second & _MASKED:
            raise BrokenError(ErrorKind.HTTP_ERROR, "sent bytes that are no frames of a WebSocket")
        length, start = second & _LENGTH, at + 2
        more = _LENGTH_BYTES.get(length)
        if more:
            if len(data) < start + more:
                return start + more, at
            length = int.from_bytes(data[start : start + more])
            start += more
        if sum(map(len, self._message)) + length > MESSAGE_BYTES:
            size = MESSAGE_BYTES // 2**20
            raise BrokenError(ErrorKind.TOO_LARGE, f"sent a message longer than {size} MiB")
        return start + length, start

    def _whole(self, first: int, payload: bytes) -> tuple[Opcode, bytes] | None:
        """Give the message that this frame completes, or the control frame that it is."""
        try:
            opcode = Opcode(first & _OPCODE)
        except ValueError:
            raise BrokenError(ErrorKind.HTTP_ERROR, "sent bytes that are no frames of a WebSocket") from None
        last = first & _FIN
        if opcode >= Opcode.CLOSE:
            if not last or len(payload) > _CONTROL_BYTES:
                raise BrokenError(ErrorKind.HTTP_ERROR, "sent a control frame in pieces")
            return opcode, payload
        if (opcode is Opcode.CONTINUATION) is not bool(self._message):
            raise BrokenError(ErrorKind.HTTP_ERROR, "sent pieces of WebSocket messages out of order")
        if opcode is not Opcode.CONTINUATION and last:  # the usual
            return opcode, payload
        if opcode is not Opcode.CONTINUATION:
            self._opcode = opcode
        self._message.append(payload)
        if not last:
            return None
        joined, self._message = b"".join(self._message), []
        return self._opcode, joined


def control_frame(opcode: Opcode, payload: bytes) -> bytes:
    """Make a client's control frame, which is masked."""
    payload = payload[:_CONTROL_BYTES]
    mask = os.urandom(4)
    masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
    return bytes([_FIN | opcode, _MASKED | len(payload)]) + mask + masked
