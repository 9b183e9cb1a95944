"""Numbers of recorded calls, a column each: nanoseconds, or nan where a record does not tell."""

import numpy as np

from harness.measure.calls import Calls, Floats

TWO = 2


def ttft_ns(calls: Calls) -> Floats:
    """First output event (reasoning counts, a role-only event does not) - sent."""
    return calls.first_output_ns - calls.sent_ns


def user_ttft_ns(calls: Calls) -> Floats:
    """First output event - sent of the first attempt: what a user waits when an SDK asks again."""
    return calls.first_output_ns - calls.first_sent_ns


def ttfo_ns(calls: Calls) -> Floats:
    """First answer or tool output - sent."""
    return calls.first_answer_ns - calls.sent_ns


def last_output_ns(calls: Calls) -> Floats:
    """Last output event - sent; usage and the end mark come later."""
    return calls.last_output_ns - calls.sent_ns


def wall_ns(calls: Calls) -> Floats:
    """End of the answer - sent."""
    return calls.done_ns - calls.sent_ns


def streamed_tokens(calls: Calls) -> Floats:
    """Tokens that events carried: output - hidden; see `metrics.call.streamed_tokens`."""
    streamed = calls.output_tokens - calls.hidden_tokens
    return np.where(streamed >= 0, streamed, np.nan)


def call_tpot_ns(calls: Calls) -> Floats:
    """(last output - first output) / (streamed tokens between them); needs two events.

    As `metrics.call.tpot_ns`: the first event has 1 token where the stream does not tell, and what came
    behind the last event is no part.
    """
    tokens = spanned_tokens(calls)
    known = (tokens > 0) & (calls.streamed_events >= TWO)
    return over(calls.last_output_ns - calls.first_output_ns, np.where(known, tokens, np.nan))


def spanned_tokens(calls: Calls) -> Floats:
    """Streamed tokens that came after the first event, up to the last one."""
    first = np.where(np.isnan(calls.first_event_tokens), 1, calls.first_event_tokens)
    return streamed_tokens(calls) - calls.tokens_after_last - first


def ttft_low_ns(calls: Calls) -> Floats:
    """Earliest TTFT that the bounds of a shared read allow."""
    return calls.first_output_low_ns - calls.sent_ns


def ttfo_low_ns(calls: Calls) -> Floats:
    """Earliest TTFO that the bounds of a shared read allow."""
    return calls.first_answer_low_ns - calls.sent_ns


def last_output_low_ns(calls: Calls) -> Floats:
    """Earliest last output that the bounds of a shared read allow."""
    return calls.last_output_low_ns - calls.sent_ns


def tpot_low_ns(calls: Calls) -> Floats:
    """Smallest TPOT that the bounds allow: latest first output, earliest last output."""
    upper, span = call_tpot_ns(calls), calls.last_output_ns - calls.first_output_ns
    shortest = np.maximum(0, calls.last_output_low_ns - calls.first_output_ns)
    return np.where(span == 0, upper + 0 * shortest, over(upper * shortest, span))


def decode_tokens_per_s(calls: Calls) -> Floats:
    """1 / TPOT; unknown where all tokens came at one moment."""
    return over(1e9, call_tpot_ns(calls))


def events_per_token(calls: Calls) -> Floats:
    """Output events / streamed tokens: below 1 events hold several tokens."""
    return over(calls.streamed_events, streamed_tokens(calls))


def over(value: Floats | float, by: Floats) -> Floats:
    """Divide; nan where there is nothing to divide by."""
    quotient: Floats = np.divide(value, by, out=np.full(len(by), np.nan), where=by != 0)
    return quotient
