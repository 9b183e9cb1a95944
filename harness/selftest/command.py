"""`harness selftest`: measure the grid, tell what it comes to, and keep what it proves."""

import asyncio
import os
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import orjson

from harness import certificate as certificates
from harness.client.http import raise_file_limit
from harness.clock import monotonic_ns, wall_time
from harness.errors import first_fault
from harness.machine import busy_s, facts, own_cpu_s
from harness.results import Certificate
from harness.screen import Screen
from harness.selftest.answer import Moment, Outcome, print_outcome
from harness.selftest.figures import figures
from harness.selftest.grid import GRID, Cell
from harness.selftest.measuring import measure
from harness.selftest.proof import Measured, envelope
from harness.selftest.truth import told
from harness.simulator.process import truth_server
from harness.sinks.answer import out

PEM = "loopback.pem"


def selftest(*, as_json: bool, grid: Sequence[Cell] = GRID) -> int:
    """Measure, write the certificate, print; returns 0 where all bars hold, else 1."""
    outcome = measured(grid)
    proved = proof(outcome)
    place = str(certificates.place())
    if as_json:
        document = outcome.document(proved, place)
        sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
        sys.stdout.flush()
    else:
        print_outcome(out(), outcome, proved, place=place)
    certificates.write(proved)
    return 1 if outcome.missed() else 0


def measured(grid: Sequence[Cell]) -> Outcome:
    """Measure all cells against a server of our own, in a process of its own."""
    raise_file_limit()
    load_before, began_ns = os.getloadavg(), monotonic_ns()
    busy, own = busy_s(), own_cpu_s()
    with loopback() as (pem, trust), truth_server(pem=pem) as server:
        try:
            cells = asyncio.run(_measure(grid, server.urls(), trust))
        except ExceptionGroup as several:
            raise first_fault(several) from None
    seconds = (monotonic_ns() - began_ns) / 1e9
    now_busy = busy_s()
    others = None
    if busy is not None and now_busy is not None:
        others = max(0.0, now_busy - busy - (own_cpu_s() - own)) / seconds
    made = datetime.fromtimestamp(wall_time(), UTC).isoformat(timespec="seconds")
    return Outcome(cells, Moment(made, seconds, load_before, os.getloadavg(), others, facts()))


@contextmanager
def loopback() -> Iterator[tuple[Path, ssl.SSLContext]]:
    """Give certificate and key of 127.0.0.1, and a context that trusts nothing else."""
    with resources.as_file(resources.files("harness").joinpath("data", PEM)) as pem:
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust.load_verify_locations(pem)
        yield pem, trust


def proof(outcome: Outcome) -> Certificate | None:
    """Make the certificate; None where no load was measured right."""
    proved, pooled = envelope(outcome.cells), outcome.pooled()
    if proved is None:
        return None
    return Certificate(
        made=outcome.moment.made,
        key=certificates.key_here(str(outcome.clock)),
        streams=proved.streams,
        events_per_s=proved.events_per_s,
        events=pooled["events"],
        exact_share=pooled["exact_share"],
        error_p50_us=pooled["error_p50_us"],
        error_p99_us=pooled["error_p99_us"],
        missed=outcome.missed(),
    )


async def _measure(grid: Sequence[Cell], urls: Sequence[str], trust: ssl.SSLContext) -> list[Measured]:
    """Measure cell by cell: two at once would be one larger load."""
    screen, found, before = Screen(stderr=True), list[Measured](), ""
    for number, cell in enumerate(grid, 1):
        doing = f"{cell.tokens_per_s} tokens/s{' over TLS' if cell.tls else ''}"
        if doing != before:
            screen.tell(f"measuring {doing}, from cell {number} of {len(grid)}")
        before = doing
        seen, cpu = await measure(cell, urls[cell.tls], trust if cell.tls else None)
        shown = figures(seen, [told(one.body) for one in seen])
        tokens = cell.tokens * cell.streams
        found.append(Measured(cell, shown, None if cell.held else cpu / 1e3 / tokens))
    return found
