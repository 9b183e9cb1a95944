"""Newline-delimited JSON: pieces of a body in, the text of whole lines out; blank lines say nothing."""

from harness.wire.sse import MAX_EVENT_BYTES

_BOM = b"\xef\xbb\xbf"


class LineReader:
    """Cuts one stream into lines; see `sse.FrameReader` for the attributes. Lines have no names."""

    __slots__ = ("_buffer", "_searched", "_started", "clean", "junk", "names", "too_large")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._started = False
        self.clean = False
        self.junk = b""
        self.names: dict[int, str] = {}
        self.too_large = False

    def whole(self, data: bytes) -> bytes | None:
        """Return the line if `data` is just one, as it usually is; else nothing is read."""
        usual = self._started and not self._buffer and 0 <= data.find(b"\n") == len(data) - 1
        if not usual or data.isspace():
            return None
        self.clean = True
        return data[:-1]

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes."""
        if not data or self.too_large:
            return []
        self._buffer += data
        if self._buffer.find(b"\n", self._searched) < 0:
            self.clean = False
            self._keep(self._buffer)
            return []
        *lines, rest = bytes(self._buffer).split(b"\n")
        payloads = [self._first(line) for line in lines]
        self.clean = not rest and bool(payloads[-1].strip())
        self._keep(bytearray(rest))
        return [payload for payload in payloads if payload.strip()]

    def flush(self) -> list[bytes]:
        """End the stream: the last line may lack its end."""
        rest, self._buffer = self._first(bytes(self._buffer)), bytearray()
        return [rest] if rest.strip() else []

    def _first(self, line: bytes) -> bytes:
        if self._started:
            return line
        self._started = True
        return line.removeprefix(_BOM)

    def _keep(self, rest: bytearray) -> None:
        self.too_large = len(rest) > MAX_EVENT_BYTES
        self._buffer = bytearray() if self.too_large else rest
        self._searched = len(self._buffer)
