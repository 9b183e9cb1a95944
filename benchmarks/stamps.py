"""How good the stamps of streamed events are: the product's own client against the server's clock.

Prints, never gates; benchmarks/README.md tells how to read it.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from truth import Server, Stream, Times, Tls, serving, told

from harness.client.http import CallLimits, Endpoint, HttpExchange
from harness.clock import MachineClock, monotonic_ns
from harness.values import Answer, Block, OnRead, Progress, Request, Role
from harness.wire import DIALECTS

CHAT = DIALECTS["openai-chat"]
TOKENS = 1000
SPREAD_S = 1.0
"""Starts are spread over this time, so that first outputs do not wait behind one another."""
BLOCKED_NS, FREE_S = 4_000_000, 0.001
PATH_NS, ROUNDING_NS = 200_000, 1_000
LIMITS = CallLimits(connect_s=30, first_output_s=30, stall_s=30, total_s=60)

STREAMS = (1, 32, 50, 64, 128)
BLOCKED_STREAMS = (32, 50)
ROUNDS = 3
"""How often the streams of 32 and fewer run: a 99th percentile of 32 first outputs would be their worst."""

HEADINGS = (
    *("server", "streams", "loop", "exact", "error us", "inside", "held up"),
    *("first us", "TTFT us", "shared", "late > 1 ms", "latest ms"),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """One row. Times in ns, one entry an event; `first_ns` and `ttft_ns` one entry a stream.

    error_ns: stamp minus true send, of exact events. inside, held_up: shares, see benchmarks/README.md.
    first_ns: the same of the first output's upper bound. ttft_ns: recorded TTFT minus the server's own.
    """

    server: str
    tls: bool
    streams: int
    blocked: bool
    events: int
    exact: float
    error_ns: Times
    inside: float
    held_up: float
    first_ns: Times
    ttft_ns: Times
    shared: float
    late: int
    latest_ns: int

    def error_us(self, q: float) -> float:
        """Give a quantile of the exact events' error, in microseconds."""
        return float(np.quantile(self.error_ns, q)) / 1000

    def ttft_us(self, q: float) -> float:
        """Give a quantile of the TTFT error, in microseconds."""
        return float(np.quantile(self.ttft_ns, q)) / 1000

    def cells(self) -> list[str]:
        """Write the row of the table."""
        loop = "80 % off" if self.blocked else "free"
        shares = [f"{share:.1%}" for share in (self.exact, self.shared)]
        bounds = [f"{share:.3%}" for share in (self.inside, self.held_up)]
        errors = [quantiles(error) for error in (self.error_ns, self.first_ns, self.ttft_ns)]
        server = self.server + (", TLS" if self.tls else "")
        return [
            *(server, str(self.streams), loop, shares[0], errors[0], *bounds, *errors[1:], shares[1]),
            *(str(self.late), f"{self.latest_ns / 1e6:.1f}"),
        ]


@asynccontextmanager
async def blocking(*, on: bool) -> AsyncIterator[None]:
    """Keep the loop from running 80 % of the time, as a program does that computes."""

    async def block() -> None:
        while True:
            until = monotonic_ns() + BLOCKED_NS
            while monotonic_ns() < until:
                pass
            await asyncio.sleep(FREE_S)

    async with asyncio.TaskGroup() as group:
        burner = group.create_task(block()) if on else None
        yield
        if burner:
            burner.cancel()


@dataclass(slots=True)
class Seen:
    """What the product understood of one answer, and its bytes, in which the truth stands."""

    answer: Answer
    sent_ns: int
    body: bytes


def request(number: int) -> Request:
    return CHAT.encode(Request("bench-1", (Block(f"prompt/{number}", 20, Role.USER),), TOKENS))


async def exchange(http: HttpExchange, asked: Request) -> Seen:
    """Make one call; its bytes are kept on the way, which costs nothing but memory."""
    decoder, pieces = CHAT.decoder(), list[bytes]()
    feed: OnRead = decoder.feed

    def keep(data: bytes, stamp: int) -> Progress:
        pieces.append(data)
        return feed(data, stamp)

    timeline = await http(asked, keep)
    if timeline.error is not None:
        raise SystemExit(f"a stream failed: {timeline.error.message}")
    return Seen(decoder.answer(ended=True), timeline.sent_ns, b"".join(pieces))


async def stream(server: Server, streams: int, *, trust: ssl.SSLContext | None, blocked: bool) -> list[Seen]:
    """Run all streams at once, over connections that are open."""
    clock = MachineClock()
    async with HttpExchange(Endpoint(server.url), limits=LIMITS, clock=clock, ssl_context=trust) as http:
        short = [replace(asked, path=asked.path + "?tokens=1") for asked in map(request, range(streams))]
        async with asyncio.TaskGroup() as group:
            for asked in short:
                group.create_task(exchange(http, asked))

        async def one(i: int, due_ns: int) -> Seen:
            asked = request(i)
            await clock.sleep_until(due_ns)
            return await exchange(http, asked)

        began_ns = clock.now_ns()
        async with blocking(on=blocked), asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(one(i, began_ns + round(i * SPREAD_S * 1e9 / streams)))
                for i in range(streams)
            ]
        return [task.result() for task in tasks]


def figures(binary: Path | None, streams: int, *, tls: Tls | None = None, blocked: bool = False) -> Figures:
    """Measure one row; see `truth.serving` for `binary` and `tls`."""
    seen, truth = list[Seen](), list[Stream]()
    rounds = ROUNDS if streams <= min(BLOCKED_STREAMS) else 1
    with serving(binary, tokens=TOKENS, tls=tls) as server:
        for _ in range(rounds):
            came = asyncio.run(stream(server, streams, trust=server.trust, blocked=blocked))
            truth += told([one.body for one in came])
            seen += came
        stats = server.stats()
    high = np.concatenate([np.array(one.answer.high_ns, dtype=np.int64) for one in seen])
    low = np.concatenate([np.array(one.answer.low_ns, dtype=np.int64) for one in seen])
    sent = np.concatenate([one.sent for one in truth])
    written = np.concatenate([one.written for one in truth])
    if len(sent) != len(high):
        raise SystemExit(f"{len(sent)} events were sent, {len(high)} were understood")
    exact = high == low
    inside = (low <= sent + PATH_NS) & (sent <= high + ROUNDING_NS)
    held_up = (low > sent + PATH_NS) & (low <= written)
    both = list(zip(seen, truth, strict=True))
    first = [one.answer.high_ns[0] - true.sent[0] for one, true in both]
    ttft = [one.answer.high_ns[0] - one.sent_ns - (true.sent[0] - true.asked_ns) for one, true in both]
    reads = [np.unique(one.answer.high_ns, return_counts=True)[1] for one in seen]
    return Figures(
        server="Python" if binary is None or tls else "C",
        tls=tls is not None,
        streams=streams,
        blocked=blocked,
        events=len(high),
        exact=exact.mean(),
        error_ns=(high - sent)[exact],
        inside=inside.mean(),
        held_up=held_up.mean(),
        first_ns=np.array(first),
        ttft_ns=np.array(ttft),
        shared=sum(sizes[sizes > 1].sum() for sizes in reads) / len(high),
        late=stats["late_over_1ms"],
        latest_ns=stats["max_late_ns"],
    )


def quantiles(error_ns: Times) -> str:
    p50, p99 = np.quantile(error_ns, [0.5, 0.99]) / 1000
    return f"{p50:.0f}/{p99:.0f}"
