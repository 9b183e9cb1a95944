"""Simulated backends on loopback, one port per profile: `python -m harness.simulator.server --profile NAME`.

Speaks OpenAI's chat completions (`POST /v1/chat/completions`, `GET /v1/models`), `GET /healthz`, and
`GET /stats`. With HARNESS_SIMULATOR_KEY set, `/v1` wants it as the bearer token. When it listens, it
prints one JSON line per profile: `{"profile": ..., "url": "http://127.0.0.1:PORT/v1"}`.

The body field `x_plan` says what to answer; each key may be left out:

    {"call_id": str,              # put into the log
     "output_tokens": int,        # all of them, reasoning and tool calls included
     "reasoning_tokens": int,     # come first; the profile hides or streams them
     "tool_calls": [{"name": str, "tokens": int}]}    # come last; `tokens` is for name and arguments

Without `output_tokens`: `min_tokens`, else the limit, else 128. The limit (`max_completion_tokens`,
`max_tokens`) cuts any plan.

`--log FILE` writes one JSON line per finished or broken request into a new FILE: two runs have the same
call_ids, so what an earlier server left there is gone. Times are CLOCK_MONOTONIC ns; `sends`
holds the output events in order, each with the time read just before its write; `queued_ns` is how long
the request waited for its turn:

    {"call_id", "profile", "received_ns", "queued_ns", "first_byte_ns", "sends": [[ns, tokens, kind]],
     "ended_ns", "cancelled": bool}                   # kind: text, reasoning or tool
"""

import argparse
import asyncio
import gc
import os
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import orjson
from aiohttp import web

from harness.clock import MachineClock, wall_time
from harness.errors import UsageError
from harness.simulator.chat_events import ChatEncoder, Heading
from harness.simulator.chat_request import ChatRequest, parse
from harness.simulator.jobs import Job
from harness.simulator.profiles import Profile, Reasoning, profiles
from harness.simulator.serving import EventStream, PreciseSelector, Serving, StreamLog

HOST = "127.0.0.1"
BODY_LIMIT = 64 * 1024 * 1024
BACKLOG = 4096
CLOCK = MachineClock()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _error(
    status: int, message: str, *, kind: str = "invalid_request_error", code: str | None = None
) -> web.Response:
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _error(error.status, f"{error.reason}: {request.method} {request.path}")


@dataclass(frozen=True, slots=True)
class _Call:
    """A request that has been understood."""

    call_id: str | None
    received_ns: int
    job: Job
    encoder: ChatEncoder

    @property
    def request_id(self) -> str:
        return f"req_sim{self.job.id}"


