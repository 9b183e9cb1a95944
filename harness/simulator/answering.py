"""A dialect over HTTP: one request in, its answer out, streamed or whole."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import orjson
from aiohttp import web

from harness.clock import MachineClock
from harness.simulator.asked import Place
from harness.simulator.dialects.speech import Speech
from harness.simulator.endpoint import Call, Endpoint
from harness.simulator.refusal import Refusal
from harness.simulator.streaming import EventStream, http_chunk

CLOCK = MachineClock()
JSON = "application/json"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answering(endpoint: Endpoint, speech: Speech, *, key: str | None) -> Handler:
    """Make the handler of a dialect's path."""

    async def answer(request: web.Request) -> web.StreamResponse:
        received_ns = CLOCK.now_ns()
        if key is not None and key not in keys_in(request):
            return refused(endpoint, speech, Refusal(401, "Missing or incorrect API key."))
        try:
            body = orjson.loads(await request.read())
        except orjson.JSONDecodeError as error:
            return refused(endpoint, speech, Refusal(400, f"The body is not JSON: {error}"))
        place = Place({**request.query, **request.match_info}, endpoint.stored.get)
        call = endpoint.admit(speech, body, place=place, received_ns=received_ns)
        if isinstance(call, Refusal):
            return refused(endpoint, speech, call)
        if call.output.asked.stream:
            return await _stream(endpoint, request, call)
        return await _whole(endpoint, call)

    return answer


def keys_in(request: web.Request) -> set[str | None]:
    """Find a key wherever one of the dialects carries it."""
    headers = request.headers
    bearer = headers.get("Authorization", "").removeprefix("Bearer ")
    return {bearer, headers.get("x-api-key"), headers.get("x-goog-api-key"), request.query.get("key")}


def refused(endpoint: Endpoint, speech: Speech, refusal: Refusal) -> web.Response:
    """Answer with an error in the dialect's words."""
    headers = {**refusal.headers(), **endpoint.limit_headers(speech)}
    body = speech.refuse(refusal)
    return web.Response(status=refusal.status, body=body, content_type=JSON, headers=headers)


async def _stream(endpoint: Endpoint, request: web.Request, call: Call) -> web.StreamResponse:
    headers = {"Content-Type": call.encoder.content_type, "Cache-Control": "no-cache", **call.headers}
    response = web.Response(headers=headers)  # a StreamResponse would send its head before the first output
    response.enable_chunked_encoding()
    writer = await response.prepare(request)
    transport = request.transport
    if writer is None or transport is None:  # the client has gone
        return response
    stream = EventStream(
        call.encoder, transport, frame=http_chunk, send_head=writer.send_headers, clock=CLOCK
    )
    call.serving.start(call.job, stream.deliver, received_ns=call.received_ns)
    finished = False
    try:
        stream.greet()
        finished = await stream.done
        await response.write_eof()
    finally:
        endpoint.close(call, stream.first_byte_ns, sends=stream.sends(), cancelled=not finished)
    return response


async def _whole(endpoint: Endpoint, call: Call) -> web.StreamResponse:
    done = asyncio.Event()
    call.serving.start(call.job, partial(_set_at_last, done), received_ns=call.received_ns)
    first_byte_ns = None
    try:
        await done.wait()
        body = call.encoder.completion()
        first_byte_ns = CLOCK.now_ns()
    finally:
        endpoint.close(call, first_byte_ns, sends=[], cancelled=first_byte_ns is None)
    return web.Response(body=body, content_type=JSON, headers=call.headers)


def _set_at_last(done: asyncio.Event, _tokens: int, last: bool) -> None:
    if last:
        done.set()
