"""Carries requests over WebSocket, one connection for each conversation, and times their answers.

aiohttp connects and upgrades, over the same stamped sockets as HTTP. The messages are cut here
(`frames.py`): only so is it known whether a message ended where its read ended. There is no way to cancel
an answer but to close the connection; with it goes what the server keeps of the conversation.
"""

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from itertools import count
from typing import Self

import aiohttp
from yarl import URL

from harness.client.failures import explain
from harness.client.frames import BrokenError, ClosedError, FrameReader, Opcode, control_frame
from harness.client.reception import Reception
from harness.client.session import Endpoint, carry, current, keep_body, kernel_asked, open_session
from harness.client.sink import MessageSocket, never_resend, parsing
from harness.client.stamped_socket import StampedSocket
from harness.client.watchdog import CallLimits
from harness.clock import Clock
from harness.values import OnRead, Request, Timeline

LINGER_S = 0.25
"""How long a server may take to answer a farewell before its connection is closed."""

_GOING = b"\x03\xe8"  # close code 1000: this side has all that it wants
_FED = (False, b"")
_BROKEN = (True, b"")


class WebSocketExchange:
    """An `Exchange` with one endpoint; an async context manager, which owns the connections.

    Calls of one `Request.conversation` share a connection: it is opened by the first, again if the server
    has closed it, and closed by `leave`. Calls at the same time go in lanes of their own.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        limits: CallLimits,
        clock: Clock,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        if endpoint.as_message is None or endpoint.lane_of is None:
            raise ValueError("a WebSocket's endpoint says what its messages look like")
        url = URL(endpoint.url)
        self._as_message = endpoint.as_message
        self._lane_of = endpoint.lane_of
        self._endpoint = endpoint
        self._base = url.with_scheme("wss" if url.scheme in {"https", "wss"} else "ws")
        self._place = f"{url.host}:{url.port}"
        self._limits = limits
        self._clock = clock
        self._tls = ssl_context
        self._conversations: dict[str, _Connection] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._leaving: dict[_Connection, asyncio.TimerHandle] = {}
        self._session: aiohttp.ClientSession
        self._asking: StampedSocket

    async def __aenter__(self) -> Self:
        self._asking = await kernel_asked()
        self._session = open_session(
            self._endpoint, ssl_context=self._tls, response_class=_Upgrade, socket_class=MessageSocket
        )
        never_resend(self._session)
        return self

    async def __aexit__(self, *_: object) -> None:
        for conversation in tuple(self._conversations):
            self.leave(conversation)
        for connection in tuple(self._leaving):
            self._drop(connection)
        await self._session.close()
        self._asking.close()

    def holds(self, conversation: str) -> bool:
        """Tell whether the conversation's connection is open, as far as is known."""
        connection = self._conversations.get(conversation)
        return connection is not None and connection.usable

    def leave(self, conversation: str) -> None:
        """Close the conversation's connection, if it has one: the conversation is over."""
        self._opening.pop(conversation, None)
        connection = self._conversations.pop(conversation, None)
        if connection is not None:
            connection.farewell()
            late = partial(self._drop, connection)
            self._leaving[connection] = asyncio.get_running_loop().call_later(LINGER_S, late)

    def _drop(self, connection: "_Connection") -> None:
        self._leaving.pop(connection).cancel()
        connection.close()

    async def __call__(self, request: Request, on_read: OnRead) -> Timeline:
        """Send `request` as a message and feed the answer's messages to `on_read` until it says DONE.

        What goes wrong on the way is the Timeline's `error`. Cancelled, it closes the connection and raises
        `Interrupted` with the Timeline so far.
        """
        ended = asyncio.get_running_loop().create_future()
        reception = Reception(self._clock, on_read, ended, began_ns=self._clock.now_ns())
        work = self._run(request, reception)
        return await carry(work, reception, limits=self._limits, fail=self._fail, let_go=_let_go)

    async def _run(self, request: Request, reception: Reception) -> None:
        if request.body is None:
            raise ValueError("the request has no body: a dialect encodes it first")
        async with self._opening.setdefault(request.conversation, asyncio.Lock()):
            connection = self._conversations.get(request.conversation)
            if connection is None or not connection.usable:
                if connection is not None:
                    reception.reconnects = 1
                    connection.close()
                connection = await self._open(request.path, reception)
                self._conversations[request.conversation] = connection
            else:
                connection.read_by(reception)
        reception.round_trip()
        lane = connection.enter(reception)
        await connection.send(self._as_message(request.body, lane))
        await reception.ended

    async def _open(self, path: str, reception: Reception) -> "_Connection":
        reception.upgrading = True
        connection = _Connection(reception, self._lane_of)
        before = parsing.set(connection)
        try:
            url = self._base.with_path(self._base.path.rstrip("/") + path)
            messages = await self._session.ws_connect(
                url, headers={"Accept-Encoding": "identity"}, autoping=False, max_msg_size=0
            )
        finally:
            parsing.reset(before)
        connection.opened(messages)
        return connection

    def _fail(self, reception: Reception, error: Exception) -> None:
        if reception.status is not None:  # the upgrade was refused: the server's answer tells why
            return
        if isinstance(error, aiohttp.ServerDisconnectedError):
            error = reception.lost() or error
            if reception.received_bytes and isinstance(error, aiohttp.ServerDisconnectedError):
                error = aiohttp.ClientPayloadError()
        heard = reception.received_bytes > 0
        stale = reception.connection == "reused" and not heard
        reception.error = explain(error, self._place, stale=stale, heard=heard)


