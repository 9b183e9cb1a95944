"""How good the stamps of streamed events are: the product's own client against the server's clock.

Prints, never gates; benchmarks/README.md tells how to read it. `harness selftest` measures the same over
more loads and for a shorter time.
"""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path

from truth import Server, serving, told

from harness.client.http import Endpoint, HttpExchange
from harness.clock import MachineClock
from harness.selftest.figures import Figures, Seen, figures, quantile_us
from harness.selftest.measuring import LIMITS, asking, exchange, holding, streams
from harness.selftest.truth import Times, Truth

TOKENS = 1000
SPREAD_S = 1.0
"""Starts are spread over this time, so that first outputs do not wait behind one another."""

STREAMS = (1, 32, 50, 64, 128)
BLOCKED_STREAMS = (32, 50)
ROUNDS = 3
"""How often the streams of 32 and fewer run: a 99th percentile of 32 first outputs would be their worst."""

HEADINGS = (
    *("server", "streams", "loop", "exact", "error us", "inside", "held up"),
    *("first us", "TTFT us", "shared", "late > 1 ms", "latest ms"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One row: a load, what it showed, and how late the server itself was."""

    server: str
    tls: bool
    streams: int
    blocked: bool
    seen: Figures
    late: int
    latest_ns: int

    @property
    def within(self) -> float:
        """Share of events that do not contradict their bounds."""
        return (self.seen.inside + self.seen.held_up) / self.seen.events

    def error_us(self, q: float) -> float:
        """Give a quantile of the exact events' error, in microseconds."""
        return quantile_us(self.seen.error_ns, q) or 0.0

    def ttft_us(self, q: float) -> float:
        """Give a quantile of the TTFT error, in microseconds."""
        return quantile_us(self.seen.ttft_ns, q) or 0.0

    def cells(self) -> list[str]:
        """Write the row of the table."""
        seen = self.seen
        loop = "80 % off" if self.blocked else "free"
        exact, shared = (f"{count / seen.events:.1%}" for count in (seen.exact, seen.shared))
        bounds = [f"{count / seen.events:.3%}" for count in (seen.inside, seen.held_up)]
        error, first, ttft = map(quantiles, (seen.error_ns, seen.first_ns, seen.ttft_ns))
        server = self.server + (", TLS" if self.tls else "")
        return [
            *(server, str(self.streams), loop, exact, error, *bounds, first, ttft, shared),
            *(str(self.late), f"{self.latest_ns / 1e6:.1f}"),
        ]


async def stream(server: Server, number: int, *, trust: ssl.SSLContext | None, blocked: bool) -> list[Seen]:
    """Run all streams at once, over connections that are open."""
    endpoint = Endpoint(server.url)
    async with HttpExchange(endpoint, limits=LIMITS, clock=MachineClock(), ssl_context=trust) as http:
        async with asyncio.TaskGroup() as group:
            for i in range(number):
                group.create_task(exchange(http, asking(i, "tokens=1")))
        async with holding(on=blocked):
            return await streams(http, f"tokens={TOKENS}", number, spread_s=SPREAD_S)


def measured(binary: Path | None, number: int, *, tls: bool = False, blocked: bool = False) -> Row:
    """Measure one row; see `truth.serving` for `binary` and `tls`."""
    seen, truth = list[Seen](), list[Truth]()
    rounds = ROUNDS if number <= min(BLOCKED_STREAMS) else 1
    with serving(binary, tokens=TOKENS, tls=tls) as server:
        for _ in range(rounds):
            came = asyncio.run(stream(server, number, trust=server.trust, blocked=blocked))
            truth += told([one.body for one in came])
            seen += came
        stats = server.stats()
    shown = figures(seen, truth)
    if shown.failures:
        raise SystemExit(f"a stream failed: {shown.failures[0]}")
    return Row(
        server="Python" if binary is None or tls else "C",
        tls=tls,
        streams=number,
        blocked=blocked,
        seen=shown,
        late=stats["late_over_1ms"],
        latest_ns=stats["max_late_ns"],
    )


def quantiles(error_ns: Times) -> str:
    return "/".join(f"{quantile_us(error_ns, q) or 0.0:.0f}" for q in (0.5, 0.99))
