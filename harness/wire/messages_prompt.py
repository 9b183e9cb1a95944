"""A request becomes the body of POST /messages: system apart, turns of blocks, limits, tools, options."""

from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import Any

import orjson

from harness.values import Block, Request, Role
from harness.wire.payload import parse
from harness.wire.prompt import ONE_TEXT, about, forced, has_text, text_of, with_body

SPEEDS = ("fast", "standard")


def encode(request: Request) -> Request:
    """Fill `path` and `body`.

    A scenario's `service_tier` has two places here: `fast` and `standard` are a `speed`, every other word
    (`auto`, `standard_only`) is a `service_tier`. Prompts are cached only where `extra_body` asks for it
    (`cache_control = { type = "ephemeral" }`).
    """
    system = [block for block in request.blocks if block.role is Role.SYSTEM]
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": list(_messages(request.blocks)),
        "stream": True,
    }
    if has_text(system):
        body["system"] = text_of(system)
    if request.tools:
        body["tools"] = [_tool(name) for name in request.tools]
    if request.service_tier is not None:
        body["speed" if request.service_tier in SPEEDS else "service_tier"] = request.service_tier
    return with_body(request, body | forced(request), path="/messages")


def _messages(blocks: tuple[Block, ...]) -> Iterable[dict[str, Any]]:
    """Make turns of user and assistant; a tool's result is the user's.

    Empty texts are left out: Anthropic refuses them.
    """
    said = [block for block in blocks if block.role is not Role.SYSTEM]
    for is_assistant, group in groupby(said, key=lambda block: block.role is Role.ASSISTANT):
        run = list(group)
        results = [block for block in run if block.role is Role.TOOL]
        spoken = [block for block in run if block.role is not Role.TOOL]
        content = [_result(block) for block in results]
        if has_text(spoken):
            content.append({"type": "text", "text": text_of(spoken)})
        content += [_use(call.id, call.name, call.arguments) for block in run for call in block.tool_calls]
        if content:
            yield {"role": Role.ASSISTANT if is_assistant else Role.USER, "content": content}


def _result(block: Block) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": block.answers or "", "content": text_of([block])}


def _use(id_: str, name: str, arguments: str) -> dict[str, Any]:
    """Make a tool call of the history: its input is an object here, and cannot be any other text."""
    said = arguments.encode("utf-8", "replace")
    if arguments and parse(said) is None:
        said = orjson.dumps({"input": arguments})
    return {"type": "tool_use", "id": id_, "name": name, "input": orjson.Fragment(said or b"{}")}


@lru_cache(maxsize=1024)
def _tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": about(name), "input_schema": ONE_TEXT}
