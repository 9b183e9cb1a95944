"""Numbers of one call, from its record: nanoseconds, or None where the record does not tell."""

from harness.measure.metrics.call import streamed_tokens, tpot_ns
from harness.records import CallRecord

TWO = 2


def ttft_ns(call: CallRecord) -> int | None:
    """First output event (reasoning counts, a role-only event does not) - sent."""
    return None if call.first_output_ns is None else call.first_output_ns - call.sent_ns


def ttfo_ns(call: CallRecord) -> int | None:
    """First answer or tool output - sent."""
    return None if call.first_answer_ns is None else call.first_answer_ns - call.sent_ns


def last_output_ns(call: CallRecord) -> int | None:
    """Last output event - sent; usage and the end mark come later."""
    return None if call.last_output_ns is None else call.last_output_ns - call.sent_ns


def wall_ns(call: CallRecord) -> int:
    """End of the answer - sent."""
    return call.done_ns - call.sent_ns


def call_tpot_ns(call: CallRecord) -> float | None:
    """(last output - first output) / (streamed tokens between them); needs two events."""
    if call.first_output_ns is None or call.last_output_ns is None or call.streamed_events < TWO:
        return None
    streamed = streamed_tokens(call.output_tokens, call.hidden_tokens)
    return tpot_ns(
        call.last_output_ns - call.first_output_ns,
        streamed=None if streamed is None else streamed - call.tokens_after_last,
        first=call.first_event_tokens,
    )


def ttft_low_ns(call: CallRecord) -> int | None:
    """Earliest TTFT that the bounds of a shared read allow."""
    return None if call.first_output_low_ns is None else call.first_output_low_ns - call.sent_ns


def ttfo_low_ns(call: CallRecord) -> int | None:
    """Earliest TTFO that the bounds of a shared read allow."""
    return None if call.first_answer_low_ns is None else call.first_answer_low_ns - call.sent_ns


def last_output_low_ns(call: CallRecord) -> int | None:
    """Earliest last output that the bounds of a shared read allow."""
    return None if call.last_output_low_ns is None else call.last_output_low_ns - call.sent_ns


def tpot_low_ns(call: CallRecord) -> float | None:
    """Smallest TPOT that the bounds allow: latest first output, earliest last output."""
    upper = call_tpot_ns(call)
    if upper is None or call.last_output_low_ns is None or call.first_output_ns is None:
        return None
    span = (call.last_output_ns or 0) - call.first_output_ns
    shortest = max(0, call.last_output_low_ns - call.first_output_ns)
    return upper * shortest / span if span else upper


def decode_tokens_per_s(call: CallRecord) -> float | None:
    """1 / TPOT; None where all tokens came at one moment."""
    tpot = call_tpot_ns(call)
    return 1e9 / tpot if tpot else None


def events_per_token(call: CallRecord) -> float | None:
    """Output events / streamed tokens: below 1 events hold several tokens."""
    streamed = streamed_tokens(call.output_tokens, call.hidden_tokens)
    return call.streamed_events / streamed if streamed else None
