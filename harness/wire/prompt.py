"""A request becomes the body of POST /chat/completions: blocks to messages, limits, tools, options."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import Any

import orjson

from harness.values import Block, Request, Role, ToolCall
from harness.wire.payload import parse
from harness.wire.words import BlockTexts

ONE_TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The schema of every tool's arguments: small, and the same wherever the name is."""

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
    if request.tools:
        body["tools"] = [tool(name) for name in request.tools]
    if request.service_tier is not None:
        body["service_tier"] = request.service_tier
    return with_body(request, body | forced(request), path="/chat/completions", extra=extra)


def forced(request: Request) -> dict[str, Any]:
    """Give the words of vLLM and SGLang that force a length."""
    return {} if request.min_tokens is None else {"min_tokens": request.min_tokens, "ignore_eos": True}


def with_body(
    request: Request, body: dict[str, Any], *, path: str, extra: Mapping[str, Any] | None = None
) -> Request:
    """Fill in `path` and `body`, with what goes into every dialect's body.

    That is the plan for our own simulator and, last, a scenario's own keys: `extra`, or the request's.
    Of an object only those keys are replaced that the scenario names.
    """
    if request.x_plan is not None:
        body["x_plan"] = request.x_plan
    for key, value in (request.extra_body if extra is None else extra).items():
        told = body.get(key)
        body[key] = {**told, **value} if isinstance(told, dict) and isinstance(value, dict) else value
    return replace(request, path=path, body=orjson.dumps(body))


def text_of(blocks: Iterable[Block]) -> orjson.Fragment:
    """Join the texts of blocks to one JSON string."""
    texts = (_texts.json(block) for block in blocks)
    return orjson.Fragment(b'"' + b" ".join(text for text in texts if text) + b'"')


def has_text(blocks: Sequence[Block]) -> bool:
    """Tell whether there is anything in `text_of` them."""
    return any(block.tokens if block.text is None else block.text for block in blocks)


def about(tool: str) -> str:
    """Describe a tool for the model."""
    return f"Run {tool} on the input."


@lru_cache(maxsize=1024)
def parameters(name: str) -> dict[str, Any]:
    """Make a tool's schema."""
    return {"name": name, "description": about(name), "parameters": ONE_TEXT}


def tool(name: str) -> dict[str, Any]:
    """Wrap a tool's schema as chat and its like do."""
    return {"type": "function", "function": parameters(name)}


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """Give a tool call's arguments where a dialect wants an object; other text is its only argument."""
    return parse(call.arguments.encode()) or {"input": call.arguments}


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
