"""Recorded exchanges out of files: the raw reads of one HTTP response without its framing, or a WebSocket's.

File format `recording/1`: one JSON object with `request {method, path}` and `wire`, a list of
[ns since the request was sent, base64 of one recv()], where an empty read is the connection's close.
File format `ws-recording/1`: one JSON object with `url` and `frames_ms`, a list of [ms, "in" or "out", text].
"""

import base64
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

_HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Recording:
    """One response. reads: (stamp in ns, bytes of the body); status 0 if no head came.

    whole: the body came to the end that its framing tells. done_ns: its end, or the last read.
    """

    method: str
    path: str
    status: int
    content_type: str | None
    reads: tuple[tuple[int, bytes], ...]
    whole: bool
    done_ns: int


@dataclass(frozen=True, slots=True)
class Frame:
    """One message of a WebSocket; `sent` by the client. Its time counts from any moment."""

    at_ns: int
    sent: bool
    message: bytes


class Body:
    """Takes the framing off a body: chunks, a length, or all until the close."""

    def __init__(self, headers: dict[str, str]) -> None:
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        length = headers.get("content-length", "")
        told = re.fullmatch("[0-9]{1,18}", length) and not self._chunked
        self._left = int(length) if told else None
        self._held = b""
        self._broken = False
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
        """`_left`: None before a size line; then what is left of the chunk and its CR LF.

        Behind a size that is none, nothing can be told from framing: the body ends there, and is not whole.
        """
        self._held += data
        body = b""
        while self._held and not self.whole and not self._broken:
            if self._left is None:
                line, end, rest = self._held.partition(b"\r\n")
                if not end:
                    break
                digits = line.split(b";")[0].strip()
                self._broken = not re.fullmatch(rb"[0-9A-Fa-f]{1,15}", digits)
                if self._broken:
                    break
                size = int(digits, 16)
                self.whole = size == 0
                self._left, self._held = size + 2, rest
            piece, self._held = self._held[: self._left], self._held[self._left :]
            body += piece[: max(0, self._left - 2)]
            self._left = self._left - len(piece) or None
        return body


def parse(recording: dict[str, Any]) -> Recording:
    """Read a recording's JSON; raises KeyError, TypeError or ValueError if it is none.

    Whatever the server sent is a recording, also nothing at all, half of a head, or a broken chunk.
    """
    wire = [(int(at), base64.b64decode(data, validate=True)) for at, data in recording["wire"]]
    request = recording.get("request")
    request = request if isinstance(request, dict) else {}
    head, body, status = b"", None, 0
    headers: dict[str, str] = {}
    reads: list[tuple[int, bytes]] = []
    done_ns = wire[-1][0] if wire else 0
    for at, raw in wire:
        data = raw
        if not raw and body:
            body.close()
        if body is None:
            status, headers, head, data = _heads(head + raw)
            if not status:
                continue
            body = Body(headers)
        if piece := body.feed(data):
            reads.append((at, piece))
        if body.whole:
            done_ns = at
            break
    return Recording(
        method=str(request.get("method") or ""),
        path=str(request.get("path") or ""),
        status=status,
        content_type=headers.get("content-type"),
        reads=tuple(reads),
        whole=body is not None and body.whole,
        done_ns=done_ns,
    )


def parse_socket(recording: dict[str, Any]) -> tuple[str, list[Frame]]:
    """Read the JSON of a WebSocket's recording: its path and messages; raises as `parse`."""
    frames = [
        # a close may have no text
        Frame(round(at * 1e6), way == "out", (message or "").encode("utf-8", "replace"))
        for at, way, message in recording["frames_ms"]
    ]
    return urlsplit(str(recording.get("url") or "")).path, frames


def _heads(data: bytes) -> tuple[int, dict[str, str], bytes, bytes]:
    """Read the head: status, headers, what is held, what is behind it; status 0 while it has no end.

    Heads of 1xx announce that another one comes.
    """
    top, end, rest = data.partition(_HEAD_END)
    while end:
        first, *lines = top.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        code = first.partition(" ")[2].partition(" ")[0]
        status = int(code) if re.fullmatch("[0-9]{3}", code) else 0
        if status >= HTTPStatus.OK or not status:
            return status, headers, b"", rest
        top, end, rest = rest.partition(_HEAD_END)
    return 0, {}, top, b""
