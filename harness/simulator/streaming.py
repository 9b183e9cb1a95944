"""One answer on its way out: events straight to the transport, each by a write of its own."""

import asyncio
from array import array
from collections.abc import Callable

from harness.clock import Clock
from harness.simulator.output import Encoder
from harness.values import EventKind

KINDS = tuple(EventKind)


class EventStream:
    """Writes an answer as its tokens fall due. `done` is True after the last event.

    frame: makes of an event what goes onto the transport. send_head: sends the head of the answer, before
    its first event; that is with the first output, as OpenAI does, so hidden reasoning looks like a slow
    first byte, unless the dialect has a greeting.
    """

    def __init__(
        self,
        encoder: Encoder,
        transport: asyncio.Transport,
        *,
        frame: Callable[[bytes], bytes],
        send_head: Callable[[], None],
        clock: Clock,
    ) -> None:
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.first_byte_ns: int | None = None
        self._encoder = encoder
        self._transport = transport
        self._frame = frame
        self._send_head = send_head
        self._clock = clock
        self._opened = False
        self._sent_ns = array("q")
        self._tokens = array("q")
        self._kinds = array("b")

    def greet(self) -> None:
        """Send what the dialect says before the model has begun."""
        for event in self._encoder.greeting():
            self._write(event)

    def deliver(self, tokens: int, last: bool) -> None:
        """Send the next `tokens`, and the end of the answer after the last of them."""
        for kind, count, event in self._encoder.events(tokens):
            if not self._opened:
                self._open()
            if kind is None:
                self._write(event)
                continue
            self._kinds.append(KINDS.index(kind))
            self._tokens.append(count)
            data = self._frame(event)
            self._sent_ns.append(self._clock.now_ns())
            self._transport.write(data)
        if last:
            self._end()

    def sends(self) -> list[tuple[int, int, str]]:
        """List (time just before the write, tokens, kind) of each output event."""
        kinds = [KINDS[kind].value for kind in self._kinds]
        return list(zip(self._sent_ns.tolist(), self._tokens.tolist(), kinds, strict=True))

    def _open(self) -> None:
        self._opened = True
        for event in self._encoder.opening():
            self._write(event)
        if self.first_byte_ns is None:
            self._head()

    def _end(self) -> None:
        if not self._opened:
            self._open()
        for event in self._encoder.ending():
            self._write(event)
        if not self.done.done():
            self.done.set_result(True)

    def _write(self, event: bytes) -> None:
        if self.first_byte_ns is None:
            self._head()
        self._transport.write(self._frame(event))

    def _head(self) -> None:
        self.first_byte_ns = self._clock.now_ns()
        self._send_head()


def http_chunk(event: bytes) -> bytes:
    """Frame an event for HTTP's chunked encoding, a chunk each."""
    return b"%x\r\n%b\r\n" % (len(event), event)
