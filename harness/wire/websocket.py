"""Messages of a WebSocket as a decoder takes them: each is one whole event, cut by the transport.

Answers that come at the same time over one connection go in lanes, which messages name by `stream_id`.
"""

from harness.wire.payload import parse
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


def in_lane(message: bytes, lane: str) -> bytes:
    """Put a message that asks for an answer into a lane; "" is the one that needs no name."""
    return b'{"stream_id":"%s",%s' % (lane.encode(), message[1:]) if lane else message


def lane_of(message: bytes) -> str:
    """Tell which lane a server's message is in."""
    lane = (parse(message) or {}).get("stream_id")
    return lane if type(lane) is str else ""
