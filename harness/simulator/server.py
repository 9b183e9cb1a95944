"""Simulated backends on loopback, one port per profile: `python -m harness.simulator.server --profile NAME`.

ROUTES says which dialects are spoken where; beside them responses over a WebSocket, `GET /v1/models`,
`GET /healthz` and `GET /stats`.
With HARNESS_SIMULATOR_KEY set, the dialects want it, wherever each carries its key. When it listens, it
prints one JSON line per profile: `{"profile": ..., "url": "http://127.0.0.1:PORT/v1"}`.

The body field `x_plan`, of any dialect, says what to answer; each key may be left out:

    {"call_id": str,              # put into the log
     "output_tokens": int,        # all of them, reasoning and tool calls included
     "reasoning_tokens": int,     # come first; the profile hides or streams them
     "tool_calls": [{"name": str, "tokens": int}]}    # come last; `tokens` is for name and arguments

Without `output_tokens`: `min_tokens`, else the limit, else 128. The dialect's limit (`max_tokens`, ...)
cuts any plan. The last event with usage holds `x_sim`: `{"rtt_ms", "queue_ms"}`, the round trip that is
simulated and how long the request waited for its turn.

`--behaviour JSON`, as often as `--profile`, departs from a profile: harness/behaviour.py.

`--log FILE` writes one JSON line per finished or broken request into a new FILE: two runs have the same
call_ids, so what an earlier server left there is gone. Times are CLOCK_MONOTONIC ns; `sends`
holds the output events in order, each with the time read just before the server's write, which a relay
then holds back for half a round trip where `rtt_ms` is not 0:

    {"call_id", "profile", "received_ns", "queued_ns", "first_byte_ns", "sends": [[ns, tokens, kind]],
     "ended_ns", "cancelled": bool}                   # kind: text, reasoning or tool; profile: that served
"""

import argparse
import asyncio
import gc
import os
import signal
import socket
import ssl
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
from aiohttp import web
from pydantic import ValidationError

from harness.behaviour import Behaviour
from harness.errors import UsageError
from harness.simulator.answering import CLOCK, Handler, answering, keys_in, refused
from harness.simulator.dialects import CHAT, ROUTES
from harness.simulator.endpoint import Endpoint
from harness.simulator.lanes import lanes
from harness.simulator.profiles import Profile, profiles
from harness.simulator.refusal import Refusal
from harness.simulator.relay import relay
from harness.simulator.serving import PreciseSelector, StreamLog

HOST = "127.0.0.1"
BODY_LIMIT = 64 * 1024 * 1024
BACKLOG = 4096


def application(endpoint: Endpoint, *, key: str | None) -> web.Application:
    """Build the routes of one endpoint."""

    async def healthz(_request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "profile": endpoint.profile.name})

    async def stats(_request: web.Request) -> web.Response:
        return web.json_response(endpoint.stats())

    async def models(request: web.Request) -> web.Response:
        if key is not None and key not in keys_in(request):
            return refused(endpoint, CHAT, Refusal(401, "Missing or incorrect API key."))
        model = {"id": endpoint.profile.model, "object": "model", "created": 0, "owned_by": "simulated"}
        return web.json_response({"object": "list", "data": [model]})

    built = web.Application(client_max_size=BODY_LIMIT, middlewares=[_errors_as_json])
    for path, speech in ROUTES:
        built.router.add_post(path, answering(endpoint, speech, key=key))
    built.router.add_get("/v1/responses", lanes(endpoint, key=key))
    built.router.add_get("/v1/models", models)
    built.router.add_get("/healthz", healthz)
    built.router.add_get("/stats", stats)
    return built


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        words = f"{error.reason}: {request.method} {request.path}"
        body = CHAT.refuse(Refusal(error.status, words))
        return web.Response(status=error.status, body=body, content_type="application/json")


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else "there are only 65535"
        raise UsageError(f"Cannot listen on port {port} of {HOST}: {reason}.") from None
    return listener


