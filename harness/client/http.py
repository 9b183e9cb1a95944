"""Carries one request over HTTP/1.1 and times its answer.

aiohttp speaks HTTP. A redirect is no answer. It does not resend: aiohttp repeats idempotent methods
only, and a POST is none.
"""

import asyncio
import io
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Self

import aiohttp
from yarl import URL

from harness.client.failures import explain
from harness.client.reception import Reception
from harness.client.session import (
    BODY_BYTES,
    FAILURES,
    Endpoint,
    carry,
    current,
    keep_body,
    kernel_asked,
    open_session,
    raise_file_limit,
)
from harness.client.sink import receive
from harness.client.stamped_socket import StampedSocket
from harness.client.watchdog import CallLimits
from harness.clock import Clock
from harness.values import OnRead, Request, Timeline

__all__ = ["BODY_BYTES", "CallLimits", "Endpoint", "HttpExchange", "raise_file_limit"]

LINGER_S = 0.25
"""How long the rest of a body may take after the DONE mark before its connection is closed."""

_BYTES_AS_THEY_ARE = 1 << 20  # above, aiohttp wants a file, which it sends in pieces

_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "text/event-stream",
    "Accept-Encoding": "identity",  # a compressor holds events back
}


class HttpExchange:
    """An `Exchange` with one endpoint; an async context manager, which owns the connections.

    `sink=False` reads bodies by a task instead of from the parser: slower, coarser stamps, public API.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        limits: CallLimits,
        clock: Clock,
        ssl_context: ssl.SSLContext | None = None,
        sink: bool = True,
    ) -> None:
        url = URL(endpoint.url)
        self._endpoint = endpoint
        self._place = f"{url.host}:{url.port}"
        self._limits = limits
        self._clock = clock
        self._tls = ssl_context
        self._sink = sink
        self._lingering: dict[aiohttp.ClientResponse, asyncio.TimerHandle] = {}
        self._session: aiohttp.ClientSession
        self._asking: StampedSocket

    async def __aenter__(self) -> Self:
        self._asking = await kernel_asked()
        self._session = open_session(self._endpoint, ssl_context=self._tls, response_class=_Response)
        return self

    async def __aexit__(self, *_: object) -> None:
        for response in tuple(self._lingering):
            self._leave(response, close=True)
        await self._session.close()
        self._asking.close()

    async def __call__(self, request: Request, on_read: OnRead) -> Timeline:
        """Send `request` and feed the body to `on_read` until it says DONE or the body ends.

        What goes wrong on the way is the Timeline's `error`. Cancelled, it closes the connection and
        raises `Interrupted` with the Timeline so far.
        """
        ended = asyncio.get_running_loop().create_future()
        reception = Reception(self._clock, on_read, ended, began_ns=self._clock.now_ns())
        work = self._run(request, reception)
        return await carry(work, reception, limits=self._limits, fail=self._fail, let_go=self._let_go)

    async def _run(self, request: Request, reception: Reception) -> None:
        if request.body is None:
            raise ValueError("the request has no body: a dialect encodes it first")
        body = request.body
        response = await self._session.post(
            self._endpoint.url.rstrip("/") + request.path,
            data=body if len(body) <= _BYTES_AS_THEY_ARE else io.BytesIO(body),
            headers=_HEADERS,
            allow_redirects=False,
        )
        reception.answered(response)
        with _told_of_loss(response.content, reception):
            await self._receive(response, reception)

    async def _receive(self, response: aiohttp.ClientResponse, reception: Reception) -> None:
        ok = response.status == HTTPStatus.OK
        if ok and reception.content_type in (None, *self._endpoint.stream_types):
            await receive(response.content, reception, sink=self._sink)
            broken = None if reception.framed or reception.marked_done else reception.lost()
            if broken is not None:  # to aiohttp, a body without a length ends in order when it breaks
                raise broken
            return
        try:
            await keep_body(response.content, reception)
        except FAILURES:
            if ok:  # another status tells more than a body that breaks
                raise

    def _fail(self, reception: Reception, error: Exception) -> None:
        if isinstance(error, aiohttp.ClientPayloadError):
            error = reception.lost() or error
        stale = reception.connection == "reused" and not reception.heard()
        reception.error = explain(error, self._place, stale=stale)

    def _let_go(self, reception: Reception) -> None:
        """Leave the connection to aiohttp if the answer is complete, else close it.

        After the DONE mark only the end of the last chunk is missing, and it is normally here already:
        the response stays attached for a moment, so that the connection can serve again.
        """
        response = reception.response
        if response is not None and response.closed:  # released: it may be in use by another exchange
            return
        if response is not None and reception.marked_done:
            late = partial(self._leave, response, close=True)
            self._lingering[response] = asyncio.get_running_loop().call_later(LINGER_S, late)
            response.content.on_eof(partial(self._leave, response, close=False))
            return
        if response is not None:
            response.close()
        if reception.transport is not None:
            reception.transport.abort()  # close() would wait: for unsent bytes, for the peer's TLS farewell

    def _leave(self, response: aiohttp.ClientResponse, *, close: bool) -> None:
        self._lingering.pop(response).cancel()
        if close:
            response.close()


class _Response(aiohttp.ClientResponse):
    """Shows its connection to the exchange before the answer comes."""

    async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        current.get().uses(connection)
        return await super().start(connection)


@contextmanager
def _told_of_loss(content: aiohttp.StreamReader, reception: Reception) -> Iterator[None]:
    """Cut the body when its connection is lost.

    aiohttp does it itself but for one case: it closes the connection on a broken chunk and forgets to
    tell the body, whose reader would then wait for a limit.
    """
    protocol = reception.protocol
    closed = protocol.closed if protocol is not None else None
    if protocol is None or closed is None:
        yield
        return

    def tell(_: object) -> None:
        if not content.is_eof() and content.exception() is None:
            content.set_exception(protocol.exception() or aiohttp.ServerDisconnectedError())

    closed.add_done_callback(tell)
    closed.remove_done_callback(_hear_out)  # one is enough for the connection's life
    closed.add_done_callback(_hear_out)
    try:
        yield
    finally:
        closed.remove_done_callback(tell)


def _hear_out(closed: "asyncio.Future[None]") -> None:
    """Take note of an exception that concerns nobody, or asyncio complains of it."""
    if not closed.cancelled():
        closed.exception()
