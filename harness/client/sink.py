"""The body's way from aiohttp's parser to the reception; the one file that knows aiohttp's inside.

aiohttp's own way costs a task wake-up per read (3 us and more, and the wait for the loop). So the
response's StreamReader gets another class, which hands each piece on while the parser runs. What is
used of the inside: `feed_data`, `feed_eof`, `set_exception` and the two chunk marks are called by the
parser; the `_waiter` slot, where the inside keeps whoever waits for data, holds the Reception. A test
pins aiohttp's minor version and these names. `sink=False` reads with the public `iter_any`.

A WebSocket gets another parser than aiohttp's (`MessageSocket`), which does not tell where reads end.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import _EXC_SENTINEL
from aiohttp.streams import StreamReader

from harness.client.reception import Reception

_SIZES = {b"%x" % size: size for size in range(1, 4096)}
"""Chunks' headers as servers write them; every other way of writing one is the parser's business."""

_CRLF = b"\r\n"


class _Sink(StreamReader):
    """Class-swapped onto `response.content`: buffers nothing, wakes nobody, never pauses the socket."""

    __slots__ = ()

    def begin_http_chunk_receiving(self) -> None:
        """Keep when a chunk's header came: a server may write it by itself, before its data."""
        reception: Any = self._waiter
        if reception is not None:
            reception.header_ns = reception.stamp_ns()
            reception.between_chunks = False

    def end_http_chunk_receiving(self) -> None:
        """Note that the CR LF behind a chunk has come, which belongs to it."""
        reception: Any = self._waiter
        if reception is not None:
            reception.between_chunks = True

    def feed_data(self, data: bytes, size: int = 0) -> bool:  # noqa: ARG002 - the parser passes it
        """Hand the piece on; False tells the parser that no more is kept back."""
        reception: Any = self._waiter
        if reception is not None and data:
            reception.take(data)
        return False

    def feed_eof(self) -> None:
        """Let aiohttp give the connection back, then tell that the body is complete."""
        reception: Any = self._waiter
        self._waiter = None
        super().feed_eof()
        if reception is not None:
            reception.between_chunks = False  # behind the last one is the next answer
            reception.end()

    def set_exception(self, exc: BaseException, exc_cause: BaseException = _EXC_SENTINEL) -> None:
        """Tell what cut the body; aiohttp calls this again when it lets go of the response."""
        reception: Any = self._waiter
        self._waiter = None
        super().set_exception(exc, exc_cause)
        if reception is not None:
            reception.end(exc)


@contextmanager
def _short_cut(protocol: ResponseHandler | None, reception: Reception) -> Iterator[None]:
    """Spare aiohttp's parser the usual read, which is just one chunk: a third of what a read costs.

    Where the parser stands between two chunks, a whole chunk leaves it there, so it need not see it.
    """
    if protocol is None or reception.compressed:
        yield
        return
    through, take, size_of = protocol.data_received, reception.take, _SIZES.get

    def data_received(data: bytes) -> None:
        if reception.between_chunks:
            head, _, rest = data.partition(_CRLF)
            if size_of(head) == len(rest) - 2 and rest[-2:] == _CRLF:
                take(rest[:-2])
                return
        through(data)
        # behind the last chunk there may be a part of the next one's header, which the parser keeps
        reception.between_chunks = reception.between_chunks and data.endswith(_CRLF)

    protocol.data_received = data_received  # type: ignore[method-assign]
    try:
        yield
    finally:
        del protocol.data_received


async def receive(content: StreamReader, reception: Reception, *, sink: bool = True) -> None:
    """Bring a response's body to `reception` until it has ended; raise what cut it.

    Must be called before the loop reads again, so that what came with the headers has their stamp.
    With `sink=False` a task reads, so several reads may have merged when it runs: the stamp is the
    newest of them, right as an upper bound, and the exchange does not call itself kernel-stamped.
    """
    if sink and content.exception() is None:
        early = content.read_nowait()
        if early:
            reception.take(early)
        if content.is_eof():
            reception.end()
        else:
            content.__class__ = _Sink
            content._waiter = reception  # type: ignore[assignment]  # noqa: SLF001 - see above
            with _short_cut(reception.protocol, reception):
                await reception.ended
    else:
        reception.stamps_kept = False
        async for piece in content.iter_any():
            reception.take(piece)
            if reception.ended.done():
                break
        reception.end()
    await reception.ended


parsing: ContextVar[Any] = ContextVar("parser of the WebSocket that is being opened")
"""Has `feed_data(bytes) -> (failed, b"")` and `feed_eof()`."""


class MessageSocket(aiohttp.ClientWebSocketResponse):
    """A WebSocket whose bytes all go to our parser: `ws_connect` asks for the one that it has just set."""

    @property
    def _parser(self) -> Any:  # noqa: ANN401 - as in `parsing`
        return parsing.get()

    @_parser.setter
    def _parser(self, _: object) -> None:
        pass


def never_resend(session: aiohttp.ClientSession) -> None:
    """Keep aiohttp from sending again what it may: a GET whose connection broke, such as an upgrade."""
    session._retry_connection = False  # noqa: SLF001 - see above