def _let_go(reception: Reception) -> None:
    """Free the call's lane; without the answer's end, nobody listens to the rest of it."""
    if reception.leave is not None:
        reception.leave(reception.marked_done)


class _Upgrade(aiohttp.ClientResponse):
    """The answer to the upgrade; where it is no WebSocket, it is kept, and nothing else is tried."""

    async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        reception = current.get()
        reception.uses(connection)
        response = await super().start(connection)
        if self.status == HTTPStatus.SWITCHING_PROTOCOLS:
            reception.upgraded(self)
            return response
        reception.answered(self)
        await keep_body(self.content, reception)
        raise aiohttp.WSServerHandshakeError(self.request_info, (), status=self.status)


class _Connection:
    """One conversation's WebSocket, which aiohttp feeds as its parser with whatever is read.

    `opener` is the call for which it was opened. `_lanes` holds the calls that wait for answers, None where
    nobody wants the answer any more.
    """

    def __init__(self, opener: Reception, lane_of: Callable[[bytes], str]) -> None:
        self._opener = opener
        self._lane_of = lane_of
        self._frames = FrameReader()
        self._lanes: dict[str, Reception | None] = {}
        self._error: Exception | None = None
        self._messages: aiohttp.ClientWebSocketResponse

    def opened(self, messages: aiohttp.ClientWebSocketResponse) -> None:
        """Take the connection into use."""
        self._messages = messages

    @property
    def usable(self) -> bool:
        """Whether a message could be sent."""
        transport = self._opener.transport
        return self._error is None and transport is not None and not transport.is_closing()

    def read_by(self, reception: Reception) -> None:
        """Let a later call read from the same socket."""
        reception.follows(self._opener)

    def enter(self, reception: Reception) -> str:
        """Give a call the first lane that is free; the usual one has no name."""
        names = (f"lane-{number}" if number else "" for number in count())
        lane = next(name for name in names if name not in self._lanes)
        self._lanes[lane] = reception

        def leave(complete: bool) -> None:
            self._exit(lane, complete=complete)

        reception.leave = leave
        return lane

    async def send(self, message: bytes) -> None:
        """Send one message; raise what had ended the connection."""
        if self._error is not None:
            raise self._error
        await self._messages.send_frame(message, aiohttp.WSMsgType.TEXT)

    def _exit(self, lane: str, *, complete: bool) -> None:
        if complete:
            del self._lanes[lane]
        else:
            self._lanes[lane] = None
        if None in self._lanes.values() and not any(self._lanes.values()):
            self.farewell()
            self.close()

    def farewell(self) -> None:
        """Tell the server that nothing more is wanted; it closes the connection then."""
        transport = self._opener.transport
        if self._error is None and transport is not None and not transport.is_closing():
            transport.write(control_frame(Opcode.CLOSE, _GOING))
        self._lose(aiohttp.ServerDisconnectedError())

    def close(self) -> None:
        """Close now; wait neither for unsent bytes nor for TLS."""
        self._lose(aiohttp.ServerDisconnectedError())
        if self._opener.response is not None:
            self._opener.response.close()
        if self._opener.transport is not None:
            self._opener.transport.abort()

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take what was read. True: these are no frames, nothing more is to be fed."""
        if not data:  # aiohttp goes on after a pause
            return _FED
        last = None
        try:
            for opcode, payload in self._frames.feed(data):
                last = self._take(opcode, payload)
        except BrokenError as broken:
            self._lose(broken)
            return _BROKEN
        if not self._frames.clean:
            last = None
        for reception in self._lanes.values():
            if reception is not None and reception is not last:
                reception.went_on()
        return _FED

    def feed_eof(self) -> None:
        """Note that the connection is gone."""
        self._lose(aiohttp.ServerDisconnectedError())

    def _take(self, opcode: Opcode, payload: bytes) -> Reception | None:
        """Hand a message to its call, which is returned; do what a control frame asks for."""
        if opcode < Opcode.CLOSE:
            reception = self._receiver(payload)
            if reception is not None:
                reception.take(payload)
            return reception
        transport = self._opener.transport
        if transport is not None and opcode is Opcode.PING:
            transport.write(control_frame(Opcode.PONG, payload))
        elif opcode is Opcode.CLOSE:
            asked = self._error is None  # not the answer to our own farewell
            self._lose(ClosedError(payload))
            if transport is not None:
                if asked:
                    transport.write(control_frame(Opcode.CLOSE, payload[:2]))
                transport.close()
        return None

    def _receiver(self, message: bytes) -> Reception | None:
        if len(self._lanes) > 1:
            return self._lanes.get(self._lane_of(message))
        return next(iter(self._lanes.values()), None)

    def _lose(self, error: Exception) -> None:
        """End all calls that wait: nothing more will come."""
        if self._error is None:
            self._error = error
            for reception in self._lanes.values():
                if reception is not None:
                    reception.end(error)
