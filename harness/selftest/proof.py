"""What figures prove: which loads were measured right, and whether the bars hold (docs/selftest.md)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from harness.measure.load import Load
from harness.selftest.figures import Figures, quantile_us
from harness.selftest.grid import Cell

ERROR_P50_US, ERROR_P99_US, HELD_P99_US = 10.0, 60.0, 100.0
"""Bars on the error of exact events; the last one with the loop held."""

GAP_SHARE = 0.01
"""A stamp's error may be this share of the time between two events, where that is more than ERROR_P99_US."""

EXACT_MIN = 100
"""Exact events from which a 99th percentile says anything."""

MANY = 10 * EXACT_MIN
"""So many events without EXACT_MIN exact ones among them are no accident: nothing is exact there."""


class Result(StrEnum):
    """What became of a cell: `few` is neither, for want of exact events."""

    PROVED = "proved"
    FEW = "few"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Measured:
    """A cell and what it showed. cpu_us_per_token: of the client; None where holding the loop burnt it."""

    cell: Cell
    figures: Figures
    cpu_us_per_token: float | None

    @property
    def limit_us(self) -> float:
        """What the 99th percentile of the error may be here."""
        if self.cell.held:
            return HELD_P99_US
        return max(ERROR_P99_US, GAP_SHARE * 1e6 * self.cell.per_event / self.cell.tokens_per_s)

    @property
    def result(self) -> Result:
        """Judge the cell."""
        seen = self.figures
        if seen.failures or not seen.bounded:
            return Result.FAILED
        if len(seen.error_ns) < EXACT_MIN:
            return Result.FAILED if seen.events >= MANY else Result.FEW
        error = quantile_us(seen.error_ns, 0.99)
        return Result.PROVED if error is not None and error <= self.limit_us else Result.FAILED


@dataclass(frozen=True, slots=True)
class Bar:
    """One promise: what, the figure, the bar itself, and whether it holds."""

    what: str
    figure: str
    bar: str
    holds: bool


def broken(cells: Sequence[Measured]) -> Measured | None:
    """Find the smallest load that failed: there the envelope ends."""
    failed = [one for one in cells if one.result is Result.FAILED]
    return min(failed, key=lambda one: one.figures.load.events_per_s, default=None)


def envelope(cells: Sequence[Measured]) -> Load | None:
    """Give the loads that were proved: all below the smallest one that failed; None where there are none."""
    end = broken(cells)
    below = np.inf if end is None else end.figures.load.events_per_s
    proved = [
        one.figures.load
        for one in cells
        if one.result is Result.PROVED and one.figures.load.events_per_s < below
    ]
    if not proved:
        return None
    return Load(max(load.streams for load in proved), max(load.events_per_s for load in proved))


def bars(cells: Sequence[Measured]) -> Iterator[Bar]:
    """Hold all exact events to the bars on errors, and all events to their bounds, plain and over TLS."""
    for tls in (False, True):
        for held in (False, True):
            some = [one.figures for one in cells if (one.cell.tls, one.cell.held) == (tls, held)]
            if some:
                where = f"{'TLS' if tls else 'plain'}, loop {'held 80 %' if held else 'free'}"
                yield _error_bar(where, some, held=held)
                yield _bounds_bar(where, some)


def failures(cells: Sequence[Measured]) -> Iterator[str]:
    """Tell of streams that did not come through, a sentence a cell."""
    for one in cells:
        if one.figures.failures:
            count, first = len(one.figures.failures), one.figures.failures[0]
            yield f"{count} of {one.figures.streams} streams failed ({name(one.cell)}): {first}"


def name(cell: Cell) -> str:
    """Say what a cell is."""
    words = [
        f"{cell.streams} x {cell.tokens_per_s} tokens/s",
        f"{cell.per_event} an event",
        "TLS" if cell.tls else "plain",
    ]
    return ", ".join([*words, str(cell.transport), *(["loop held"] if cell.held else [])])


def _error_bar(where: str, some: Sequence[Figures], *, held: bool) -> Bar:
    error_ns = np.concatenate([one.error_ns for one in some])
    p50, p99 = quantile_us(error_ns, 0.5), quantile_us(error_ns, 0.99)
    bar = f"p99 <= {HELD_P99_US:g} us" if held else f"p50 <= {ERROR_P50_US:g} us, p99 <= {ERROR_P99_US:g} us"
    what = f"stamp error of exact events, {where}"
    if p50 is None or p99 is None or len(error_ns) < EXACT_MIN:
        events = sum(one.events for one in some)
        return Bar(
            what, f"{len(error_ns)} of {events} events are exact, which proves nothing", bar, holds=False
        )
    holds = p99 <= HELD_P99_US if held else p50 <= ERROR_P50_US and p99 <= ERROR_P99_US
    return Bar(what, f"p50 {p50:.1f} us, p99 {p99:.1f} us", bar, holds)


def _bounds_bar(where: str, some: Sequence[Figures]) -> Bar:
    events, early, late = (sum(getattr(one, count) for one in some) for count in ("events", "early", "late"))
    share = (events - early - late) / events if events else 0.0
    figure = f"{share:.3%} of {events:,} events"
    if late:
        figure += f", {late} arrived more than 0.2 ms after their send"
    if early:
        figure += f", {early} stamped before they were sent"
    return Bar(
        f"true send time inside the bounds, {where}", figure, "100 %", holds=events > 0 and not early + late
    )
