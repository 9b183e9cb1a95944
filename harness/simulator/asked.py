"""What a request asks of a simulator, whatever its dialect: a prompt in prefixes, and a plan. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from harness.simulator.prefix_cache import Prefix

DEFAULT_OUTPUT_TOKENS = 128


class UnservableError(Exception):
    """A request that is well made and cannot be served; `code` is OpenAI's word for why."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Finish(StrEnum):
    """Why an answer ends; each dialect has its own words for it."""

    STOP = "stop"
    LENGTH = "length"
    TOOLS = "tools"


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
    finish: Finish


@dataclass(frozen=True, slots=True)
class Asked:
    """A checked request; `prefixes` is the prompt, message by message.

    reserve_tokens: prompt and most output, which a limit on tokens charges before the run. model, tier:
    None where the request names none. options: what only the dialect's own encoder understands.
    """

    model: str | None
    prefixes: tuple[Prefix, ...]
    plan: Plan
    reserve_tokens: int
    stream: bool
    tier: str | None = None
    include_usage: bool = True
    continuous_usage: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a body came: words of the path and query, and what earlier answers left.

    history: prefixes of an earlier answer by its id; None if there is none of that id.
    """

    words: Mapping[str, str]
    history: Callable[[str], tuple[Prefix, ...] | None]


def prefixes_of(messages: Iterable[tuple[str, str]], *, after: tuple[Prefix, ...] = ()) -> tuple[Prefix, ...]:
    """Turn (role, text) into prefixes that go on from those of `after`."""
    prefixes = list(after)
    key, tokens = (after[-1].key, after[-1].tokens) if after else (0, 0)
    for role, text in messages:
        # Python's own hash: fast on long prompts, and the keys never leave this process.
        key = hash((key, role, text))
        tokens += count_words(text)
        prefixes.append(Prefix(key, tokens))
    if not prefixes:
        raise ValueError("there is no prompt")
    return tuple(prefixes)


def count_words(text: str) -> int:
    """Words, a token each: blanks, and one more if the first word has none before it."""
    return text.count(" ") + (not text.startswith(" ")) if text else 0


def joined(pieces: list[str]) -> str:
    """Make one text of pieces; a space before each keeps the count right."""
    return " ".join(pieces) if len(pieces) > 1 else pieces[0] if pieces else ""


def plan_of(body: Mapping[str, Any], *, limit: int | None, least: int | None = None) -> Plan:
    """Read the field `x_plan`; without it the answer is `least`, else `limit`, else 128 tokens long."""
    asked = mapping(body, "x_plan")
    wanted = count(asked, "output_tokens")
    planned = wanted is not None
    if wanted is None:
        wanted = least or limit or DEFAULT_OUTPUT_TOKENS
    tools = tuple(_tool(tool) for tool in asked.get("tool_calls") or ())
    reasoning = count(asked, "reasoning_tokens") or 0
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
        finish=Finish.LENGTH if cut else Finish.TOOLS if tools else Finish.STOP,
    )


def all_text(plan: Plan) -> Plan:
    """Fold reasoning and tool calls into text, for interfaces that know neither."""
    finish = Finish.STOP if plan.finish is Finish.TOOLS else plan.finish
    text = plan.text_tokens + plan.reasoning_tokens + sum(tool.tokens for tool in plan.tools)
    return replace(plan, reasoning_tokens=0, text_tokens=text, tools=(), finish=finish)


def reserved(prefixes: tuple[Prefix, ...], plan: Plan, *, limit: int | None) -> int:
    """Tokens that vendors charge before the run: the prompt and the most that may come."""
    return prefixes[-1].tokens + (limit or plan.output_tokens)


def model_in(body: Mapping[str, Any]) -> str:
    """Read the model's name, which must be there."""
    if not isinstance(body.get("model"), str):
        raise ValueError("'model' must be a string")  # noqa: TRY004 - one error for all bad bodies
    return str(body["model"])


def text_in(body: Mapping[str, Any], key: str) -> str | None:
    """Read a text that may be absent."""
    value = body.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"'{key}' must be a string")
    return value


def list_in(body: Mapping[str, Any], key: str) -> list[Any]:
    """Read a list that may be absent."""
    value = body.get(key)
    if value is not None and not isinstance(value, list):
        raise ValueError(f"'{key}' must be a list")
    return value or []


def mapping(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Read an object that may be absent."""
    value = body.get(key)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"'{key}' must be an object")
    return value or {}


def count(body: Mapping[str, Any], key: str, *, least: int = 0) -> int | None:
    """Read a whole number that may be absent."""
    value = body.get(key)
    if value is not None and (type(value) is not int or value < least):
        raise ValueError(f"'{key}' must be a whole number, at least {least}")
    return value


def _tool(asked: object) -> ToolPlan:
    if not isinstance(asked, dict) or not isinstance(asked.get("name"), str):
        raise ValueError("each of 'tool_calls' must be an object with 'name' and 'tokens'")  # noqa: TRY004
    return ToolPlan(asked["name"], count(asked, "tokens", least=1) or 1)
