"""Backends as a run uses them: reached, connected, and described for comparisons."""

import asyncio
import os
import ssl
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

from harness.client.http import CallLimits, Endpoint, HttpExchange
from harness.client.limits import Capped, Quota, admission
from harness.client.retrying import Retrying
from harness.client.websocket import WebSocketExchange
from harness.clock import MachineClock
from harness.errors import UnreachableError
from harness.job import WHOLE, Share
from harness.prices import prices_of
from harness.scenario import Scenario
from harness.scenario_backend import Backend
from harness.values import Exchange
from harness.wire import DIALECTS, Dialect
from harness.wire.websocket import in_lane, lane_of
from harness.workloads.step import LiveBackend

ITER_ANY = "HARNESS_ITER_ANY"
"""Environment variable: 1 forces the body reader that uses aiohttp's public interface only."""
CONNECT_S_MAX = 30.0


async def connect(
    scenario: Scenario,
    keys: Mapping[str, str],
    urls: Iterable[str],
    *,
    clock: MachineClock,
    stack: AsyncExitStack,
    share: Share = WHOLE,
) -> list[LiveBackend]:
    """Open an exchange for each backend; a backend that cannot be reached ends the run here.

    urls: of the simulated backends, in order; keys: backend -> its key; share: of the quotas, too.
    """
    simulated = iter(urls)
    live = []
    for name, backend in scenario.backends.items():
        url = backend.url or next(simulated)
        if backend.url is not None:
            key = "url" if backend.proxy is None else "proxy"
            await _reach(f"{name}.{key}", backend.proxy or url, backend.limits.connect_s)
        dialect = DIALECTS[backend.dialect]
        headers = dict(dialect.fixed_headers) | (dict(dialect.headers(keys[name])) if name in keys else {})
        exchange = _exchange(backend, dialect, url=url, headers=headers, clock=clock)
        await stack.enter_async_context(exchange)
        live.append(
            LiveBackend(
                name=name,
                model=backend.model,
                dialect=dialect,
                exchange=_guarded(exchange, backend, clock=clock, share=share),
                transport=backend.transport,
                service_tier=backend.service_tier,
                output_control="x_plan" if backend.simulate else backend.output_control,
                extra_body=backend.extra_body,
                key=keys.get(name),
                prices=prices_of(backend.model, backend.price),
                conversations=exchange if isinstance(exchange, WebSocketExchange) else None,
            )
        )
    return live


def _exchange(
    backend: Backend, dialect: Dialect, *, url: str, headers: Mapping[str, str], clock: MachineClock
) -> HttpExchange | WebSocketExchange:
    """Make what carries a backend's calls."""
    speak = dialect.as_message
    endpoint = Endpoint(
        url=url,
        headers=headers,
        transport=backend.transport,
        stream_types=dialect.stream_types,
        proxy=backend.proxy,
        as_message=None if speak is None else lambda body, lane: in_lane(speak(body), lane),
        lane_of=lane_of,
    )
    limits = CallLimits(**backend.limits.model_dump())
    tls = ssl.create_default_context() if url.startswith("https:") else None
    if backend.transport == "websocket":
        return WebSocketExchange(endpoint, limits=limits, clock=clock, ssl_context=tls)
    sink = os.environ.get(ITER_ANY) != "1"
    return HttpExchange(endpoint, limits=limits, clock=clock, ssl_context=tls, sink=sink)


def _guarded(exchange: Exchange, backend: Backend, *, clock: MachineClock, share: Share) -> Exchange:
    """Put the scenario's caps and retries before an exchange; each attempt passes the caps."""
    asked = backend.quota
    quota = Quota(_part(asked.requests_per_min, share), _part(asked.tokens_per_min, share))
    if quota != Quota():
        exchange = Capped(exchange, admission(quota), clock)
    if backend.retry == "sdk":
        exchange = Retrying(exchange, clock, backend.limits.total_s)
    return exchange


def _part(amount: int | None, share: Share) -> int | None:
    """Give a share's part of a quota; the parts of all shares add up to it, unless there are more shares."""
    return None if amount is None else max(1, share.of(amount))


async def _reach(name: str, url: str, connect_s: float) -> None:
    """Open and close one connection: a wrong address is told before anything is measured."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(min(connect_s, CONNECT_S_MAX)):
            _, writer = await asyncio.open_connection(parts.hostname, port)
            writer.close()
    except TimeoutError:
        problem = f"no answer within {min(connect_s, CONNECT_S_MAX):g} s"
    except OSError as error:
        problem = _words(error)
    else:
        return
    raise UnreachableError(
        f"backends.{name}: cannot reach {parts.hostname}:{port}: {problem};"
        " is the server up, and the url right?"
    )


def _words(error: OSError) -> str:
    """Word why a connection failed; asyncio's own texts hold addresses, and of several they are a list."""
    if error.errno is None:
        return "none of its addresses takes a connection"
    return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
