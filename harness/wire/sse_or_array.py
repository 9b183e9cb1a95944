"""Bodies that are server-sent events or a JSON array: the first byte that is not blank tells which."""

from harness.wire.json_array import ElementReader
from harness.wire.sse import FrameReader

_BOM = b"\xef\xbb\xbf"
_BLANK_BYTES_MAX = 4096


class EitherReader:
    """Waits for the first byte, then hands all to the reader that it asks for; attributes are that one's."""

    __slots__ = ("_held", "_reader", "clean", "junk", "names", "too_large")

    def __init__(self) -> None:
        self._held = b""
        self._reader: FrameReader | ElementReader | None = None
        self.clean = False
        self.junk = b""
        self.names: dict[int, str] = {}
        self.too_large = False

    def whole(self, data: bytes) -> bytes | None:
        """Return the payload if `data` is just one event; else nothing is read."""
        payload = None if self._reader is None else self._reader.whole(data)
        if payload is not None:
            self.clean = True
        return payload

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payloads of the events that `data` completes."""
        reader = self._reader
        if reader is None:
            self._held = data = self._held + data
            start = data[:_BLANK_BYTES_MAX].removeprefix(_BOM).lstrip()[:1]
            if len(data) < _BLANK_BYTES_MAX and (not start or _BOM.startswith(data)):
                return []
            reader = self._choose(start)
            data, self._held = self._held, b""
        payloads = reader.feed(data)
        self._copy(reader)
        return payloads

    def flush(self) -> list[bytes]:
        """End the stream: the payloads of events that lack only their end."""
        reader = self._reader or self._choose(b"")
        payloads = reader.feed(self._held) + reader.flush()
        self._held = b""
        self._copy(reader)
        return payloads

    def _choose(self, start: bytes) -> FrameReader | ElementReader:
        if start in (b"[", b"{"):
            self._held = self._held.removeprefix(_BOM)
            self._reader = ElementReader()
        else:
            self._reader = FrameReader()
        return self._reader

    def _copy(self, reader: FrameReader | ElementReader) -> None:
        self.clean, self.names = reader.clean, reader.names
        self.junk, self.too_large = reader.junk, reader.too_large
