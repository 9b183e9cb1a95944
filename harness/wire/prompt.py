"""A request becomes the body of POST /chat/completions: blocks to messages, limits, tools, options."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import Any

import orjson

from harness.values import Block, Request, Role, ToolCall
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
    body |= forced(request)
    if request.tools:
        body["tools"] = [tool(name) for name in request.tools]
    if request.service_tier is not None:
        body["service_tier"] = request.service_tier
    return filled(request, "/chat/completions", body, extra)


def filled(request: Request, path: str, body: dict[str, Any], extra: Mapping[str, Any]) -> Request:
    """Complete a request of any dialect: the plan for our own simulator, and last what the scenario adds."""
    if request.x_plan is not None:
        body["x_plan"] = request.x_plan
    for key, value in extra.items():
        told = body.get(key)
        body[key] = {**told, **value} if isinstance(told, dict) and isinstance(value, dict) else value
    return replace(request, path=path, body=orjson.dumps(body))


def forced(request: Request) -> dict[str, Any]:
    """Force the output's length, where that is asked for, as vLLM and SGLang do it."""
    return {} if request.min_tokens is None else {"min_tokens": request.min_tokens, "ignore_eos": True}


def text_of(blocks: Iterable[Block]) -> orjson.Fragment:
    """Join blocks to one text, as JSON."""
    texts = (_texts.json(block) for block in blocks)
    return orjson.Fragment(b'"' + b" ".join(text for text in texts if text) + b'"')


def has_text(blocks: Iterable[Block]) -> bool:
    """Tell whether `text_of` them is not empty."""
    return any(block.tokens if block.text is None else block.text for block in blocks)


@lru_cache(maxsize=1024)
def parameters(name: str) -> dict[str, Any]:
    """Make a tool's schema: small, and the same wherever the name is."""
    one_text = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    return {"name": name, "description": f"Run {name} on the input.", "parameters": one_text}


def tool(name: str) -> dict[str, Any]:
    """Wrap a tool's schema as chat and its like do."""
    return {"type": "function", "function": parameters(name)}


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """Give a tool call's arguments where a dialect wants an object; other text is its only argument."""
    try:
        told = orjson.loads(call.arguments or "{}")  # strictly: it is to be written again
    except ValueError:
        told = None
    return told if isinstance(told, dict) else {"input": call.arguments}


def _messages(blocks: tuple[Block, ...]) -> Iterable[dict[str, Any]]:
    """Neighbouring blocks of one role are one message, tool results stay apart."""
    for role, group in groupby(blocks, key=lambda block: block.role):
        if role is Role.TOOL:
            for block in group:
                yield {"role": role, "tool_call_id": block.answers or "", "content": text_of([block])}
            continue
        run = list(group)
        message: dict[str, Any] = {"role": role, "content": text_of(run)}
        if calls := [call for block in run for call in block.tool_calls]:
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in calls
            ]
        yield message
