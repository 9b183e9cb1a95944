"""Requests and tokens per minute, as vendors count them: buckets that fill evenly all the time. Pure.

A request is charged when it is admitted: one request, and its prompt and most output as tokens, whatever it
then makes (Cerebras documents just that; OpenAI estimates likewise). What is not admitted is not charged.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import ceil, floor

from harness.simulator.refusal import Refusal

MINUTE_S = 60
SECOND_MS = 1000


@dataclass(slots=True)
class Bucket:
    """Holds at most one minute's worth, full at first; times are ns of the caller's clock."""

    name: str
    per_minute: int
    level: float = field(init=False)
    filled_ns: int = 0

    def __post_init__(self) -> None:
        self.level = self.per_minute

    def fill(self, now_ns: int) -> None:
        """Let in what has come until now."""
        gained = (now_ns - self.filled_ns) / 1e9 * self.per_minute / MINUTE_S
        self.level = min(self.per_minute, self.level + max(0.0, gained))
        self.filled_ns = now_ns

    def wait_ms(self, amount: float) -> float:
        """Tell how long until `amount` is there."""
        return max(0.0, amount - self.level) / self.per_minute * MINUTE_S * SECOND_MS


class Limits:
    """The buckets of one endpoint; without any, all is admitted and no header is sent."""

    def __init__(self, *, requests_per_min: int | None, tokens_per_min: int | None) -> None:
        told = {"requests": requests_per_min, "tokens": tokens_per_min}
        self._buckets = [Bucket(name, limit) for name, limit in told.items() if limit is not None]

    def admit(self, tokens: int, now_ns: int) -> Refusal | None:
        """Charge a request, or say why not and when to come again."""
        waits = []
        for bucket in self._buckets:
            bucket.fill(now_ns)
            amount = _amount(bucket, tokens)
            if amount > bucket.per_minute:
                return Refusal(
                    429,
                    f"Request too large on {bucket.name} per min:"
                    f" Limit {bucket.per_minute}, Requested {amount}.",
                    code="rate_limit_exceeded",
                    should_retry=False,
                    limited=bucket.name,
                )
            waits.append((bucket.wait_ms(amount), bucket))
        wait_ms, emptiest = max(waits, key=lambda wait: wait[0], default=(0.0, None))
        if emptiest is not None and wait_ms > 0:
            return Refusal(
                429,
                f"Rate limit reached on {emptiest.name} per min: Limit {emptiest.per_minute},"
                f" Used {emptiest.per_minute - floor(emptiest.level)},"
                f" Requested {_amount(emptiest, tokens)}. Please try again in {go_duration(wait_ms)}.",
                code="rate_limit_exceeded",
                retry_after_ms=wait_ms,
                limited=emptiest.name,
            )
        for bucket in self._buckets:
            bucket.level -= _amount(bucket, tokens)
        return None

    def headers(self, style: "HeaderStyle", *, now_ns: int, wall_s: float) -> dict[str, str]:
        """Tell limit, rest and time until full of each bucket, in the words of `style`."""
        told: dict[str, str] = {}
        for bucket in self._buckets:
            bucket.fill(now_ns)
            told |= style(bucket, wall_s)
        return told


HeaderStyle = Callable[[Bucket, float], dict[str, str]]
"""(bucket, wall clock in s) -> headers."""


def openai_headers(bucket: Bucket, wall_s: float) -> dict[str, str]:  # noqa: ARG001 - resets are durations
    """As OpenAI and most others: `x-ratelimit-reset-tokens: 1m30s`."""
    return {
        f"x-ratelimit-limit-{bucket.name}": str(bucket.per_minute),
        f"x-ratelimit-remaining-{bucket.name}": str(floor(bucket.level)),
        f"x-ratelimit-reset-{bucket.name}": go_duration(bucket.wait_ms(bucket.per_minute)),
    }


def anthropic_headers(bucket: Bucket, wall_s: float) -> dict[str, str]:
    """As Anthropic: resets are times, RFC 3339."""
    full = datetime.fromtimestamp(wall_s, UTC) + timedelta(milliseconds=bucket.wait_ms(bucket.per_minute))
    return {
        f"anthropic-ratelimit-{bucket.name}-limit": str(bucket.per_minute),
        f"anthropic-ratelimit-{bucket.name}-remaining": str(floor(bucket.level)),
        f"anthropic-ratelimit-{bucket.name}-reset": full.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def go_duration(ms: float) -> str:
    """Write a duration as Go does, without parts of a millisecond: 12ms, 1.5s, 1m30s, 6h0m0s."""
    whole_ms = ceil(ms)
    if whole_ms < SECOND_MS:
        return f"{whole_ms}ms"
    minutes, rest_ms = divmod(whole_ms, MINUTE_S * SECOND_MS)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{rest_ms / SECOND_MS:g}s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def _amount(bucket: Bucket, tokens: int) -> int:
    return 1 if bucket.name == "requests" else tokens
