"""A recorded HTTP exchange: the raw reads of one response, out of a file, without its framing.

File format `recording/1`: one JSON object with `request {method, path}` and `wire`, a list of
[ns since the request was sent, base64 of one recv()], where an empty read is the connection's close.
"""

import base64
from dataclasses import dataclass
from typing import Any

_HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Recording:
    """One response. reads: (stamp in ns, bytes of the body); status 0 if no head came.

    whole: the body came to the end that its framing tells. done_ns: its end, or the last read.
    """

    name: str
    method: str
    path: str
    status: int
    content_type: str | None
    reads: tuple[tuple[int, bytes], ...]
    whole: bool
    done_ns: int


class Body:
    """Takes the framing off a body: chunks, a length, or all until the close."""

    def __init__(self, headers: dict[str, str]) -> None:
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        length = headers.get("content-length", "")
        self._left = int(length) if length.isdecimal() and not self._chunked else None
        self._held = b""
        self.whole = self._left == 0

    def feed(self, data: bytes) -> bytes:
        """Return the body's own bytes in one read."""
        if self._chunked:
            return self._chunks(data)
        if self._left is None:
            return data
        data = data[: self._left]
        self._left -= len(data)
        self.whole = self._left == 0
        return data

    def close(self) -> None:
        """Take the connection's end, which is the end of a body without other framing."""
        self.whole = self.whole or not (self._chunked or self._left)

    def _chunks(self, data: bytes) -> bytes:
        """`_left`: None before a size line; then what is left of the chunk and its CR LF."""
        self._held += data
        body = b""
        while self._held and not self.whole:
            if self._left is None:
                line, end, rest = self._held.partition(b"\r\n")
                if not end:
                    break
                size = int(line.split(b";")[0], 16)
                self.whole = size == 0
                self._left, self._held = size + 2, rest
            piece, self._held = self._held[: self._left], self._held[self._left :]
            body += piece[: max(0, self._left - 2)]
            self._left = self._left - len(piece) or None
        return body


def parse(recording: dict[str, Any]) -> Recording:
    """Read a recording's JSON; raises KeyError, TypeError or ValueError if it is none."""
    wire = [(int(at), base64.b64decode(data, validate=True)) for at, data in recording["wire"]]
    request = recording["request"]
    head, body, status = b"", None, 0
    headers: dict[str, str] = {}
    reads: list[tuple[int, bytes]] = []
    done_ns = wire[-1][0]
    for at, raw in wire:
        data = raw
        if not raw and body:
            body.close()
        if body is None:
            head += raw
            top, end, data = head.partition(_HEAD_END)
            if not end:
                continue
            status, headers = _head(top)
            body = Body(headers)
        if piece := body.feed(data):
            reads.append((at, piece))
        if body.whole:
            done_ns = at
            break
    return Recording(
        name=str(recording.get("name") or ""),
        method=str(request["method"]),
        path=str(request["path"]),
        status=status,
        content_type=headers.get("content-type"),
        reads=tuple(reads),
        whole=body is not None and body.whole,
        done_ns=done_ns,
    )


def _head(top: bytes) -> tuple[int, dict[str, str]]:
    """Status and headers, names in small letters."""
    first, *lines = top.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return int(first.split(" ")[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}
