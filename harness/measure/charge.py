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

from dataclasses import dataclass
from http import HTTPStatus

import numpy as np

from harness.measure.calls import Calls, Floats, Mask
from harness.prices import EndpointPrice, InferencePrice, Prices, TokenPrice, entry_at
from harness.records import CallOutcome
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


def tokens_usd(
    price: TokenPrice,
    *,
    input_tokens: Floats | float,
    cached_tokens: Floats | float,
    output_tokens: Floats | float,
) -> Floats:
    """Uncached input x input price + cached x cached price + output x output price, per million.

    Input includes cached tokens, output includes reasoning. Never negative: a server that claims more cached
    tokens than there were must not win back what a spend limit counts.
    """
    uncached = np.maximum(0, input_tokens - cached_tokens)
    usd: Floats = (uncached * price.input + cached_tokens * price.cached + output_tokens * price.output) / 1e6
    return usd


def calls_usd(calls: Calls, prices: Prices, *, like: Habit = STRANGER) -> Floats:
    """Cost of each call at the tier that served it, else at the one asked; nan where unknown.

    like: the calls around them, for those that broke off.
    """
    usd = np.full(len(calls), np.nan)
    for tier in calls.tier.counted():
        usd = np.where(calls.tier.are((tier,)), _tier_usd(calls, prices, tier, like), usd)
    return usd


def _tier_usd(calls: Calls, prices: Prices, tier: str | None, like: Habit) -> Floats:
    """Cost of calls, if all of them are charged at one tier."""
    entry = entry_at(prices, tier)
    price = None if entry is None else entry.price
    unknown = np.full(len(calls), np.nan)
    if isinstance(price, EndpointPrice):
        return unknown
    if isinstance(price, InferencePrice):
        return price.usd_per_inference_second * busy_ns(calls) / 1e9
    usd = unknown if price is None else np.where(countable(calls), _by_token_usd(calls, price, like), np.nan)
    return np.where(unserved(calls), 0.0, usd)


def _by_token_usd(calls: Calls, price: TokenPrice, like: Habit) -> Floats:
    """Price tokens: the told ones, else those that a call that broke off has had so far."""
    planned, silent = _or_0(calls.input_planned), np.isnan(calls.input_tokens)
    return tokens_usd(
        price,
        input_tokens=np.where(silent, planned, calls.input_tokens),
        cached_tokens=np.where(silent, like.cached_share * planned, _or_0(calls.cached_tokens)),
        output_tokens=np.where(
            np.isnan(calls.output_tokens), like.tokens_per_event * calls.streamed_events, calls.output_tokens
        ),
    )


def task_usd(calls: Calls, prices: Prices, *, like: Habit | None = None) -> float | None:
    """Cost of a task: the sum over its calls, whatever became of them; None where one is unknown.

    like: what a call that broke off is taken to be like; the task's own calls, if it is left out.
    """
    usd = calls_usd(calls, prices, like=like or habit(calls))
    return None if np.isnan(usd).any() else sum(usd.tolist())  # one after the other, as a person would


def habit(calls: Calls) -> Habit:
    """Sum up the calls that told their tokens."""
    known = told(calls)
    sent, cached, came, events = (
        float(one[known].sum())
        for one in (
            calls.input_tokens,
            _or_0(calls.cached_tokens),
            calls.output_tokens,
            calls.streamed_events,
        )
    )
    return Habit(
        cached_share=cached / sent if sent else STRANGER.cached_share,
        tokens_per_event=max(1.0, came / events) if events else STRANGER.tokens_per_event,
    )


def wasted_usd(calls: Calls, prices: Prices) -> float | None:
    """Money for calls that did not end well; None where that of one is unknown."""
    return task_usd(calls[~calls.ok], prices, like=habit(calls))


def busy_ns(calls: Calls) -> Floats:
    """Time from sent to done, of each call and of its attempts before; 0 if it never reached a machine."""
    unconnected = calls.error_kind.are(_UNCONNECTED)
    return np.where(unconnected, 0.0, calls.done_ns - calls.sent_ns) + calls.attempts_ns


def told(calls: Calls) -> Mask:
    """Tell for each call whether the server counted its tokens."""
    return ~np.isnan(calls.input_tokens) & ~np.isnan(calls.output_tokens)


def unserved(calls: Calls) -> Mask:
    """Tell whether a server failed to do anything for a call. One that we stopped was being worked on.

    Unless we stopped it before it was sent, or while it waited to be asked again.
    """
    silent = np.isnan(calls.input_tokens) & np.isnan(calls.output_tokens)
    failed = calls.outcome.are((CallOutcome.FAILED,)) & ~calls.error_kind.are(_TIMEOUTS)
    idle = (calls.done_ns <= calls.sent_ns) | (calls.status >= HTTPStatus.BAD_REQUEST)
    return np.where(calls.streamed_events > 0, False, silent & (failed | idle))


def countable(calls: Calls) -> Mask:
    """Tell whether there are tokens to be charged: told ones, or those of a call that broke off."""
    prompt = ~np.isnan(calls.input_tokens) | ~np.isnan(calls.input_planned)
    return told(calls) | (prompt & ~calls.ok)


def _or_0(counts: Floats) -> Floats:
    return np.where(np.isnan(counts), 0.0, counts)
