"""Every number that this project holds itself to, with its bar and whether it holds: `make bench`.

Prints Markdown, for docs/performance.md, and never gates; benchmarks/README.md tells how to read it.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cost
import stamps
import truth
from cost import BARE, PEERS, PRODUCT, Cost
from first_request import first_requests_s
from locust_users import MEMORY_BAR_KB, SPAWN_BAR_S, spawned

from harness.clock import monotonic_ns
from harness.machine import busy_s, facts, own_cpu_s

HOLDS, MISSED, UNMEASURED, UNBUILT = "HOLDS", "MISSED", "not measured", "not built yet"

ERROR_P50_US, ERROR_P99_US, BLOCKED_P99_US, TTFT_P99_US = 10, 60, 100, 300
OF_PEER = {"vllm bench serve": 0.65, "SGLang's Rust client": 1.2}
OF_BARE = 1.6
FIRST_REQUEST_S = 1.0
REPORT_S, REPORT_MB = 60, 2048

REPORT = truth.HERE / "report_scale.py"
REPORT_LINE = re.compile(r"report of ([\d,]+) calls x \d+ events: ([\d.]+) s, ([\d,]+) MB")
REPORT_CALLS, WHOLE_CALLS = 100_000, 1_000_000
USERS = 5000

LATER = (
    ("forecast on one core", ">= 1 M simulated calls in 5 min; 100 k users in <= 4 GB"),
    ("simulator against measured hardware", "median TPOT error <= 8 %, mean TTFT <= 25 %"),
)
"""Bars of what is not there yet. A row that can be measured leaves here and gets a function of its own."""


@dataclass(frozen=True, slots=True)
class Row:
    """One promise: what, the figure, its bar and the verdict."""

    what: str
    figure: str
    bar: str
    verdict: str

    @classmethod
    def held(cls, what: str, figure: str, *, bar: str, holds: bool) -> "Row":
        return cls(what, figure, bar, HOLDS if holds else MISSED)


def main() -> None:
    print(f"{machine()}\n\nLoad average before: {load()}. {priority()}\n")
    busy: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        binary = truth.compiled(Path(folder))
        with neighbours("stamps", busy):
            seen = [*stamp_figures(binary)]
        costs: list[Cost] = []
        for streams in cost.STREAMS:
            with neighbours(f"cost at {streams} streams", busy):
                costs += cost.costs(binary, streams)
    with neighbours("first request", busy):
        first_s = first_requests_s()
    with neighbours("report", busy):
        report = report_row()
    with neighbours("Locust's users", busy):
        users = locust_row()
    rows = [*cost_rows(costs), *stamp_rows(seen), *ttft_rows(seen), users, first_request_row(first_s), report]
    rows += [Row(what, "", bar, UNBUILT) for what, bar in LATER]
    table(("what", "figure", "bar", "verdict"), ((r.what, r.figure, r.bar, r.verdict) for r in rows))
    print("Stamps, bounds and TTFT (p50/p99):\n")
    table(stamps.HEADINGS, (figures.cells() for figures in seen))
    print("Processor time per token, us, in each round:\n")
    table(("client", "streams", "median", "rounds"), map(cost_cells, costs))
    print(f"Load average after: {load()}. Cores that other processes kept busy: {', '.join(busy)}.")


# --- rows ----------------------------------------------------------------------------------------


def cost_rows(costs: Sequence[Cost]) -> Iterator[Row]:
    """Hold the product against each peer that is here, and against the bare reader where none is."""
    for streams in cost.STREAMS:
        here = {one.client: one for one in costs if one.streams == streams and one.failure is None}
        product, bare = here[PRODUCT], here[BARE]
        what = f"CPU per token, {streams} streams, against"
        for peer, limit in OF_PEER.items():
            bar = f"<= {limit:g} x"
            if peer in here:
                ratio = product.ratio(here[peer])
                yield Row.held(f"{what} {peer}", against(product, here[peer]), bar=bar, holds=ratio <= limit)
            else:
                yield Row(f"{what} {peer}", f"{PEERS[peer]} is not set, or it failed", bar, UNMEASURED)
        stands_in = not any(peer in here for peer in OF_PEER)
        bar = f"<= {OF_BARE:g} x" + ("" if stands_in else ", where no peer is")
        holds = product.ratio(bare) <= OF_BARE
        yield Row.held(f"{what} the {BARE}", against(product, bare), bar=bar, holds=holds)


def against(product: Cost, other: Cost) -> str:
    return f"{product.middle_us:.1f} of {other.middle_us:.1f} us: {product.ratio(other):.2f} x"


def stamp_rows(seen: Sequence[stamps.Row]) -> Iterator[Row]:
    """Hold stamps and bounds; errors of a free loop only as far as two cores serve it, up to 50 streams."""
    for tls in (False, True):
        name = "TLS" if tls else "plain"
        rows = [one for one in seen if one.tls == tls]
        for name_of, some in (("1 stream", (1,)), ("32 and 50 streams", cost.STREAMS)):
            free = [one for one in rows if not one.blocked and one.streams in some]
            p50, p99 = (max(one.error_us(q) for one in free) for q in (0.5, 0.99))
            yield Row.held(
                f"stamp error of exact events, {name}, {name_of}",
                f"p50 {p50:.0f} us, p99 {p99:.0f} us",
                bar=f"p50 <= {ERROR_P50_US} us, p99 <= {ERROR_P99_US} us",
                holds=p50 <= ERROR_P50_US and p99 <= ERROR_P99_US,
            )
        p99 = max(one.error_us(0.99) for one in rows if one.blocked)
        yield Row.held(
            f"the same, {name}, loop blocked 80 %",
            f"p99 {p99:.0f} us",
            bar=f"p99 <= {BLOCKED_P99_US} us",
            holds=p99 <= BLOCKED_P99_US,
        )
        for blocked in (False, True):
            some = [one for one in rows if one.blocked == blocked]
            share = min(one.within for one in some)
            events = sum(one.seen.events for one in some)
            yield Row.held(
                f"send time inside the bounds, {name}, loop {'blocked 80 %' if blocked else 'free'}",
                f"{share:.3%} in the worst row, {events:,} events",
                bar="100 %",
                holds=share == 1,
            )


def ttft_rows(seen: Sequence[stamps.Row]) -> Iterator[Row]:
    for one in seen:
        if one.tls or one.blocked or one.streams < min(cost.STREAMS):
            continue
        what, figure = (
            f"TTFT error, {one.streams} streams",
            f"p50/p99 {stamps.quantiles(one.seen.ttft_ns)} us",
        )
        figure += f", of the first stamp {stamps.quantiles(one.seen.first_ns)} us"
        figure += f"; server late {one.late} times, {one.latest_ns / 1e6:.1f} ms at most"
        if one.streams == min(cost.STREAMS):
            holds = one.ttft_us(0.99) <= TTFT_P99_US
            yield Row.held(what, figure, bar=f"p99 <= {TTFT_P99_US} us", holds=holds)
        elif one.streams > max(cost.STREAMS):
            yield Row(what, figure, "none: two cores cannot", "")


def first_request_row(times_s: Sequence[float]) -> Row:
    median_s = statistics.median(times_s)
    return Row.held(
        "`harness run` to its first request",
        f"median {median_s:.2f} s of {', '.join(f'{one:.2f}' for one in times_s)}",
        bar=f"< {FIRST_REQUEST_S:g} s",
        holds=median_s < FIRST_REQUEST_S,
    )


def locust_row() -> Row:
    seconds, locust_kb, engine_kb = map(
        statistics.median, zip(*(spawned(USERS) for _ in range(3)), strict=True)
    )
    return Row.held(
        f"{USERS:,} Locust users on one worker",
        f"spawned in {seconds:.2f} s, {locust_kb:.1f} KB each in Locust and {engine_kb:.1f} KB in the engine",
        bar=f"< {SPAWN_BAR_S:g} s, <= {MEMORY_BAR_KB:g} KB each",
        holds=seconds < SPAWN_BAR_S and locust_kb + engine_kb <= MEMORY_BAR_KB,
    )


def report_row() -> Row:
    """Hold a tenth of the bar's calls against a tenth of the bar; the whole takes ten minutes and 6 GB."""
    what = f"report of {REPORT_CALLS:,} calls x 440 events on disk, ten times as much of it"
    bar = f"<= {REPORT_S} s, <= {REPORT_MB // 1024} GB"
    command = [sys.executable, str(REPORT), str(REPORT_CALLS)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    told = REPORT_LINE.search(ended.stdout)
    if told is None:
        return Row(what, (ended.stderr.strip().splitlines() or ["it said nothing"])[-1], bar, UNMEASURED)
    times = WHOLE_CALLS / REPORT_CALLS
    seconds, megabytes = times * float(told[2]), times * int(told[3].replace(",", ""))
    figure = f"{seconds:.0f} s, {megabytes:,.0f} MB, start included"
    return Row.held(what, figure, bar=bar, holds=seconds <= REPORT_S and megabytes <= REPORT_MB)


def cost_cells(one: Cost) -> list[str]:
    if one.failure is not None:
        return [one.client, str(one.streams), "failed", one.failure]
    return [one.client, str(one.streams), f"{one.middle_us:.1f}", ", ".join(f"{us:.1f}" for us in one.us)]


# --- measuring and printing ----------------------------------------------------------------------


def stamp_figures(binary: Path | None) -> Iterator[stamps.Row]:
    for tls in (False, True):
        for streams in stamps.STREAMS:
            yield stamps.measured(binary, streams, tls=tls)
        for streams in stamps.BLOCKED_STREAMS:
            yield stamps.measured(binary, streams, tls=tls, blocked=True)


@contextmanager
def neighbours(name: str, told: list[str]) -> Iterator[None]:
    """Note how many cores were busy with what is not ours while something was measured."""
    sys.stderr.write(f"measuring: {name}\n")
    began_ns, before_s, ours_s = monotonic_ns(), busy_s() or 0.0, own_cpu_s()
    yield
    elapsed_s = (monotonic_ns() - began_ns) / 1e9
    others = ((busy_s() or 0.0) - before_s - (own_cpu_s() - ours_s)) / max(elapsed_s, 1)
    told.append(f"{name} {max(0.0, others):.1f}")


def machine() -> str:
    said = facts()
    packages = said["packages"]
    return (
        f"{said['processor']}, {said['cores']} cores; {said['system']} {said['kernel']}; Python"
        f" {said['python']}, aiohttp {packages['aiohttp']}, orjson {packages['orjson']}"
    )


def load() -> str:
    return " ".join(f"{one:.1f}" for one in os.getloadavg())


def priority() -> str:
    real_time = os.sched_getscheduler(0) in (os.SCHED_RR, os.SCHED_FIFO)
    return "All processes ran with real-time priority." if real_time else "Ordinary priority."


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    for cells in (headings, ["---"] * len(headings), *rows):
        print(f"| {' | '.join(cells)} |")
    print(flush=True)


if __name__ == "__main__":
    main()
