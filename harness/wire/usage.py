"""Token counts: what is believed of them, and their spelling in chat and legacy completions."""

from typing import Any

from harness.values import Usage

TOKENS_MAX = 10**9
"""No call has more. Sums of what is believed stay far from 64 bits, which is all that records can hold."""


def counts_of_chat(told: dict[str, Any]) -> dict[str, object]:
    """Name what a `usage` object of chat and of legacy completions tells."""
    incoming, outgoing = told.get("prompt_tokens_details"), told.get("completion_tokens_details")
    return {
        "input_tokens": told.get("prompt_tokens"),
        "output_tokens": told.get("completion_tokens"),
        "cached_tokens": incoming.get("cached_tokens") if isinstance(incoming, dict) else None,
        "reasoning_tokens": outgoing.get("reasoning_tokens") if isinstance(outgoing, dict) else None,
    }


def usage_of(said: dict[str, object]) -> tuple[Usage | None, bool]:
    """Make a Usage of what was said, and tell whether all of it can be true.

    A number that is not told, or cannot be true, stays None, and so does the whole if none is left: a part
    that is larger than its whole (cached > input, reasoning > output) is not believed, the whole is.
    """
    counts = {name: count(value) for name, value in said.items()}
    for part, whole in (("cached_tokens", "input_tokens"), ("reasoning_tokens", "output_tokens")):
        counts[part] = _within(counts[part], counts[whole])
    usage = Usage(**counts)
    return None if usage == Usage() else usage, counts == said


def count(value: object) -> int | None:
    """Take a number of tokens; None if it is no such number."""
    return value if type(value) is int and 0 <= value <= TOKENS_MAX else None


def _within(part: int | None, whole: int | None) -> int | None:
    return None if part is not None and whole is not None and part > whole else part
