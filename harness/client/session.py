"""What both transports share: where to send, aiohttp told what it must not do, one exchange from end to end.

aiohttp would by itself wait for a free connection, give up after five minutes, keep cookies, read
proxies from the environment, ask for compression.
"""

import asyncio
import resource
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from harness.client.frames import BrokenError, ClosedError
from harness.client.marks import marking
from harness.client.reception import Reception
from harness.client.stamped_socket import StampedSocket, stamped
from harness.client.watchdog import CallLimits, Watchdog
from harness.errors import Interrupted
from harness.values import CallError, Timeline

BODY_BYTES = 65_536
"""How much is kept of a body that is no event stream."""

FAILURES = (aiohttp.ClientError, HttpProcessingError, BrokenError, ClosedError, OSError)
"""What may go wrong on the way; also the TimeoutError of a limit, which is an OSError."""

_STAMPS_BEGIN_S = 0.01
_IDLE_S = 3600.0  # a task thinks for minutes: the server, not a pool, says when a connection is too old

current: ContextVar[Reception] = ContextVar("current reception")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how to send. `url` is the base of all paths; `headers` holds keys and is never shown.

    A response is a stream if its content type is one of `stream_types`, or it names none. `proxy` is the URL
    of an HTTP proxy. Over WebSocket, `as_message(body, lane)` makes the message that asks for an answer, and
    `lane_of(message)` tells which lane a message of the server belongs to, "" for the one without a name.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    transport: Literal["keep-alive", "new-connection", "websocket"] = "keep-alive"
    stream_types: tuple[str, ...] = ("text/event-stream",)
    proxy: str | None = None
    as_message: Callable[[bytes, str], bytes] | None = None
    lane_of: Callable[[bytes], str] | None = None


def open_session(
    endpoint: Endpoint,
    *,
    ssl_context: ssl.SSLContext | None,
    response_class: type[aiohttp.ClientResponse],
    socket_class: type[aiohttp.ClientWebSocketResponse] = aiohttp.ClientWebSocketResponse,
) -> aiohttp.ClientSession:
    """Make a session whose sockets are stamped and which does nothing unasked."""
    once = endpoint.transport != "keep-alive"
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0,
            force_close=once,
            keepalive_timeout=None if once else _IDLE_S,
            ssl=ssl_context or True,
            socket_factory=stamped,
        ),
        headers=dict(endpoint.headers),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        response_class=response_class,
        ws_response_class=socket_class,
        trace_configs=[_connection_trace()],
        trust_env=False,
        proxy=endpoint.proxy,
    )


async def carry(
    work: Coroutine[Any, Any, None],
    reception: Reception,
    *,
    limits: CallLimits,
    fail: Callable[[Reception, Exception], None],
    let_go: Callable[[Reception], None],
) -> Timeline:
    """Do an exchange's work under its limits and give its Timeline, whatever becomes of it.

    `fail` words what went wrong, `let_go` frees or closes the connection. Cancelled, it raises
    `Interrupted` with the Timeline so far.
    """
    loop = asyncio.get_running_loop()
    before, marking_before = current.set(reception), marking.set(reception.marks)
    scope = asyncio.timeout(None)

    def expire(error: CallError) -> None:
        if not reception.ended.done():
            reception.error = error
            scope.reschedule(loop.time())

    watchdog = Watchdog(limits, reception, expire)
    reception.first_output = watchdog.look
    try:
        async with scope:
            watchdog.look()
            await work
    except FAILURES as error:
        if reception.error is None:  # else a limit, already told
            fail(reception, error)
    except asyncio.CancelledError:
        await reception.cancelled()
        raise Interrupted(reception.timeline()) from None
    finally:
        watchdog.stop()
        current.reset(before)
        marking.reset(marking_before)
        let_go(reception)
        if reception.ended.done() and not reception.ended.cancelled():
            reception.ended.exception()  # heard, also where another failure came first
    return reception.timeline()


async def kernel_asked() -> StampedSocket:
    """Keep the kernel stamping: it does while some socket asks, and takes a moment to begin."""
    asking = stamped((socket.AF_INET, socket.SOCK_STREAM, 0, "", ()))
    await asyncio.sleep(_STAMPS_BEGIN_S)
    return asking


async def keep_body(content: aiohttp.StreamReader, reception: Reception) -> None:
    """Keep the first `BODY_BYTES` of a body, also if it breaks."""
    kept = bytearray()
    try:
        while len(kept) < BODY_BYTES and (piece := await content.read(BODY_BYTES - len(kept))):
            kept += piece
        reception.end()
    finally:
        reception.body = bytes(kept)


def _connection_trace() -> aiohttp.TraceConfig:
    """Tell the exchange whether its connection is new, and when opening it began and was done."""
    trace = aiohttp.TraceConfig()

    async def resolving(*_: object) -> None:
        current.get().marks.resolving()

    async def opened(*_: object) -> None:
        current.get().opened()

    async def reused(*_: object) -> None:
        current.get().reuses()

    trace.on_dns_resolvehost_start.append(resolving)
    trace.on_dns_cache_hit.append(resolving)  # also where another exchange's look-up is waited for
    trace.on_connection_create_end.append(opened)
    trace.on_connection_reuseconn.append(reused)
    return trace


def raise_file_limit() -> int:
    """Raise the soft limit on open files to the hard one: each stream needs a socket. Returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems refuse their own hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft
