"""OpenAI's responses over one WebSocket: lanes side by side, in each of them one request after the other.

The connection remembers what its answers left, also of those that are not stored.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson
from aiohttp import WSMsgType, web

from harness.simulator.answering import CLOCK, Handler, keys_in, refused
from harness.simulator.asked import Place
from harness.simulator.dialects.responses import RESPONSES, ResponsesEncoder
from harness.simulator.dialects.speech import openai_error
from harness.simulator.endpoint import Endpoint
from harness.simulator.prefix_cache import Prefix
from harness.simulator.refusal import Refusal
from harness.simulator.streaming import EventStream

MESSAGE_LIMIT = 64 * 1024 * 1024
_CREATE = "response.create"
_SHORT, _MIDDLE = 126, 65536  # lengths that a frame tells in 1 and in 3 bytes, RFC 6455 section 5.2


def lanes(endpoint: Endpoint, *, key: str | None) -> Handler:
    """Make the handler of `GET /v1/responses`."""

    async def upgrade(request: web.Request) -> web.StreamResponse:
        if key is not None and key not in keys_in(request):
            return refused(endpoint, RESPONSES, Refusal(401, "Missing or incorrect API key."))
        socket = web.WebSocketResponse(compress=False, max_msg_size=MESSAGE_LIMIT)
        await socket.prepare(request)
        transport = request.transport
        if transport is None:  # the client has gone
            return socket
        connection = _Connection(endpoint, transport)
        async with asyncio.TaskGroup() as group:
            started: list[asyncio.Task[None]] = []
            async for message in socket:
                if message.type is not WSMsgType.TEXT:
                    continue
                lane, queue = connection.taken(message.data)
                if queue is not None:
                    started.append(group.create_task(connection.work(lane, queue)))
            for task in started:
                task.cancel()
        return socket

    return upgrade


class _Connection:
    """What one connection remembers; it writes frames straight to the transport, as they fall due."""

    def __init__(self, endpoint: Endpoint, transport: asyncio.Transport) -> None:
        self._endpoint = endpoint
        self._transport = transport
        self._history: dict[str, tuple[Prefix, ...]] = {}
        self._lanes: dict[str | None, asyncio.Queue[Mapping[str, Any]]] = {}

    def taken(self, text: str) -> tuple[str | None, "asyncio.Queue[Mapping[str, Any]] | None"]:
        """Put a message into its lane; returns the lane, and its queue if it is new."""
        try:
            event = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            event = Refusal(400, f"The message is not JSON: {error}")
        if isinstance(event, dict) and event.get("type") != _CREATE:
            event = Refusal(400, f"The event's type must be {_CREATE}; it is {event.get('type')!r}.")
        if not isinstance(event, dict):
            self._refuse(event if isinstance(event, Refusal) else Refusal(400, "Want an object."), None)
            return None, None
        lane = event.get("stream_id")
        lane = lane if isinstance(lane, str) else None
        queue = self._lanes.get(lane)
        new = queue is None
        if queue is None:
            queue = self._lanes[lane] = asyncio.Queue()
        queue.put_nowait(event)
        return lane, queue if new else None

    async def work(self, lane: str | None, queue: "asyncio.Queue[Mapping[str, Any]]") -> None:
        """Answer what comes into a lane, in order."""
        while True:
            await self._answer({**await queue.get(), "stream": True}, lane)

    async def _answer(self, body: Mapping[str, Any], lane: str | None) -> None:
        endpoint = self._endpoint
        call = endpoint.admit(
            RESPONSES,
            body,
            place=Place({}, self._earlier),
            received_ns=CLOCK.now_ns(),
            make=partial(ResponsesEncoder, framed=partial(_in_lane, lane)),
        )
        if isinstance(call, Refusal):
            self._refuse(call, lane)
            return
        stream = EventStream(call.encoder, self._transport, frame=text_frame, send_head=_no_head, clock=CLOCK)
        call.serving.start(call.job, stream.deliver, received_ns=call.received_ns)
        finished = False
        try:
            stream.greet()
            finished = await stream.done
            self._history[call.output.facts.id] = call.output.history
        finally:
            endpoint.close(call, stream.first_byte_ns, sends=stream.sends(), cancelled=not finished)

    def _earlier(self, id_: str) -> tuple[Prefix, ...] | None:
        return self._history.get(id_) or self._endpoint.stored.get(id_)

    def _refuse(self, refusal: Refusal, lane: str | None) -> None:
        headers = {**refusal.headers(), **self._endpoint.limit_headers(RESPONSES)}
        error = {**openai_error(refusal), "headers": headers}
        told = orjson.dumps({"type": "error", "status": refusal.status, "error": error})
        self._transport.write(text_frame(_in_lane(lane, "error", told)))


def text_frame(data: bytes) -> bytes:
    """Frame a text as a server does: whole, and not masked."""
    size = len(data)
    if size < _SHORT:
        return b"\x81%c%b" % (size, data)
    if size < _MIDDLE:
        return b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), data)
    return b"\x81\x7f%b%b" % (size.to_bytes(8, "big"), data)


def _in_lane(lane: str | None, _type: str, data: bytes) -> bytes:
    return data if lane is None else b'%b,"stream_id":%b}' % (data[:-1], orjson.dumps(lane))


def _no_head() -> None:
    """Nothing stands before a frame."""
