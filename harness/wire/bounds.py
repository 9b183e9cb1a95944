"""When output events came, and how surely: the arrays of an Answer, filled while pieces arrive.

A read's stamp is exact for the event that ends where the read ends. For every other event of the
read it is an upper bound, and the stamp of the read before is the lower one. Pieces in a row with
one stamp are one read: a read may hold several chunks of HTTP.
"""

from array import array

UNTOLD = -1
"""Token count of an event where the stream does not tell it."""


class Bounds:
    """Parallel arrays, one entry an output event; see `values.Answer` for their meaning.

    ends_read: the newest byte is the last one of an output event. Set it after every piece; whether
    the read ends there too shows when a piece with another stamp comes, or `close`.
    """

    __slots__ = ("_before", "_stamp", "_tokens", "ends_read", "high_ns", "kinds", "low_ns")

    def __init__(self) -> None:
        self.high_ns = array("q")
        self.low_ns = array("q")
        self.kinds = array("b")
        self.ends_read = False
        self._tokens = array("q")  # as far as the last event that told them
        self._stamp = 0
        self._before = 0

    def piece(self, stamp_ns: int) -> None:
        """Begin a piece of the body, before its events."""
        if stamp_ns != self._stamp:
            if self.ends_read:
                self.low_ns[-1] = self.high_ns[-1]
            self._before = self._stamp if self._stamp < stamp_ns else stamp_ns  # noqa: FURB136 - min() is slow
            self._stamp = stamp_ns

    def went_on(self, stamp_ns: int) -> None:
        """Note that the read of `stamp_ns` brought bytes of no event behind all that came so far."""
        self.piece(stamp_ns)
        self.ends_read = False

    def output(self, kind: int) -> None:
        """Add an output event that this piece completed."""
        self.high_ns.append(self._stamp)
        self.low_ns.append(self._before)
        self.kinds.append(kind)

    def told(self, tokens: int) -> None:
        """Set the token count of the newest event."""
        self._tokens.extend([UNTOLD] * (len(self.high_ns) - 1 - len(self._tokens)))
        self._tokens.append(tokens)

    def tokens(self) -> "array[int]":
        """Return the counts of all events. Totals that stay 0 told nothing."""
        if not any(self._tokens):
            return array("q", [UNTOLD]) * len(self.high_ns)
        return self._tokens + array("q", [UNTOLD]) * (len(self.high_ns) - len(self._tokens))

    def close(self) -> None:
        """End the last read."""
        if self.ends_read:
            self.low_ns[-1] = self.high_ns[-1]
