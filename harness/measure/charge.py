"""What one call and one task cost, by the tiers that really served them.

What a call costs by the token, the first that fits:

1. It failed with no output and no usage (no connection, refused, an HTTP error): 0.
2. Its tier has no price: unknown, which is never 0.
3. Its usage was told: tokens x price. Cached tokens that were not told count as uncached ones.
4. It broke off before its usage came (cut, cancelled, timed out, failed amid its output): what is known so
   far. That is the planned prompt and the output events that came, taken to be like those of the calls
   around it: as much of the prompt cached, as many tokens an event. Reasoning that nobody saw yet is
   missing. An estimate, and a finding says how much of the money it is.
5. It ended well and told no usage: unknown.

By the second of inference a call costs its busy time, however it ended. Where endpoints are paid by the
hour, a call has no cost of its own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.prices import EndpointPrice, InferencePrice, Prices, TokenPrice, entry_at
from harness.records import CallOutcome, CallRecord
from harness.values import ErrorKind

_TIMEOUTS = (ErrorKind.FIRST_OUTPUT_TIMEOUT, ErrorKind.IDLE_TIMEOUT, ErrorKind.TOTAL_TIMEOUT)
_UNCONNECTED = (ErrorKind.CONNECT, ErrorKind.CONNECT_TIMEOUT, ErrorKind.TLS, ErrorKind.CLIENT_RESOURCE)


@dataclass(frozen=True, slots=True)
class Habit:
    """What calls that told their tokens were like, for those that did not live to tell them."""

    cached_share: float = 0.0
    tokens_per_event: float = 1.0


STRANGER = Habit()
"""Nothing is known: nothing is cached, and an event has the one token that it has at least."""


def tokens_usd(price: TokenPrice, *, input_tokens: int, cached_tokens: float, output_tokens: float) -> float:
    """Uncached input x input price + cached x cached price + output x output price, per million.

    Input includes cached tokens, output includes reasoning. Never negative: a server that claims more cached
    tokens than there were must not win back what a spend limit counts.
    """
    uncached = max(0, input_tokens - cached_tokens)
    return (uncached * price.input + cached_tokens * price.cached + output_tokens * price.output) / 1e6


def call_usd(call: CallRecord, prices: Prices, *, like: Habit = STRANGER) -> float | None:
    """Cost of one call at the tier that served it, else at the one asked; None where unknown.

    like: the calls around it, in case that it broke off.
    """
    entry = entry_at(prices, tier_of(call))
    price = None if entry is None else entry.price
    if isinstance(price, EndpointPrice):
        return None
    if isinstance(price, InferencePrice):
        return price.usd_per_inference_second * busy_ns(call) / 1e9
    if unserved(call):
        return 0.0
    if price is None or not countable(call):
        return None
    sent, came = call.input_tokens, call.output_tokens
    planned = call.input_planned or 0
    return tokens_usd(
        price,
        input_tokens=planned if sent is None else sent,
        cached_tokens=like.cached_share * planned if sent is None else call.cached_tokens or 0,
        output_tokens=like.tokens_per_event * call.streamed_events if came is None else came,
    )


def task_usd(calls: Sequence[CallRecord], prices: Prices, *, like: Habit | None = None) -> float | None:
    """Cost of a task: the sum over its calls, whatever became of them; None where one is unknown.

    like: what a call that broke off is taken to be like; the task's own calls, if it is left out.
    """
    costs = [call_usd(call, prices, like=like or habit(calls)) for call in calls]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def habit(calls: Iterable[CallRecord]) -> Habit:
    """Sum up the calls that told their tokens."""
    known = [call for call in calls if told(call)]
    sent = sum(call.input_tokens or 0 for call in known)
    cached = sum(call.cached_tokens or 0 for call in known)
    came = sum(call.output_tokens or 0 for call in known)
    events = sum(call.streamed_events for call in known)
    return Habit(
        cached_share=cached / sent if sent else STRANGER.cached_share,
        tokens_per_event=max(1.0, came / events) if events else STRANGER.tokens_per_event,
    )


def wasted_usd(calls: Sequence[CallRecord], prices: Prices) -> float | None:
    """Money for calls that did not end well; None where that of one is unknown."""
    return task_usd([call for call in calls if call.outcome is not CallOutcome.OK], prices, like=habit(calls))


def busy_ns(call: CallRecord) -> int:
    """Time from sent to done, of the call and of its attempts before; 0 if it never reached a machine."""
    unconnected = call.error is not None and call.error.kind in _UNCONNECTED
    last: int = 0 if unconnected else call.done_ns - call.sent_ns
    return last + sum(
        int(one["done_ns"]) - int(one["sent_ns"]) for one in call.attempts if one["sent_ns"] < call.sent_ns
    )


def tier_of(call: CallRecord) -> str | None:
    """Name the tier to be charged: the one that the server named, else the one that was asked for."""
    return call.tier_served or call.tier_asked


def told(call: CallRecord) -> bool:
    """Tell whether the server counted the call's tokens."""
    return call.input_tokens is not None and call.output_tokens is not None


def unserved(call: CallRecord) -> bool:
    """Tell whether a server failed to do anything for a call. One that we stopped was being worked on."""
    silent = call.input_tokens is None and call.output_tokens is None and not call.streamed_events
    ours = call.error is not None and call.error.kind in _TIMEOUTS
    return silent and call.outcome is CallOutcome.FAILED and not ours


def countable(call: CallRecord) -> bool:
    """Tell whether there are tokens to be charged: told ones, or those of a call that broke off."""
    prompt = call.input_tokens is not None or call.input_planned is not None
    return told(call) or (prompt and call.outcome is not CallOutcome.OK)
