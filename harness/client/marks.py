"""When an exchange first touched the network, and what the stages of opening its connection took.

The socket and aiohttp's trace tell each stage as it begins, on behalf of whichever exchange opens or
sends just then. Of a stage that is told several times (addresses tried side by side, the pieces of a
large body) the first counts.
"""

from contextvars import ContextVar

from harness.clock import Clock


class Marks:
    """Times on the clock's axis in ns; 0 where a stage has not begun.

    `sent_ns` is the first touch of the network: looking the host up or connecting, where a connection is
    opened for this exchange, else the first byte of the request. What the client does before that is its
    own time, not the server's. `asked_ns` is when something was asked for over the connection that had been
    opened.
    """

    __slots__ = (
        "_clock",
        "asked_ns",
        "connected_ns",
        "connecting_ns",
        "opened_ns",
        "resolving_ns",
        "sent_ns",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.sent_ns = self.resolving_ns = self.connecting_ns = self.connected_ns = 0
        self.opened_ns = self.asked_ns = 0

    def sent(self) -> None:
        """Note that bytes are about to leave."""
        if not self.sent_ns:
            self.sent_ns = self._clock.now_ns()
        elif self.opened_ns and not self.asked_ns:
            self.asked_ns = self._clock.now_ns()

    def resolving(self) -> None:
        """Note that the host's name is looked up, or another exchange's look-up waited for."""
        self.sent()
        self.resolving_ns = self.resolving_ns or self._clock.now_ns()

    def connecting(self) -> None:
        """Note that a socket is about to connect."""
        self.sent()
        self.connecting_ns = self.connecting_ns or self._clock.now_ns()

    def connected(self) -> None:
        """Note that the connection that won is taken into use: TLS or the request is next."""
        self.connected_ns = self.connected_ns or self._clock.now_ns()

    def opened(self) -> None:
        """Note that the connection can carry a request."""
        self.opened_ns = self._clock.now_ns()

    def dns_ns(self) -> int:
        """Give the time of looking up the host's name; 0 where it is an address."""
        return self.connecting_ns - self.resolving_ns if self.resolving_ns and self.connecting_ns else 0

    def connect_ns(self) -> int:
        """Give the time from connecting to being connected, all addresses that were tried included."""
        return self.connected_ns - self.connecting_ns if self.connected_ns else 0

    def secure_ns(self) -> int:
        """Give the time from being connected to being open: TLS, where there is TLS."""
        return self.opened_ns - self.connected_ns if self.opened_ns and self.connected_ns else 0


marking: ContextVar[Marks | None] = ContextVar("marks of the exchange that opens or sends", default=None)
