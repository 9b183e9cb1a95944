"""The body of `POST /v1/chat/completions` as the simulator understands it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.simulator.prefix_cache import Prefix

DEFAULT_OUTPUT_TOKENS = 128


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """A tool call to be answered: `tokens` for its name and arguments together."""

    name: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to answer: reasoning, then text, then tool calls, cut after `output_tokens`."""

    call_id: str | None
    output_tokens: int
    reasoning_tokens: int
    text_tokens: int
    tools: tuple[ToolPlan, ...]
    finish_reason: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A checked request; `prefixes` is the prompt, message by message."""

    model: str
    prefixes: tuple[Prefix, ...]
    plan: Plan
    stream: bool
    include_usage: bool
    continuous_usage: bool
    service_tier: str | None


def parse(body: object) -> ChatRequest:
    """Check a decoded body; ValueError with a sentence if it cannot be served."""
    if not isinstance(body, dict):
        raise ValueError("the body must be a JSON object")  # noqa: TRY004 - one error for all bad bodies
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise ValueError("'messages' must be a list of at least one message object")
    if not isinstance(body.get("model"), str):
        raise ValueError("'model' must be a string")  # noqa: TRY004
    options = _mapping(body, "stream_options")
    return ChatRequest(
        model=body["model"],
        prefixes=_prefixes(messages),
        plan=_plan(body),
        stream=body.get("stream") is True,
        include_usage=options.get("include_usage") is True,
        continuous_usage=options.get("continuous_usage_stats") is True,
        service_tier=body.get("service_tier"),
    )


def _prefixes(messages: list[dict[str, Any]]) -> tuple[Prefix, ...]:
    prefixes = []
    key, tokens = 0, 0
    for position, message in enumerate(messages):
        try:
            text = _text(message)
            # Python's own hash: fast on long prompts, and the keys never leave this process.
            key = hash((key, message.get("role"), text))
        except (AttributeError, KeyError, TypeError):
            raise ValueError(f"message {position} is not a chat message") from None
        tokens += _count_words(text)
        prefixes.append(Prefix(key, tokens))
    return tuple(prefixes)


def _text(message: Mapping[str, Any]) -> str:
    """All words of a message; a space before each piece keeps the count right."""
    content = message.get("content") or ""
    pieces = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    for call in message.get("tool_calls") or ():
        pieces += [call["function"]["name"], call["function"]["arguments"]]
    return " ".join(pieces) if len(pieces) > 1 else pieces[0]


def _count_words(text: str) -> int:
    """Words, a token each: blanks, and one more if the first word has none before it."""
    return text.count(" ") + (not text.startswith(" ")) if text else 0


def _plan(body: Mapping[str, Any]) -> Plan:
    asked = _mapping(body, "x_plan")
    limit = _count(body, "max_completion_tokens", least=1) or _count(body, "max_tokens", least=1)
    wanted = _count(asked, "output_tokens")
    planned = wanted is not None
    if wanted is None:
        wanted = _count(body, "min_tokens") or limit or DEFAULT_OUTPUT_TOKENS
    tools = tuple(_tool(tool) for tool in asked.get("tool_calls") or ())
    reasoning = _count(asked, "reasoning_tokens") or 0
    text = wanted - reasoning - sum(tool.tokens for tool in tools)
    if text < 0 or not wanted:
        raise ValueError("'output_tokens' must be at least 1 and include the reasoning and tool tokens")
    cut = limit is not None and (wanted > limit or (wanted == limit and not planned))
    return Plan(
        call_id=asked.get("call_id"),
        output_tokens=wanted if limit is None else min(wanted, limit),
        reasoning_tokens=reasoning,
        text_tokens=text,
        tools=tools,
        finish_reason="length" if cut else "tool_calls" if tools else "stop",
    )


def _tool(asked: object) -> ToolPlan:
    if not isinstance(asked, dict) or not isinstance(asked.get("name"), str):
        raise ValueError("each of 'tool_calls' must be an object with 'name' and 'tokens'")  # noqa: TRY004
    return ToolPlan(asked["name"], _count(asked, "tokens", least=1) or 1)


def _mapping(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = body.get(key)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"'{key}' must be an object")
    return value or {}


def _count(body: Mapping[str, Any], key: str, *, least: int = 0) -> int | None:
    value = body.get(key)
    if value is not None and (type(value) is not int or value < least):
        raise ValueError(f"'{key}' must be a whole number, at least {least}")
    return value
