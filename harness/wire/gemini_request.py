"""A request becomes the body of streamGenerateContent, or of the Interactions API."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any
from urllib.parse import quote

from harness.values import Block, Request, Role, ToolCall
from harness.wire.prompt import arguments_of, parameters, text_of, with_body

_NO_SIGNATURE = "skip_thought_signature_validator"
"""Stands where a model's own signature of its thoughts would: a history that it did not think itself.

Gemini 3 refuses calls in a history without any (400). Source: Gemini API, "Thought signatures", FAQ.
"""


def encode(request: Request) -> Request:
    """Fill `path` and `body`. There is no way to force a length.

    `interactions = true` in `extra_body` asks the Interactions API instead; all else of it is sent there too.
    """
    extra = dict(request.extra_body)
    if extra.get("interactions") is True:
        del extra["interactions"]
        return with_body(request, _interaction(request), path="/interactions", extra=extra)
    body: dict[str, Any] = {
        "contents": list(_contents(request.blocks)),
        "generationConfig": {"maxOutputTokens": request.max_tokens},
    }
    if system := _system(request.blocks):
        body["systemInstruction"] = {"parts": [{"text": text_of(system)}]}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [parameters(name) for name in request.tools]}]
    if request.service_tier is not None:
        body["serviceTier"] = request.service_tier
    model = request.model if "/" in request.model else f"models/{request.model}"
    path = f"/{quote(model)}:streamGenerateContent?alt=sse"
    return with_body(request, body, path=path, extra=extra)


def _system(blocks: tuple[Block, ...]) -> list[Block]:
    return [block for block in blocks if block.role is Role.SYSTEM]


def _runs(blocks: tuple[Block, ...]) -> Iterable[tuple[Role, list[Block], list[ToolCall]]]:
    """Neighbouring blocks of one role, with their tool calls."""
    others = (block for block in blocks if block.role is not Role.SYSTEM)
    for role, group in groupby(others, key=lambda block: block.role):
        run = list(group)
        yield role, run, [call for block in run for call in block.tool_calls]


def _names(blocks: tuple[Block, ...]) -> dict[str | None, str]:
    return {call.id: call.name for block in blocks for call in block.tool_calls}


def _contents(blocks: tuple[Block, ...]) -> Iterable[dict[str, Any]]:
    """All results of one round of tools are one content, as the calls were."""
    names = _names(blocks)
    for role, run, calls in _runs(blocks):
        if role is Role.TOOL:
            results = [
                {"name": names.get(block.answers, ""), "response": {"result": text_of([block])}}
                for block in run
            ]
            yield {"role": "user", "parts": [{"functionResponse": result} for result in results]}
            continue
        parts: list[dict[str, Any]] = [{"text": text_of(run)}] if not calls or any(map(_says, run)) else []
        for place, call in enumerate(calls):
            part: dict[str, Any] = {"functionCall": {"name": call.name, "args": arguments_of(call)}}
            parts.append(part if place else part | {"thoughtSignature": _NO_SIGNATURE})
        yield {"role": "model" if role is Role.ASSISTANT else "user", "parts": parts}


def _says(block: Block) -> bool:
    return bool(block.text) if block.text is not None else block.tokens > 0


def _interaction(request: Request) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "input": list(_steps(request.blocks)),
        "stream": True,
        "generation_config": {"max_output_tokens": request.max_tokens},
    }
    if system := _system(request.blocks):
        body["system_instruction"] = text_of(system)
    if request.tools:
        body["tools"] = [{"type": "function", **parameters(name)} for name in request.tools]
    if request.service_tier is not None:
        body["service_tier"] = request.service_tier
    if request.previous_response_id is not None:
        body["previous_interaction_id"] = request.previous_response_id
    return body


def _steps(blocks: tuple[Block, ...]) -> Iterable[dict[str, Any]]:
    names = _names(blocks)
    for role, run, calls in _runs(blocks):
        if role is Role.TOOL:
            for block in run:
                name = names.get(block.answers, "")
                result = {"call_id": block.answers or "", "name": name, "result": text_of([block])}
                yield {"type": "function_result", **result}
            continue
        if not calls or any(map(_says, run)):
            kind = "model_output" if role is Role.ASSISTANT else "user_input"
            yield {"type": kind, "content": [{"type": "text", "text": text_of(run)}]}
        for call in calls:
            yield {"type": "function_call", "id": call.id, "name": call.name, "arguments": arguments_of(call)}
