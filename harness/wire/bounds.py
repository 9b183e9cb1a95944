"""When output events came, and how surely: the arrays of an Answer, filled while pieces arrive.

A read's stamp is exact for the event that ends where the read ends. For every other event of the
read it is an upper bound, and the stamp of the read before is the lower one. Pieces in a row with
one stamp are one read: a read may hold several chunks of HTTP.
"""

from array import array

UNTOLD = -1
"""Token count of an event where the stream does not tell it."""


class Bounds:
    """Parallel arrays, one entry an output event; see `values.Answer` for their meaning."""

    __slots__ = ("_before", "_stamp", "high_ns", "kinds", "low_ns", "tokens")

    def __init__(self) -> None:
        self.high_ns = array("q")
        self.low_ns = array("q")
        self.kinds = array("b")
        self.tokens = array("q")
        self._stamp = 0
        self._before = 0

    def piece(self, stamp_ns: int) -> None:
        """Begin a piece of the body, before its events."""
        if stamp_ns != self._stamp:
            self._before = min(self._stamp, stamp_ns)
            self._stamp = stamp_ns
        elif self.high_ns and self.high_ns[-1] == stamp_ns:
            self.low_ns[-1] = self._before  # the read goes on, so its last event does not end it

    def output(self, kind: int, tokens: int) -> None:
        """Add an output event that this piece completed."""
        self.high_ns.append(self._stamp)
        self.low_ns.append(self._before)
        self.kinds.append(kind)
        self.tokens.append(tokens)

    def exact(self) -> None:
        """Mark the last output event: it ends where the piece ends (until more of the read comes)."""
        self.low_ns[-1] = self.high_ns[-1]
