"""A request becomes the body of POST /chat/completions: blocks to messages, limits, tools, options."""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import Any

import orjson

from harness.values import Block, Request, Role
from harness.wire.words import BlockTexts

_texts = BlockTexts()


def encode(request: Request) -> Request:
    """Fill `path` and `body`.

    The limit is `max_tokens`: every compatible server knows it, some (Mistral, llama-cpp-python)
    nothing else. OpenAI's newer models refuse it ("Unsupported parameter: 'max_tokens' is not
    supported with this model. Use 'max_completion_tokens' instead."): `max_completion_tokens = true`
    in `extra_body` sends the same limit under that name.
    """
    extra = dict(request.extra_body)
    limit = "max_completion_tokens" if extra.get("max_completion_tokens") is True else "max_tokens"
    if limit == "max_completion_tokens":
        del extra[limit]
    body: dict[str, Any] = {
        "model": request.model,
        "messages": list(_messages(request.blocks)),
        "stream": True,
        "stream_options": {"include_usage": True},
        limit: request.max_tokens,
    }
    if request.min_tokens is not None:  # vLLM's and SGLang's way to force a length
        body |= {"min_tokens": request.min_tokens, "ignore_eos": True}
    if request.tools:
        body["tools"] = [_tool(name) for name in request.tools]
    if request.service_tier is not None:
        body["service_tier"] = request.service_tier
    if request.x_plan is not None:
        body["x_plan"] = request.x_plan
    for key, value in extra.items():
        told = body.get(key)
        body[key] = {**told, **value} if isinstance(told, dict) and isinstance(value, dict) else value
    return replace(request, path="/chat/completions", body=orjson.dumps(body))


def _messages(blocks: tuple[Block, ...]) -> Iterable[dict[str, Any]]:
    """Neighbouring blocks of one role are one message, tool results stay apart."""
    for role, group in groupby(blocks, key=lambda block: block.role):
        if role is Role.TOOL:
            for block in group:
                yield {"role": role, "tool_call_id": block.answers or "", "content": _joined([block])}
            continue
        run = list(group)
        message: dict[str, Any] = {"role": role, "content": _joined(run)}
        if calls := [call for block in run for call in block.tool_calls]:
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in calls
            ]
        yield message


def _joined(blocks: list[Block]) -> orjson.Fragment:
    texts = (_texts.json(block) for block in blocks)
    return orjson.Fragment(b'"' + b" ".join(text for text in texts if text) + b'"')


@lru_cache(maxsize=1024)
def _tool(name: str) -> dict[str, Any]:
    """Make a tool's schema: small, and the same wherever the name is."""
    one_text = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    function = {"name": name, "description": f"Run {name} on the input.", "parameters": one_text}
    return {"type": "function", "function": function}
