"""Messages of a WebSocket as a decoder takes them: each is one whole event, cut by the transport."""

from harness.wire.sse import MAX_EVENT_BYTES


class MessageFrames:
    """Hands on what comes; see `sse.FrameReader` for the attributes."""

    __slots__ = ("clean", "junk", "names", "too_large")

    def __init__(self) -> None:
        self.clean = True
        self.junk = b""
        self.names: dict[int, str] = {}
        self.too_large = False

    def whole(self, data: bytes) -> bytes | None:
        """Return the message, unless it is too large."""
        self.too_large = len(data) > MAX_EVENT_BYTES
        return None if self.too_large else data

    def feed(self, data: bytes) -> list[bytes]:
        """Return the message, if it is not too large."""
        return [] if self.whole(data) is None else [data]

    def flush(self) -> list[bytes]:
        """Return nothing: no message lacks its end."""
        return []
