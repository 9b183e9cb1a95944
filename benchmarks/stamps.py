"""How good the stamps are, and what they cost: streams of 750 tokens/s from servers that tell the truth.

Prints, never gates; benchmarks/README.md tells how to read it. The client is the product's own
HttpExchange and decoder. SSE_SERVER=BINARY adds rows against a server written in C.
"""

import asyncio
import os
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import numpy as np
from truth import Server, Times, c_server, certificate, simulator

from harness.client.http import CallLimits, Endpoint, HttpExchange
from harness.clock import MachineClock, cpu_ns, monotonic_ns
from harness.machine import facts
from harness.values import Answer, Block, Request, Role
from harness.wire import DIALECTS

CHAT = DIALECTS["openai-chat"]
TOKENS = 1000
SPREAD_S = 1.0
"""Starts are spread over this time, so that first outputs do not wait behind one another."""
BLOCKED_NS, FREE_S = 4_000_000, 0.001
PATH_NS, ROUNDING_NS = 200_000, 1_000
LIMITS = CallLimits(connect_s=30, first_output_s=30, stall_s=30, total_s=60)

FREE = [(streams, False) for streams in (1, 10, 32, 50)]
BLOCKED = [(streams, True) for streams in (10, 50)]
COLUMNS = (
    f"{'server':13} {'streams':>7} {'loop':>8} {'events':>7} {'exact':>6} {'error us':>9} {'inside':>8}"
    f" {'held up':>7}"
    f" {'TTFT us':>10} {'CPU us/event':>12} {'shared':>7} {'server late us':>14}"
)


def request(number: int) -> Request:
    plan = {"call_id": str(number), "output_tokens": TOKENS}
    prompt = (Block(f"prompt/{number}", 20, Role.USER),)
    return CHAT.encode(Request("gpt-5.6-sol", prompt, TOKENS, x_plan=plan))


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


async def stream(
    server: Server, streams: int, *, trust: ssl.SSLContext | None, blocked: bool
) -> tuple[list[Answer], int]:
    """Run all streams; their answers, and the CPU time that this whole process took for them."""
    clock, answers = MachineClock(), [Answer()] * streams
    async with AsyncExitStack() as stack:
        exchanges = [
            HttpExchange(Endpoint(url), limits=LIMITS, clock=clock, ssl_context=trust) for url in server.urls
        ]
        for exchange in exchanges:
            await stack.enter_async_context(exchange)

        async def one(i: int, due_ns: int) -> None:
            decoder = CHAT.decoder()
            await clock.sleep_until(due_ns)
            timeline = await exchanges[i % len(exchanges)](request(i), server.wrap(decoder.feed))
            if timeline.error is not None:
                raise SystemExit(f"stream {i}: {timeline.error.message}")
            answers[i] = decoder.answer(ended=True)

        began, cpu = clock.now_ns(), cpu_ns()
        async with blocking(on=blocked), asyncio.TaskGroup() as group:
            for i in range(streams):
                group.create_task(one(i, began + round(i * SPREAD_S * 1e9 / streams)))
        return answers, cpu_ns() - cpu


def row(
    serving: AbstractContextManager[Server], streams: int, *, trust: ssl.SSLContext | None, blocked: bool
) -> str:
    """Run one row of the table; its columns behind the first three."""
    with serving as server:
        answers, cpu = asyncio.run(stream(server, streams, trust=trust, blocked=blocked))
        late, sent_each = server.late(), server.sent()
    high = np.concatenate([np.array(answer.high_ns, dtype=np.int64) for answer in answers])
    low = np.concatenate([np.array(answer.low_ns, dtype=np.int64) for answer in answers])
    sent = np.concatenate(sent_each)
    if len(sent) != len(high):
        raise SystemExit(f"{len(sent)} events were sent, {len(high)} were understood")
    exact = high == low
    inside = (low <= sent + PATH_NS) & (sent <= high + ROUNDING_NS)
    # one thread serves all streams: it made each write before it read its clock for the next one
    clocks = np.append(np.unique(sent), np.iinfo(np.int64).max)
    written = clocks[np.searchsorted(clocks, sent, side="right")]
    held_up = (low > sent + PATH_NS) & (low <= written)
    first = np.array([answer.high_ns[0] - at[0] for answer, at in zip(answers, sent_each, strict=True)])
    reads = [np.unique(answer.high_ns, return_counts=True)[1] for answer in answers]
    shared = sum(sizes[sizes > 1].sum() for sizes in reads) / len(high)
    per_event = "-" if blocked else f"{cpu / 1000 / len(high):.1f}"
    return (
        f"{len(high):7} {exact.mean():6.1%} {quantiles((high - sent)[exact]):>9} {inside.mean():8.2%}"
        f" {held_up.mean():7.2%}"
        f" {quantiles(first):>10} {per_event:>12} {shared:7.1%} {late:>14}"
    )


def quantiles(error_ns: Times) -> str:
    p50, p99 = np.quantile(error_ns, [0.5, 0.99]) / 1000
    return f"{p50:.0f}/{p99:.0f}"


def tell(name: str, streams: int, *, blocked: bool, columns: str) -> None:
    print(f"{name:13} {streams:7} {'80 % off' if blocked else 'free':>8} {columns}", flush=True)


def main() -> int:
    machine = facts()
    print(machine["processor"], f"{machine['cores']} cores", machine["system"], machine["kernel"], sep=", ")
    print(f"Python {machine['python']}, aiohttp {machine['packages']['aiohttp']}, load", *os.getloadavg())
    print(COLUMNS)
    with tempfile.TemporaryDirectory() as folder:
        secured = certificate(Path(folder))
        for name, tls, trust in (("simulator", None, None), ("simulator TLS", secured, secured[2])):
            for streams, blocked in FREE + BLOCKED:
                columns = row(simulator(streams, tls=tls), streams, trust=trust, blocked=blocked)
                tell(name, streams, blocked=blocked, columns=columns)
    if binary := os.environ.get("SSE_SERVER"):
        for streams, blocked in FREE + BLOCKED:
            columns = row(c_server(binary, tokens=TOKENS), streams, trust=None, blocked=blocked)
            tell("C server", streams, blocked=blocked, columns=columns)
    print("load afterwards", *os.getloadavg())
    return 0


if __name__ == "__main__":
    sys.exit(main())
