"""The least that a reader of streams in Python can do: wait for a socket, read, split, orjson, a time.

    python bare_reader.py URL STREAMS REQUESTS

It knows nothing of HTTP, errors, TLS or what an event means: a floor for `cost.py`, not a client.
"""

import selectors
import socket
import sys
from array import array
from collections.abc import Iterator
from time import monotonic_ns
from urllib.parse import urlsplit

from orjson import loads

REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Length: 2\r\n\r\n{}"
READ_BYTES = 16_384


class Stream:
    """One connection; `times` has when each of its output events was read."""

    def __init__(self, address: tuple[str, int], numbers: Iterator[int]) -> None:
        self.socket = socket.create_connection(address)
        self.times = array("q")
        self._numbers = numbers
        self._rest = b""

    def ask(self) -> bool:
        """Send the next request; False when all have been sent."""
        if next(self._numbers, None) is None:
            return False
        self.socket.sendall(REQUEST)
        return True

    def read(self) -> bool:
        """Take what has come; False when there is nothing more to come."""
        data = self.socket.recv(READ_BYTES)
        now = monotonic_ns()
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            _, _, payload = event.partition(b"data: ")  # in front of it: a chunk's size, or the answer's head
            if payload == b"[DONE]":
                self._rest = b""
                return self.ask()
            if loads(payload)["choices"][0]["delta"]:
                self.times.append(now)
        return True


def main(url: str, streams: int, requests: int) -> None:
    parts, numbers = urlsplit(url), iter(range(requests))
    open_streams = [Stream((str(parts.hostname), int(parts.port or 80)), numbers) for _ in range(streams)]
    selector = selectors.DefaultSelector()
    for stream in open_streams:
        if stream.ask():
            selector.register(stream.socket, selectors.EVENT_READ, stream)
    while selector.get_map():
        for key, _ in selector.select():
            if not key.data.read():
                selector.unregister(key.fileobj)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
