"""A request becomes the body of POST /responses: blocks to input items, limits, tools, options."""

from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import Any

from harness.values import Block, Request, Role
from harness.wire.prompt import ONE_TEXT, about, forced, has_text, text_of, with_body

_STREAM = b'{"stream":true,'
_CREATE = b'{"type":"response.create",'


def encode(request: Request) -> Request:
    """Fill `path` and `body`.

    Nothing is kept by the server unless `extra_body` says `store = true`: over HTTP a `previous_response_id`
    needs that, over a WebSocket the connection remembers. Effort and summaries go into `extra_body`
    (`reasoning = { effort = "low" }`).
    """
    body: dict[str, Any] = {
        "stream": True,  # first, where `as_message` finds it
        "model": request.model,
        "input": list(_items(request.blocks)),
        "max_output_tokens": request.max_tokens,
        "store": False,
    }
    if request.previous_response_id is not None:
        body["previous_response_id"] = request.previous_response_id
    if request.tools:
        body["tools"] = [_tool(name) for name in request.tools]
    if request.service_tier is not None:
        body["service_tier"] = request.service_tier
    return with_body(request, body | forced(request), path="/responses")


def as_message(body: bytes) -> bytes:
    """Turn an encoded body into the WebSocket's message: an event, which always streams."""
    return _CREATE + body.removeprefix(_STREAM).removeprefix(b"{")


def _items(blocks: tuple[Block, ...]) -> Iterable[dict[str, Any]]:
    """Neighbouring blocks of one role are one message; tool calls and results are items of their own."""
    for role, group in groupby(blocks, key=lambda block: block.role):
        run = list(group)
        if role is Role.TOOL:
            for block in run:
                yield {
                    "type": "function_call_output",
                    "call_id": block.answers or "",
                    "output": text_of([block]),
                }
            continue
        calls = [call for block in run for call in block.tool_calls]
        if has_text(run) or not calls:
            yield {"type": "message", "role": role, "content": text_of(run)}
        for call in calls:
            yield {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
            }


@lru_cache(maxsize=1024)
def _tool(name: str) -> dict[str, Any]:
    """Make a tool's schema. Not strict: that, the default here, would have the server compile it."""
    return {
        "type": "function",
        "name": name,
        "description": about(name),
        "parameters": ONE_TEXT,
        "strict": False,
    }
