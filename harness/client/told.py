"""What an answer's headers say of limits and of asking again, as numbers.

Vendors write these headers in several ways, so whatever cannot be read is left out. Sources: OpenAI's
"Rate limits" (`x-ratelimit-*`, durations as Go writes them), Anthropic's "Rate limits" (`anthropic-*`,
times as in RFC 3339), Cerebras and Groq (windows in the names), the official SDKs (`retry-after-ms`).
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

NUMBERS_MAX = 16
"""So many are kept of one answer; vendors send 6 to 15."""

RETRY_AFTER = "retry-after-s"
"""Name of the seconds that a server wants to be left alone, of `retry-after-ms` or `retry-after`."""

_NAME_LENGTH = 40
_NAME = re.compile(r"(?:x-|anthropic-)?ratelimit-(.+)|anthropic-((?:fast|priority)-.+)")
_WHAT = re.compile(r"(?:^|-)(limit|remaining|reset|cost)(?:-|$)")
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h|d)")
_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}
_EPOCH_S, _EPOCH_MS = 1e9, 1e11  # a reset above is no duration but a time: of this century in s, or in ms


def limits_told(headers: Mapping[str, str], *, wall_s: float) -> dict[str, float]:
    """Give the numbers of limit headers by name: limit, remaining, cost as told, reset in seconds from now.

    Names lose their vendor: `x-ratelimit-remaining-tokens` is `remaining-tokens`, a reset `reset-tokens-s`.
    wall_s: seconds since the epoch when the answer came, for resets told as times.
    """
    found: dict[str, float] = {}
    after = retry_after_s(headers, wall_s=wall_s)
    if after is not None:
        found[RETRY_AFTER] = _short(after)
    for header, value in headers.items():
        name = header.lower()
        match = _NAME.fullmatch(name)
        short = (match[1] or match[2])[:_NAME_LENGTH] if match else ""
        what = _WHAT.search(short)
        if what is None or len(found) >= NUMBERS_MAX:
            continue
        number = _reset_s(value, wall_s) if what[1] == "reset" else _number(value)
        if number is not None:
            found[f"{short}-s" if what[1] == "reset" else short] = _short(number)
    return found


def retry_after_s(headers: Mapping[str, str], *, wall_s: float) -> float | None:
    """Read `retry-after-ms`, else `retry-after` (seconds or an HTTP date); None if neither says a time.

    The order is the official SDKs'. Negative where the time has passed.
    """
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        number = _number(headers.get(name, ""))
        if number is not None:
            return number * scale
    try:
        at = parsedate_to_datetime(headers.get("retry-after", "").strip())
    except (ValueError, OverflowError):
        return None
    return _epoch_s(at) - wall_s


def resend_told(headers: Mapping[str, str]) -> bool | None:
    """Read `x-should-retry`, by which vendors tell their SDKs whether to ask again."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower())


def _reset_s(value: str, wall_s: float) -> float | None:
    """Read when a limit is whole again: seconds, Go's `1m30.5s`, RFC 3339, seconds or ms since the epoch."""
    text = value.strip()
    number = _number(text)
    if number is not None:
        if number > _EPOCH_S:
            return (number / 1e3 if number > _EPOCH_MS else number) - wall_s
        return number
    parts = _PART.findall(text)
    if parts and "".join(amount + unit for amount, unit in parts) == text:
        return sum(float(amount) * _UNIT_S[unit] for amount, unit in parts)
    try:
        return _epoch_s(datetime.fromisoformat(text)) - wall_s
    except (ValueError, OverflowError):
        return None


def _epoch_s(at: datetime) -> float:
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _short(number: float) -> float:
    """Write no digits that say nothing: every call's record holds these numbers."""
    rounded = round(number, 6)
    return int(rounded) if rounded.is_integer() else rounded


def _number(text: str) -> float | None:
    """Read a finite number; digits in groups of `1,000` too."""
    try:
        number = float(text.strip().replace(",", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None
