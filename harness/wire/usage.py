"""Token counts in the spelling of chat and legacy completions; other spellings are other dialects'."""

from typing import Any

from harness.values import Usage


def usage_of(told: dict[str, Any]) -> Usage | None:
    """Read a `usage` object; a number that is not told stays None, and so does the whole if none is."""
    incoming, outgoing = told.get("prompt_tokens_details"), told.get("completion_tokens_details")
    usage = Usage(
        input_tokens=count(told.get("prompt_tokens")),
        output_tokens=count(told.get("completion_tokens")),
        cached_tokens=count(incoming.get("cached_tokens")) if isinstance(incoming, dict) else None,
        reasoning_tokens=count(outgoing.get("reasoning_tokens")) if isinstance(outgoing, dict) else None,
    )
    return None if usage == Usage() else usage


def count(value: object) -> int | None:
    """Take a number of tokens; None if it is no such number."""
    return value if type(value) is int and value >= 0 else None