def _certificate(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:  # SSLError among them
        raise UsageError(f"Cannot use the certificate {cert}: {error}.") from None
    return context


def _open_log(path: Path) -> StreamLog:
    try:
        return StreamLog(path)
    except OSError as error:
        raise UsageError(f"Cannot write the log {path}: {error.strerror}.") from None


def _chosen(names: list[str], behaviours: list[str]) -> list[tuple[Profile, Behaviour]]:
    told = [_behaviour(text) for text in behaviours]
    told += [Behaviour()] * (len(names) - len(told))
    names = [*names, *(one.fallback for one in told if one.fallback)]
    if unknown := [name for name in names if name not in profiles()]:
        raise UsageError(f"No profile is called {', '.join(unknown)}; there are: {', '.join(profiles())}.")
    return [(profiles()[name], one) for name, one in zip(names, told, strict=False)]


def _behaviour(text: str) -> Behaviour:
    try:
        return Behaviour.model_validate_json(text)
    except ValidationError as error:
        at = ".".join(map(str, error.errors()[0]["loc"])) or "JSON"
        raise UsageError(f"Cannot read the behaviour: {at}: {error.errors()[0]['msg']}.") from None


def _stop_at_end_of_stdin(stop: asyncio.Event) -> None:
    def read() -> None:
        if not os.read(0, 4096):
            stop.set()

    asyncio.get_running_loop().add_reader(0, read)


async def _serve(
    arguments: argparse.Namespace, chosen: list[tuple[Profile, Behaviour]], *, log: StreamLog | None
) -> None:
    tls = _certificate(arguments.tls_cert, arguments.tls_key)
    ports = [arguments.port + i if arguments.port else 0 for i in range(len(chosen))]
    listeners = [_listen(port) for port in ports]
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if arguments.watch_stdin:
        _stop_at_end_of_stdin(stop)
    key = os.environ.get("HARNESS_SIMULATOR_KEY")
    async with asyncio.TaskGroup() as relays, AsyncExitStack() as stack:
        started = []
        for (profile, behaviour), listener in zip(chosen, listeners, strict=True):
            endpoint = Endpoint(profile, behaviour, clock=CLOCK, log=log, seed=arguments.seed)
            # A client that goes away cancels its handler, and that its job. A stop does not wait for streams.
            runner = web.AppRunner(
                application(endpoint, key=key),
                access_log=None,
                handler_cancellation=True,
                shutdown_timeout=0.1,
            )
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            if endpoint.rtt_ms and runner.server is not None:
                listener.listen(BACKLOG)
                listener.setblocking(False)
                at_distance = relay(
                    listener, runner.server, rtt_ns=round(endpoint.rtt_ms * 1e6), tls=tls, clock=CLOCK
                )
                started.append(relays.create_task(at_distance))
            else:
                await web.SockSite(runner, listener, ssl_context=tls, backlog=BACKLOG).start()
            url = f"{'https' if tls else 'http'}://{HOST}:{listener.getsockname()[1]}/v1"
            sys.stdout.write(orjson.dumps({"profile": profile.name, "url": url}).decode() + "\n")
        sys.stdout.flush()
        gc.freeze()  # what is loaded by now lives on: full collections need not walk it between two tokens
        await stop.wait()
        for one in started:
            one.cancel()


def _parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m harness.simulator.server", description="Simulated backends."
    )
    parser.add_argument("--profile", action="append", required=True, metavar="NAME", help="may be repeated")
    parser.add_argument("--behaviour", action="append", default=[], metavar="JSON", help="of its profile")
    parser.add_argument("--port", type=int, default=0, help="of the first profile, the others follow; 0: any")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write the true send times into a new file")
    parser.add_argument("--tls-cert", type=Path, metavar="FILE")
    parser.add_argument("--tls-key", type=Path, metavar="FILE")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--watch-stdin", action="store_true", help="end when stdin, a pipe, is closed")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    options = _parse_arguments(arguments)
    try:
        chosen = _chosen(options.profile, options.behaviour)
        log = _open_log(options.log) if options.log else None
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(PreciseSelector())) as runner:
            runner.run(_serve(options, chosen, log=log))
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
