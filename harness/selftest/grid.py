"""What is measured: each cell is one load on the meter. A new transport is one word more here."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

Transport = Literal["keep-alive", "new-connection"]

RATES = (54, 750)
"""Tokens/s of a stream: the standard and the fast tier that this harness was made to compare."""

STREAMS = (1, 8, 32)
PER_EVENT = (1, 4)
TRANSPORTS: tuple[Transport, ...] = ("keep-alive", "new-connection")

SECONDS: Mapping[int, float] = {54: 0.7, 750: 0.5}
"""How long the streams of a rate last: all cells together are to take less than a minute."""

CROWD = 128


@dataclass(frozen=True, slots=True)
class Cell:
    """One load. per_event: tokens in an event; held: the event loop is kept from running 80 % of the time."""

    tokens_per_s: int
    streams: int
    per_event: int = 1
    tls: bool = False
    transport: Transport = "keep-alive"
    held: bool = False

    @property
    def events(self) -> int:
        """Output events of each stream."""
        return round(self.tokens_per_s * SECONDS[self.tokens_per_s] / self.per_event)

    @property
    def tokens(self) -> int:
        """Tokens of each stream."""
        return self.events * self.per_event


GRID: tuple[Cell, ...] = (
    *(
        Cell(rate, streams, per_event, tls, transport)
        for rate, tls, streams, per_event, transport in product(
            RATES, (False, True), STREAMS, PER_EVENT, TRANSPORTS
        )
    ),
    *(Cell(min(RATES), CROWD, tls=tls) for tls in (False, True)),
    *(Cell(max(RATES), max(STREAMS), tls=tls, held=True) for tls in (False, True)),
)
