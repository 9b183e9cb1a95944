"""Server-Sent Events: pieces of a body in, whole `data` payloads out.

The reader holds a buffer and how far it was searched; "not enough yet" is an empty list. It works
on bytes, so a character cut in two is whole again before anybody decodes it, and only LF, CR and
CR LF end lines. Grammar: WHATWG HTML, "9.2.6 Interpreting an event stream".
"""

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""An event that grows beyond this without its end is given up."""

MAX_JUNK_BYTES = 4096
"""How much of the lines that are no event-stream fields is kept, to say what came instead."""

_BOM = b"\xef\xbb\xbf"
_LF = 0x0A
_DATA, _EVENT = b"data: ", b"event: "
_TWO_LINES, _THREE_LINES = 2, 3


class FrameReader:
    """Cuts one stream into events.

    clean: the newest byte was the last one of an event with data, so that this event ends exactly
    where its read ends. names: `event:` names of the payloads that were returned last, by their place
    (empty in dialects that name nothing); not to be changed. junk: the first lines that are no field.
    too_large: the bound was passed; nothing more is read.
    """

    __slots__ = (
        "_buffer",
        "_idle",
        "_line",
        "_names",
        "_searched",
        "_started",
        "_swallow",
        "clean",
        "junk",
        "names",
        "too_large",
    )

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._started = False
        self._swallow = False  # the last piece ended in CR: a LF that follows belongs to it
        self._idle = False  # nothing is held back, so a whole event may take the short way
        self._line = b""  # the last `event:` line that took it, which is nearly always the next one too
        self._names: dict[int, str] = {}  # what it names
        self.clean = False
        self.junk = b""
        self.names: dict[int, str] = {}
        self.too_large = False

    def whole(self, data: bytes) -> bytes | None:
        """Return the payload if `data` is just one event of one data line, as it usually is; else feed it.

        An `event:` line may stand before it.
        """
        if not self._idle or data[-1] != _LF:
            return None
        lines = data.splitlines()  # bytes know the same line ends as SSE
        if len(lines) == _TWO_LINES and not lines[1] and lines[0][:6] == _DATA:
            if self.names:
                self.names = {}
            self.clean = True
            return lines[0][6:]
        if len(lines) == _THREE_LINES and not lines[2] and lines[1][:6] == _DATA and lines[0][:7] == _EVENT:
            if lines[0] != self._line:
                self._line = lines[0]
                self._names = {0: lines[0][7:].decode("utf-8", "replace")}
            self.names = self._names
            self.clean = True
            return lines[1][6:]
        return None

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payloads of the events that `data` completes; an event without data has none."""
        payload = self.whole(data) if data else None
        return self._feed_any(data) if payload is None else [payload]

    def flush(self) -> list[bytes]:
        """End the stream: the payload of an event that lacks its blank line, if there is one."""
        block, self._buffer = bytes(self._buffer), bytearray()
        self.names = {}
        return self._payloads([block])

    def _feed_any(self, data: bytes) -> list[bytes]:
        self.names = {}
        if self._swallow and data.startswith(b"\n"):
            data = data[1:]
            self._swallow = False
        if not data or self.too_large:
            return []
        self._swallow = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._buffer += data
        if self._buffer.find(b"\n\n", self._searched) < 0:
            self._idle = self.clean = False
            self._keep(self._buffer)
            return []
        *blocks, rest = bytes(self._buffer).split(b"\n\n")
        payloads = self._payloads(blocks)
        self.clean = self.clean and not rest
        self._keep(bytearray(rest.lstrip(b"\n")))  # blank lines between events say nothing
        self._idle = self._started and not (self._buffer or self._swallow)
        return payloads

    def _keep(self, rest: bytearray) -> None:
        """Hold back what has no end yet; its last byte may be the first half of one."""
        self.too_large = len(rest) > MAX_EVENT_BYTES
        self._buffer = bytearray() if self.too_large else rest
        self._searched = max(0, len(self._buffer) - 1)

    def _payloads(self, blocks: list[bytes]) -> list[bytes]:
        """Payloads of the blocks that have one; `clean` tells whether the last block had."""
        payloads: list[bytes] = []
        for block in blocks:
            payload = self._payload(block, len(payloads))
            self.clean = payload is not None
            if payload is not None:
                payloads.append(payload)
        return payloads

    def _payload(self, block: bytes, place: int) -> bytes | None:
        """Join the data of one event's lines; None if it has no data field."""
        if not self._started and block:
            self._started = True
            block = block.removeprefix(_BOM)
        if block.startswith(b"data: ") and block.find(b"\n") < 0:
            return block[6:]
        data = [value for line in block.split(b"\n") if (value := self._value(line, place)) is not None]
        if not data:
            self.names.pop(place, None)
            return None
        return b"\n".join(data)

    def _value(self, line: bytes, place: int) -> bytes | None:
        """Take one line; what it adds to the data, None if nothing."""
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self.names[place] = value.decode("utf-8", "replace")
        elif field == b"error":  # older servers of llama.cpp: `error: {...}`
            self.names[place] = "error"
        elif field not in (b"", b"data", b"id", b"retry"):
            self.junk = (self.junk + line + b"\n")[:MAX_JUNK_BYTES]
        return value if field in (b"data", b"error") else None
