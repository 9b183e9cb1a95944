"""Numbers of one call, from plain numbers: nanoseconds and token counts in, a value or None out.

None means that the stream did not tell enough; it is never replaced by 0. The definitions are those
of the project's vocabulary (TPOT, hidden tokens, streamed tokens).
"""


def hidden_tokens(
    reasoning_tokens: int | None, *, raw_reasoning: bool, summaries: bool, reasons: bool = False
) -> int | None:
    """Return how many output tokens were never streamed; None if that cannot be known.

    reasoning_tokens as usage tells them; raw_reasoning: events with the reasoning itself came;
    summaries: only summaries of it came; reasons: the backend is known to reason.
    hidden = 0 if the reasoning was streamed, or if usage names none; all reasoning tokens if none of
    it was streamed; unknown behind summaries (their length is another), and where a backend that
    reasons does not split its usage.
    """
    if raw_reasoning:
        return 0
    if summaries or (reasons and reasoning_tokens is None):
        return None
    return reasoning_tokens or 0


def streamed_tokens(output_tokens: int | None, hidden: int | None) -> int | None:
    """Return the tokens that events carried: output - hidden."""
    if output_tokens is None or hidden is None or hidden > output_tokens:
        return None
    return output_tokens - hidden


def first_event_tokens(told: int | None, hidden: int | None) -> int:
    """Return the streamed tokens of the first output event: 1 where the stream does not tell.

    A running total at the first event counts the hidden tokens before it too; they are taken off.
    """
    if told is None or told < 0:
        return 1
    return told - hidden if hidden and told > hidden else told


def tpot_ns(span_ns: int | None, *, streamed: int | None, first: int) -> float | None:
    """Return time per output token: span / (streamed - first).

    span = last output - first output, None unless there are two events; streamed tokens of the call;
    `first` tokens of its first event, which came before the span began. None if none came after it.
    """
    if span_ns is None or streamed is None or streamed <= first:
        return None
    return span_ns / (streamed - first)
