"""What `harness selftest` says: a document for programs, a table and sentences for people."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from harness.measure.load import Load
from harness.records import SCHEMA
from harness.results import Certificate
from harness.screen import Screen
from harness.selftest.figures import Figures, joined, quantile_us
from harness.selftest.proof import Bar, Measured, bars, broken, envelope, failures, name
from harness.selftest.truth import Times
from harness.values import StampClock

WIDE = 135
"""Columns of a screen from which the whole table fits."""

BUSY_CORES = 0.25
"""Processors that others may keep busy without a word."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When and on what it was measured. others_cores: processors that other programs kept busy meanwhile."""

    made: str
    seconds: float
    load_before: tuple[float, ...]
    load_after: tuple[float, ...]
    others_cores: float | None
    machine: dict[str, Any]

    @property
    def busy(self) -> bool:
        """Whether figures may be the neighbours' fault."""
        return self.others_cores is not None and self.others_cores > BUSY_CORES

    def sentence(self) -> str:
        """Say how busy the machine was."""
        load = f"load average {self.load_before[0]:.1f} before, {self.load_after[0]:.1f} after"
        if self.others_cores is None:
            return load
        return f"{load}; other programs kept {self.others_cores:.1f} of {self.machine['cores']} cores busy"


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that was measured, and what it comes to."""

    cells: Sequence[Measured]
    moment: Moment

    @property
    def clock(self) -> StampClock:
        """Whose stamps they were: the kernel's only if all were."""
        loop = any(one.figures.clock is StampClock.LOOP for one in self.cells)
        return StampClock.LOOP if loop else StampClock.KERNEL

    def bars(self) -> list[Bar]:
        """Give every bar."""
        return list(bars(self.cells))

    def missed(self) -> list[str]:
        """Say which bars do not hold, and which streams failed."""
        told = [f"{bar.what}: {bar.figure} (bar: {bar.bar})" for bar in self.bars() if not bar.holds]
        return [*failures(self.cells), *told]

    def advice(self) -> str:
        """Say what to do about what was missed."""
        if any(one.figures.failures for one in self.cells):
            return "streams failed on this machine's own loopback: find out why, the other figures can wait"
        if self.clock is StampClock.LOOP:
            return "there are no kernel stamps on this system: read TTFT and gaps as upper bounds"
        if self.moment.busy:
            return f"the machine was busy ({self.moment.sentence()}): run it again when nothing else runs"
        return (
            f"nothing else was busy ({self.moment.sentence()}): if a second run says the same, this machine's"
            " stamps are no better; more cores or a machine of its own help"
        )

    def pooled(self) -> dict[str, Any]:
        """Put the numbers of all cells with a free loop together."""
        free = [one.figures for one in self.cells if not one.cell.held]
        events = sum(one.events for one in free)
        error_ns = joined([one.error_ns for one in free])
        ttft_ns = joined([one.ttft_ns for one in free])
        return {
            "events": events,
            "exact_share": sum(one.exact for one in free) / events if events else None,
            "error_p50_us": quantile_us(error_ns, 0.5),
            "error_p99_us": quantile_us(error_ns, 0.99),
            "shared_read_share": sum(one.shared for one in free) / events if events else None,
            "ttft_error_p50_us": quantile_us(ttft_ns, 0.5),
            "ttft_error_p99_us": quantile_us(ttft_ns, 0.99),
        }

    def document(self, certificate: Certificate | None, place: str) -> dict[str, Any]:
        """Make the document of `--json`."""
        proved = envelope(self.cells)
        return {
            "schema": SCHEMA,
            **asdict(self.moment),
            "busy": self.moment.busy,
            "clock": self.clock,
            "cells": [_cell(one) for one in self.cells],
            "overall": self.pooled(),
            "bars": [asdict(bar) for bar in self.bars()],
            "missed": self.missed(),
            "advice": self.advice() if self.missed() else None,
            "envelope": None if proved is None else asdict(proved),
            "certificate": None if certificate is None else asdict(certificate) | {"file": place},
        }


def print_outcome(screen: Screen, outcome: Outcome, certificate: Certificate | None, *, place: str) -> None:
    """Print the table, the bars and what follows."""
    screen.print(_table(outcome.cells, wide=screen.width >= WIDE))
    screen.print()
    for bar in outcome.bars():
        screen.tell(f"{'HOLDS ' if bar.holds else 'MISSED'} {bar.what}: {bar.figure} (bar: {bar.bar})")
    for line in (*failures(outcome.cells), *_summary(outcome, envelope(outcome.cells))):
        screen.tell(line)
    if outcome.missed():
        screen.tell(f"not all bars hold: {outcome.advice()}")
    if certificate is None:
        screen.tell("no certificate: no load was measured right; one that was there is taken away")
    else:
        screen.tell(f"certificate: {place}")


