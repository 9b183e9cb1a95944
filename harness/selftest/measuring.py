"""Streams of a cell through the product's own exchange and decoder, from the server that tells the truth."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from harness.client.http import CallLimits, Endpoint, HttpExchange
from harness.clock import MachineClock, cpu_ns, monotonic_ns
from harness.selftest.figures import Seen
from harness.selftest.grid import Cell
from harness.values import Block, Exchange, Progress, Request, Role
from harness.wire import DIALECTS

CHAT = DIALECTS["openai-chat"]
LIMITS = CallLimits(connect_s=10, first_output_s=10, stall_s=10, total_s=30)
SPREAD_S = 0.1
"""Starts are spread over this time, so that first outputs do not wait behind one another."""

BLOCKED_NS, FREE_S = 4_000_000, 0.001


async def measure(cell: Cell, url: str, trust: ssl.SSLContext | None) -> tuple[list[Seen], int]:
    """Run a cell's streams, over connections that are open where they are kept; gives processor ns too."""
    endpoint = Endpoint(url, transport=cell.transport, stream_types=CHAT.stream_types)
    async with HttpExchange(endpoint, limits=LIMITS, clock=MachineClock(), ssl_context=trust) as http:
        if cell.transport == "keep-alive":
            async with asyncio.TaskGroup() as group:
                for number in range(cell.streams):
                    group.create_task(exchange(http, asking(number, "tokens=1")))
        began = cpu_ns()
        query = f"tokens={cell.tokens}&rate={cell.tokens_per_s}&per_event={cell.per_event}"
        async with holding(on=cell.held):
            seen = await streams(http, query, cell.streams, spread_s=SPREAD_S)
        return seen, cpu_ns() - began


async def streams(http: Exchange, query: str, number: int, *, spread_s: float) -> list[Seen]:
    """Make `number` calls whose starts are spread over a time."""
    clock = MachineClock()
    began_ns = clock.now_ns()

    async def one(i: int) -> Seen:
        await clock.sleep_until(began_ns + round(i * spread_s * 1e9 / number))
        return await exchange(http, asking(i, query))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(i)) for i in range(number)]
    return [task.result() for task in tasks]


async def exchange(http: Exchange, asked: Request) -> Seen:
    """Make one call; its bytes are kept on the way, which costs nothing but memory."""
    decoder, pieces = CHAT.decoder(), list[bytes]()
    feed = decoder.feed

    def keep(data: bytes, stamp: int) -> Progress:
        pieces.append(data)
        return feed(data, stamp)

    timeline = await http(asked, keep)
    answer = decoder.answer(ended=timeline.error is None)
    error = timeline.error or answer.error
    return Seen(
        answer=answer,
        sent_ns=timeline.sent_ns,
        clock=timeline.clock,
        reused=timeline.connection == "reused",
        body=b"".join(pieces),
        failure=None if error is None else error.message,
    )


def asking(number: int, query: str) -> Request:
    """Make a request; the server reads nothing of it but the query in its path."""
    asked = CHAT.encode(Request("truth-1", (Block(f"prompt/{number}", 20, Role.USER),), 1))
    return replace(asked, path=f"{asked.path}?{query}")


@asynccontextmanager
async def holding(*, on: bool) -> AsyncIterator[None]:
    """Keep the loop from running 80 % of the time, as a program does that computes."""

    async def hold() -> None:
        while True:
            until = monotonic_ns() + BLOCKED_NS
            while monotonic_ns() < until:
                pass
            await asyncio.sleep(FREE_S)

    async with asyncio.TaskGroup() as group:
        holder = group.create_task(hold()) if on else None
        yield
        if holder:
            holder.cancel()
