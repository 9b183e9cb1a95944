"""How far stamps and bounds lie from the truth: numbers of answers whose server told when it sent them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.measure.load import Load, load_of
from harness.selftest.truth import Times, Truth
from harness.values import Answer, StampClock

PATH_NS = 200_000
"""What the path from the server's clock reading to the kernel's stamp may take."""

ROUNDING_NS = 1_000


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer as the product understood it. `body` holds the truth; `failure`: why the answer is none.

    reused: its connection was open, so that nothing but the request was made after sent_ns.
    """

    answer: Answer
    sent_ns: int
    clock: StampClock
    reused: bool
    body: bytes
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """What some streams showed. Counts are of output events.

    exact: its two bounds are equal. error_ns: stamp - true send, of exact events of which the server knows
    when it was. inside: low - path <= sent <= high. early: stamped before it was sent, which cannot be.
    held_up: outside only because of the server, which was stopped between its clock and its write, so that
    the low bound lies before its next reading, or whose kernel says that it had not sent the event by then.
    first_ns: error of each stream's first output, by its upper bound; ttft_ns: recorded TTFT - the server's
    own, of streams over connections that were open. shared: came in one read with others. failures: a
    sentence a stream that did not come through.
    """

    streams: int
    events: int
    exact: int
    inside: int
    early: int
    held_up: int
    shared: int
    error_ns: Times
    first_ns: Times
    ttft_ns: Times
    load: Load
    clock: StampClock
    failures: tuple[str, ...]

    @property
    def late(self) -> int:
        """Events whose low bound lies behind all that the server's clock and the path allow."""
        return self.events - self.inside - self.early - self.held_up

    @property
    def bounded(self) -> bool:
        """Whether there are events, and each lies inside its bounds."""
        return self.events > 0 and self.late == self.early == 0


def figures(seen: Sequence[Seen], truths: Sequence[Truth]) -> Figures:
    """Hold what was seen against the truth, answer by answer."""
    wrong = [_wrong(one, true) for one, true in zip(seen, truths, strict=True)]
    good = [(one, true) for one, true, why in zip(seen, truths, wrong, strict=True) if why is None]
    high, low = (
        joined([np.array(ends, dtype=np.int64) for ends in both])
        for both in ([one.answer.high_ns for one, _ in good], [one.answer.low_ns for one, _ in good])
    )
    sent, written = joined([true.sent for _, true in good]), joined([true.written for _, true in good])
    held = np.concatenate([true.held for _, true in good]) if good else np.empty(0, dtype=np.bool_)
    exact = high == low
    early = sent > high + ROUNDING_NS
    late = low > sent + PATH_NS
    held_up = late & ~early & ((low <= written) | held)
    sizes = [np.unique(one.answer.high_ns, return_counts=True)[1] for one, _ in good]
    first = [one.answer.high_ns[0] - true.sent[0] for one, true in good]
    ttft = [
        one.answer.high_ns[0] - one.sent_ns - (true.sent[0] - true.asked_ns)
        for one, true in good
        if one.reused
    ]
    return Figures(
        streams=len(seen),
        events=len(high),
        exact=int(exact.sum()),
        inside=int((~early & ~late).sum()),
        early=int(early.sum()),
        held_up=int(held_up.sum()),
        shared=int(sum(size[size > 1].sum() for size in sizes)),
        error_ns=(high - sent)[exact & ~held & ~held_up],
        first_ns=np.array(first, dtype=np.int64),
        ttft_ns=np.array(ttft, dtype=np.int64),
        load=load_of(
            np.array([true.sent[0] for _, true in good], dtype=np.float64),
            np.array([true.sent[-1] for _, true in good], dtype=np.float64),
            np.array([len(true.sent) for _, true in good], dtype=np.float64),
        ),
        clock=StampClock.LOOP if any(one.clock is StampClock.LOOP for one, _ in good) else StampClock.KERNEL,
        failures=tuple(why for why in wrong if why is not None),
    )


def quantile_us(times: Times, q: float) -> float | None:
    """Give the smallest time that a share `q` does not pass, in us; None of no times."""
    return float(np.quantile(times, q, method="inverted_cdf")) / 1e3 if len(times) else None


def _wrong(one: Seen, true: Truth) -> str | None:
    if one.failure is not None:
        return one.failure
    if len(one.answer.high_ns) != len(true.sent) or not len(true.sent):
        return f"{len(true.sent)} events were sent, {len(one.answer.high_ns)} were understood"
    return None


def joined(parts: Sequence[Times]) -> Times:
    """Put times behind each other."""
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