class Endpoints:
    """The HTTP side of one served profile."""

    def __init__(self, serving: Serving, *, log: StreamLog | None, key: str | None) -> None:
        self._serving = serving
        self._profile = serving.profile
        self._log = log
        self._key = key

    def application(self) -> web.Application:
        """Build the routes."""
        application = web.Application(client_max_size=BODY_LIMIT, middlewares=[_errors_as_json])
        application.router.add_post("/v1/chat/completions", self.chat_completions)
        application.router.add_get("/v1/models", self.models)
        application.router.add_get("/healthz", self.healthz)
        application.router.add_get("/stats", self.stats)
        return application

    async def healthz(self, _request: web.Request) -> web.Response:
        """Tell that the server is up."""
        return web.json_response({"status": "ok", "profile": self._profile.name})

    async def stats(self, _request: web.Request) -> web.Response:
        """Tell what was served so far and how late."""
        return web.json_response(self._serving.stats())

    async def models(self, request: web.Request) -> web.Response:
        """List the one model that is served."""
        if refusal := self._refuse_key(request):
            return refusal
        model = {"id": self._profile.model, "object": "model", "created": 0, "owned_by": "simulated"}
        return web.json_response({"object": "list", "data": [model]})

    async def chat_completions(self, request: web.Request) -> web.StreamResponse:
        """Answer one chat completion, streamed or whole."""
        received_ns = CLOCK.now_ns()
        if refusal := self._refuse_key(request):
            return refusal
        try:
            chat = parse(orjson.loads(await request.read()))
        except orjson.JSONDecodeError as error:
            return _error(400, f"The body is not JSON: {error}")
        except ValueError as error:
            return _error(400, f"{error}.")
        if chat.model != self._profile.model:
            message = f"The model `{chat.model}` does not exist; this server serves `{self._profile.model}`."
            return _error(404, message, code="model_not_found")
        job = Job(self._serving.next_job_id(), chat.prefixes, chat.plan.output_tokens)
        call = _Call(chat.plan.call_id, received_ns, job, self._encoder(chat, job))
        return await (self._stream(request, call) if chat.stream else self._whole(call))

    async def _stream(self, request: web.Request, call: _Call) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                "x-request-id": call.request_id,
            }
        )
        response.enable_chunked_encoding()
        writer = await response.prepare(request)
        transport = request.transport
        if writer is None or transport is None:  # the client has gone
            return response
        stream = EventStream(call.encoder, writer, transport=transport, clock=CLOCK)
        self._serving.start(call.job, stream.deliver, received_ns=call.received_ns)
        finished = False
        try:
            finished = await stream.done
            await response.write_eof()
        finally:
            self._close(call, stream.first_byte_ns, sends=stream.sends(), cancelled=not finished)
        return response

    async def _whole(self, call: _Call) -> web.StreamResponse:
        done = asyncio.Event()

        def deliver(_tokens: int, last: bool) -> None:
            if last:
                done.set()

        self._serving.start(call.job, deliver, received_ns=call.received_ns)
        first_byte_ns = None
        try:
            await done.wait()
            first_byte_ns = CLOCK.now_ns()
        finally:
            self._close(call, first_byte_ns, sends=[], cancelled=first_byte_ns is None)
        headers = {"x-request-id": call.request_id}
        return web.Response(body=call.encoder.completion(), content_type="application/json", headers=headers)

    def _close(
        self, call: _Call, first_byte_ns: int | None, *, sends: list[tuple[int, int, str]], cancelled: bool
    ) -> None:
        self._serving.cancel(call.job)
        if self._log:
            self._log.write(
                {
                    "call_id": call.call_id,
                    "profile": self._profile.name,
                    "received_ns": call.received_ns,
                    "queued_ns": call.job.queued_ns,
                    "first_byte_ns": first_byte_ns,
                    "sends": sends,
                    "ended_ns": CLOCK.now_ns(),
                    "cancelled": cancelled,
                }
            )

    def _encoder(self, chat: ChatRequest, job: Job) -> ChatEncoder:
        profile = self._profile
        asked_default = chat.service_tier not in (None, "auto", profile.service_tier)
        heading = Heading(
            id=f"chatcmpl-sim{job.id}",
            created=int(wall_time()),
            model=profile.model,
            service_tier="default" if asked_default else profile.service_tier,
        )
        show = profile.reasoning is Reasoning.STREAMED
        return ChatEncoder(chat, job, heading=heading, show_reasoning=show)

    def _refuse_key(self, request: web.Request) -> web.Response | None:
        if self._key is None or request.headers.get("Authorization") == f"Bearer {self._key}":
            return None
        return _error(401, "Missing or incorrect API key.", code="invalid_api_key")


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


def _chosen(names: list[str]) -> list[Profile]:
    if unknown := [name for name in names if name not in profiles()]:
        raise UsageError(f"No profile is called {', '.join(unknown)}; there are: {', '.join(profiles())}.")
    return [profiles()[name] for name in names]


def _stop_at_end_of_stdin(stop: asyncio.Event) -> None:
    def read() -> None:
        if not os.read(0, 4096):
            stop.set()

    asyncio.get_running_loop().add_reader(0, read)


async def _serve(arguments: argparse.Namespace, chosen: list[Profile], *, log: StreamLog | None) -> None:
    tls = _certificate(arguments.tls_cert, arguments.tls_key)
    ports = [arguments.port + i if arguments.port else 0 for i in range(len(chosen))]
    listeners = [_listen(port) for port in ports]
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if arguments.watch_stdin:
        _stop_at_end_of_stdin(stop)
    key = os.environ.get("HARNESS_SIMULATOR_KEY")
    runners = []
    for profile, listener in zip(chosen, listeners, strict=True):
        serving = Serving(profile, clock=CLOCK, seed=arguments.seed)
        application = Endpoints(serving, log=log, key=key).application()
        # A client that goes away cancels its handler, and that its job. A stop does not wait for streams.
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        await web.SockSite(runner, listener, ssl_context=tls, backlog=BACKLOG).start()
        url = f"{'https' if tls else 'http'}://{HOST}:{listener.getsockname()[1]}/v1"
        sys.stdout.write(orjson.dumps({"profile": profile.name, "url": url}).decode() + "\n")
    sys.stdout.flush()
    gc.freeze()  # what is loaded by now lives on: full collections need not walk it between two tokens
    await stop.wait()
    for runner in runners:
        await runner.cleanup()


def _parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m harness.simulator.server", description="Simulated backends."
    )
    parser.add_argument("--profile", action="append", required=True, metavar="NAME", help="may be repeated")
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
        chosen = _chosen(options.profile)
        log = _open_log(options.log) if options.log else None
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(PreciseSelector())) as runner:
            runner.run(_serve(options, chosen, log=log))
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
