"""A JSON array that is streamed piecewise: pieces of a body in, the text of its objects out."""

import re

from harness.wire.sse import MAX_EVENT_BYTES, MAX_JUNK_BYTES

ALONE = "alone"
"""Name of an object that stands in no array: a whole answer, or an error, where a stream was asked for."""

_NOTHING = b" \t\r\n,[]"  # between the objects
_OUTSIDE = re.compile(rb'["{}\[\]]')  # of a string: what opens and closes
_INSIDE = re.compile(rb'["\\]')


class ElementReader:
    """Cuts one stream into objects; see `sse.FrameReader` for the attributes.

    An object is complete with its brace; commas, brackets and blanks between objects say nothing. junk: what
    else is between them.
    """

    __slots__ = (
        "_at",
        "_buffer",
        "_depth",
        "_in_array",
        "_in_string",
        "clean",
        "junk",
        "names",
        "too_large",
    )

    def __init__(self) -> None:
        self._buffer = bytearray()  # of the object in hand, from its brace on
        self._at = 0  # how far it is read
        self._depth = 0
        self._in_string = False
        self._in_array = False
        self.clean = False
        self.junk = b""
        self.names: dict[int, str] = {}
        self.too_large = False

    def whole(self, data: bytes) -> bytes | None:  # noqa: ARG002 - no short way: a comma comes with each object
        """Return None: nothing is read."""
        return None

    def feed(self, data: bytes) -> list[bytes]:
        """Return the objects that `data` completes."""
        self.names = {}
        if not data or self.too_large:
            return []
        self._buffer += data
        payloads: list[bytes] = []
        start, self.clean = 0, False
        while start < len(self._buffer):
            if not self._depth:
                start = self._at = self._brace(start)
            end = self._end()
            if not end:
                break
            if not self._in_array:
                self.names[len(payloads)] = ALONE
            payloads.append(bytes(self._buffer[start:end]))
            start = end
            self.clean = end == len(self._buffer)
        self._keep(start)
        return payloads

    def flush(self) -> list[bytes]:
        """End the stream: the object that lacks its end."""
        rest, self._buffer = bytes(self._buffer), bytearray()
        return [rest] if rest else []

    def _keep(self, start: int) -> None:
        """Hold back the object in hand."""
        del self._buffer[:start]
        self._at -= start
        self.too_large = len(self._buffer) > MAX_EVENT_BYTES
        if self.too_large:
            self._buffer.clear()

    def _brace(self, start: int) -> int:
        """Find where the next object begins, else the end of what is there."""
        brace = self._buffer.find(b"{", start)
        place = len(self._buffer) if brace < 0 else brace
        skipped = self._buffer[start:place]
        self._in_array |= b"[" in skipped
        self.junk += bytes(skipped.translate(None, _NOTHING)[: MAX_JUNK_BYTES - len(self.junk)])
        return place

    def _end(self) -> int:
        """Read on; return where the object in hand ends, 0 if that has not come."""
        while found := (_INSIDE if self._in_string else _OUTSIDE).search(self._buffer, self._at):
            self._at = found.end()
            sign = bytes(found[0])
            if sign == b"\\":
                self._at += 1  # whatever it is, it ends no string
            elif sign == b'"':
                self._in_string = not self._in_string
            else:
                self._depth += 1 if sign in b"{[" else -1
                if not self._depth:
                    return self._at
        self._at = max(self._at, len(self._buffer))
        return 0
