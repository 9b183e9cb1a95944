"""Numbers of one call, from plain numbers: nanoseconds and token counts in, a value or None out.

None means that the stream did not tell enough; it is never replaced by 0. The definitions are those
of the project's vocabulary (TPOT, hidden tokens, streamed tokens).
"""

from collections.abc import Sequence
from statistics import median_low

CHARACTERS_PER_TOKEN_MAX = 6
"""So many and more on average, and an event holds several tokens; a token has about 4."""

EVENTS_PER_TOKEN_MIN = 0.8
"""Below it a gap is no token's any more; the same the other way round is as odd."""

_HEAVY = 4
"""An event of more than so many times the tokens of the usual one holds some that are not its own."""


def hidden_tokens(reasoning_tokens: int | None, *, raw_reasoning: bool, summaries: bool) -> int | None:
    """Return how many output tokens were never streamed; None if that cannot be known.

    reasoning_tokens as usage tells them; raw_reasoning: events with the reasoning itself came;
    summaries: only summaries of it came.
    hidden = 0 if the reasoning was streamed, or if usage names none; all reasoning tokens if none of
    it was streamed; unknown behind summaries (their length is another).
    """
    if raw_reasoning:
        return 0
    return None if summaries else reasoning_tokens or 0


def streamed_tokens(output_tokens: int | None, hidden: int | None) -> int | None:
    """Return the tokens that events carried: output - hidden."""
    if output_tokens is None or hidden is None or hidden > output_tokens:
        return None
    return output_tokens - hidden


def streamed_per_event(
    told: Sequence[int], *, output_tokens: int | None, hidden: int | None
) -> Sequence[int] | None:
    """Return the streamed tokens of each event; None if the stream tells them of none.

    told: differences of running totals, -1 where an event had none; their sum is the last total.
    Servers differ in whether totals count hidden tokens. The last total decides, against what usage says
    in the end: above the streamed tokens (output - hidden) it counts the hidden ones, at most at them it
    does not. Where it counts them, they were generated before the first event and are taken off it. If it
    cannot hold them, or totals and usage contradict each other, no event's count is known; nor is it where
    totals stop before the last event, so that either may be true.
    """
    total = sum(count for count in told if count > 0)
    streamed = streamed_tokens(output_tokens, hidden)
    if hidden == 0 and output_tokens is None:  # cut before its usage came
        return told
    if streamed is None or output_tokens is None or hidden is None or total > output_tokens:
        return None
    if not told or not hidden:
        return told
    first = told[0] - hidden
    if total > streamed:
        return [first, *told[1:]] if first >= 0 else None
    return None if first >= 0 and told[-1] < 0 else told


def tokens_after_last(told: Sequence[int | None], *, streamed: int | None) -> int:
    """Return the streamed tokens that came behind the last output event: no part of the span of TPOT.

    told: streamed tokens of each event, None where untold. Signs that close a tool call, and the end token,
    are generated and counted, but a server's parser holds them back. 0 where totals do not reach the last
    event, or stand still, so that they count nothing.
    """
    if streamed is None or not told or told[-1] is None or (len(told) > 1 and not any(told[1:])):
        return 0
    return max(0, streamed - sum(count or 0 for count in told))


def swallowed_tokens(
    told: Sequence[int | None], *, streamed: int | None, first_tool: int | None, characters: int
) -> int:
    """Return the streamed tokens of a call of tools that came in no event; 0 if less than a fifth of all.

    told: streamed tokens of each event, None where untold; first_tool: the first event with a part of a
    tool call; characters: of all that the events carried. Servers' parsers hold back the signs around a tool
    call, or all of it, and then tokens pass without an event (sgl-project/sglang#36272: the running total
    jumps from 1 to 17). Where totals tell, these are what one event from the first tool event on has above
    the usual event, and what came behind the last. Else they are streamed - events, unless the events are so
    long that each holds several tokens.
    """
    if first_tool is None or streamed is None or not told:
        return 0
    counts = [count for count in told if count is not None]
    if len(counts) == len(told):
        usual = max(1, median_low(counts))
        heavy = [count - usual for count in counts[first_tool:] if count > _HEAVY * usual]
        after = tokens_after_last(told, streamed=streamed)
        held = sum(heavy) + (after if after > _HEAVY * usual else 0)
    elif characters >= CHARACTERS_PER_TOKEN_MAX * len(told):
        held = 0
    else:
        held = streamed - len(told)
    return held if held > (1 - EVENTS_PER_TOKEN_MIN) * streamed else 0


def tpot_ns(span_ns: int | None, *, streamed: int | None, first: int | None) -> float | None:
    """Return time per output token: span / (streamed - first).

    span = last output - first output, None unless there are two events; streamed tokens up to the last one;
    `first` tokens of the first one, which came before the span began: 1 where the stream does not tell.
    None if no token came after it.
    """
    first = 1 if first is None else first
    if span_ns is None or streamed is None or streamed <= first:
        return None
    return span_ns / (streamed - first)