def _summary(outcome: Outcome, proved: Load | None) -> Iterator[str]:
    pooled, moment = outcome.pooled(), outcome.moment
    if pooled["events"]:
        ttft = "/".join(_us(pooled[f"ttft_error_{q}_us"]) for q in ("p50", "p99"))
        yield (
            f"{pooled['events']:,} events, {pooled['exact_share']:.0%} exact,"
            f" {pooled['shared_read_share']:.0%} in shared reads, {outcome.clock} stamps; TTFT error"
            f" p50/p99 {ttft} us over open connections"
        )
    if proved is not None:
        end = broken(outcome.cells)
        why = "" if end is None else f"; at {name(end.cell)} it failed"
        yield f"proved up to {proved.streams} streams and {proved.events_per_s:,.0f} events/s at a time{why}"
    yield f"{moment.seconds:.0f} s; {moment.sentence()}"


def _table(cells: Sequence[Measured], *, wide: bool) -> Table:
    """Lay the cells below each other; a narrow screen shows what decides, the document has all."""
    columns = [column for column in _COLUMNS if wide or column[0] in _DECIDING]
    made = Table(box=None, pad_edge=False)
    for heading, _ in columns:
        made.add_column(heading, justify="right", no_wrap=True)
    for one in cells:
        made.add_row(*(show(one) for _, show in columns))
    return made


def _load(one: Measured) -> str:
    cell = one.cell
    words = [f"{cell.streams:3} x {cell.tokens_per_s:3}", *(["TLS"] if cell.tls else []), cell.transport]
    return " ".join([*words, *(["held"] if cell.held else [])])


def _cell(one: Measured) -> dict[str, Any]:
    seen = one.figures
    return {
        **asdict(one.cell),
        "result": one.result,
        "events": seen.events,
        "exact": seen.exact,
        "inside": seen.inside,
        "held_up": seen.held_up,
        "late": seen.late,
        "early": seen.early,
        "shared": seen.shared,
        "error_p50_us": quantile_us(seen.error_ns, 0.5),
        "error_p99_us": quantile_us(seen.error_ns, 0.99),
        "error_limit_us": one.limit_us,
        "first_error_p50_us": quantile_us(seen.first_ns, 0.5),
        "first_error_p99_us": quantile_us(seen.first_ns, 0.99),
        "ttft_error_p50_us": quantile_us(seen.ttft_ns, 0.5),
        "ttft_error_p99_us": quantile_us(seen.ttft_ns, 0.99),
        "peak_streams": seen.load.streams,
        "peak_events_per_s": seen.load.events_per_s,
        "cpu_us_per_token": one.cpu_us_per_token,
        "clock": seen.clock,
        "failures": list(seen.failures),
    }


def _quantiles(times: Times) -> str:
    return f"{_us(quantile_us(times, 0.5))}/{_us(quantile_us(times, 0.99))}"


def _us(us: float | None) -> str:
    return "-" if us is None else f"{us:.0f}"


def _share(count: int, of: Figures, digits: int = 0) -> str:
    return f"{count / of.events:.{digits}%}" if of.events else "-"


_COLUMNS: Sequence[tuple[str, Callable[[Measured], str]]] = (
    ("streams x tokens/s", _load),
    ("an event", lambda one: str(one.cell.per_event)),
    ("events", lambda one: str(one.figures.events)),
    ("exact", lambda one: _share(one.figures.exact, one.figures)),
    ("error us", lambda one: _quantiles(one.figures.error_ns)),
    ("inside", lambda one: _share(one.figures.inside, one.figures, 3)),
    ("held up", lambda one: str(one.figures.held_up)),
    ("shared", lambda one: _share(one.figures.shared, one.figures)),
    ("TTFT error us", lambda one: _quantiles(one.figures.ttft_ns)),
    ("CPU us/token", lambda one: "-" if one.cpu_us_per_token is None else f"{one.cpu_us_per_token:.0f}"),
    ("", lambda one: str(one.result)),
)
_DECIDING = ("streams x tokens/s", "an event", "exact", "error us", "inside", "")
