"""The answer on standard output: the same parts in the same order, on a terminal or not.

A sentence of numbers, the completion curves, estimates with intervals, where the time goes, money,
findings with advice, objectives and the verdict.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple
from math import log10
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from harness.measure.breakdown import PARTS
from harness.measure.curve import Curve, share_at
from harness.measure.facts import RunFacts
from harness.measure.findings import ADVICE
from harness.results import (
    CompareSummary,
    Estimate,
    Finding,
    FindingName,
    Reason,
    Summary,
    Verdict,
    VerdictRecord,
    WorkloadSummary,
)
from harness.screen import Screen

BANNER = "simulated backends: a model, not a measurement"
FILE_WIDTH = 240
"""In a file or a pipe no line has to be folded for a screen."""
WHOLE_FROM = 100
"""From here on numbers are shown without decimals."""
CURVE_COLUMNS = 60
LEVELS = " ▁▂▃▄▅▆▇█"

PART_NAMES = {"reasoning": "reasoning (estimated)", "client": "client (the harness)"}
LABEL_WIDTH = 24
COLUMN_WIDTH = 28
"""Width of a column of estimates with their intervals; a name may fold."""

Item = TypeVar("Item")
Cell = Callable[[WorkloadSummary], str]


def print_answer(
    summary: Summary, verdict: VerdictRecord, facts: RunFacts, *, curves: Mapping[str, Curve], folder: str
) -> None:
    """Print the answer."""
    screen = out()
    screen.print()
    screen.print(Text(facts.title, style="bold"))
    if any(finding.name is FindingName.SIMULATED for finding in summary.findings):
        screen.print(Text(BANNER, style="yellow"))
    results = {name: body.workloads[facts.workload] for name, body in summary.backends.items()}
    for line in sentences(summary, facts, results):
        screen.tell(line)
    print_curves(screen, curves)
    screen.tell(f"estimates with 95 % intervals {summary.intervals}")
    for part in _blocks(results, screen.width):
        screen.print(table(part, rows(list(results.values()))))
        screen.print()
    if summary.compare:
        compared = {name: workloads[facts.workload] for name, workloads in summary.compare.items()}
        for block in _blocks(compared, screen.width):
            screen.print(compare_table(block, facts.baseline or ""))
            screen.print()
    print_findings(screen, summary.findings)
    print_verdict(screen, verdict)
    screen.tell(f"records: {folder}")


def print_findings(screen: Screen, findings: Sequence[Finding]) -> None:
    """Tell what a reader must know, each with what to do about it."""
    for finding in findings:
        where = "/".join(part for part in (finding.backend, finding.workload) if part)
        screen.tell(f"* {where + ': ' if where else ''}{finding.detail}; {ADVICE[finding.name]}")


def print_verdict(screen: Screen, verdict: VerdictRecord) -> None:
    """Tell each objective and the verdict; why a run is INVALID goes to standard error too."""
    screen.print()
    for row in verdict.objectives:
        place = "/".join(part for part in (row["backend"], row["workload"]) if part)
        screen.tell(f"{row['verdict']:<12} {place}: {row['objective']} (was {cell(row['estimate'])})")
    screen.print(Text(f"verdict {verdict.verdict}", style="bold"))
    for reason in verdict.reasons:
        screen.tell(f"  {reason}")
    if verdict.verdict is Verdict.INVALID:
        why = f"this run is INVALID: {'; '.join(verdict.reasons)}"
        Screen(stderr=True).tell(why)


def out() -> Screen:
    """Open standard output."""
    return Screen(highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH)


def sentences(summary: Summary, facts: RunFacts, results: Mapping[str, WorkloadSummary]) -> Iterator[str]:
    """Answer for each candidate; for each backend where none is compared."""
    for name, workloads in summary.compare.items():
        yield sentence(summary, facts, name, facts.workload, workloads[facts.workload])
    if not summary.compare:
        for name, result in results.items():
            yield own_sentence(name, result)


def sentence(summary: Summary, facts: RunFacts, name: str, workload: str, found: CompareSummary) -> str:
    """Answer in one sentence: decode, tasks, and the ceiling that everything else sets.

    Ceiling: 1 / (1 - share of decode and hidden reasoning in the baseline's summed task time), by
    Amdahl's law; it belongs beside the ratio of summed times.
    """
    base = summary.backends[facts.baseline or ""].workloads[workload]
    candidate = summary.backends[name].workloads[workload]
    parts = []
    slow, fast = base.decode_tokens_per_s.value, candidate.decode_tokens_per_s.value
    if slow and fast:
        parts.append(f"decode on {name} is {number(fast / slow)} times as fast as on {facts.baseline}")
    speedup = found.speedup_p50
    half = f"half of the tasks are at least {cell(speedup)} times as fast"
    parts.append(half if speedup.value is not None else f"the median task's speed-up: {cell(speedup)}")
    if found.ratio_total.value is not None:
        parts.append(f"all together {cell(found.ratio_total)} times")
    ceiling = ceiling_of(base)
    if ceiling is not None:
        given = f"with infinitely fast decode and all else as on {facts.baseline}"
        parts.append(f"{given}, all together {number(ceiling)} times")
    said = "; ".join(parts)
    return f"{said[:1].upper()}{said[1:]} ({found.pairs} pairs)."


def ceiling_of(result: WorkloadSummary) -> float | None:
    """Give how many times as fast all tasks together would be if tokens took no time."""
    decoding = result.breakdown.get("decode", 0.0) + result.breakdown.get("reasoning", 0.0)
    return 1 / (1 - decoding) if 0 < decoding < 1 else None


def own_sentence(name: str, result: WorkloadSummary) -> str:
    """Answer for a backend that is compared with none."""
    half, most = result.task_time.p50_s, result.task_time.p90_s
    if half.value is None:
        said = f"On {name} the median task time: {cell(half, 's')}"
    else:
        said = f"On {name} half of the tasks are done within {cell(half, 's')}"
    if most.value is not None:
        said += f", nine of ten within {cell(most, 's')}"
    ceiling = ceiling_of(result)
    if ceiling is None:
        return f"{said}."
    return f"{said}; with infinitely fast decode all together would be {number(ceiling)} times as fast."


def known(estimate: Estimate) -> bool:
    """Whether there is a value or at least an end to show."""
    return estimate.value is not None or estimate.low is not None or estimate.high is not None


def print_curves(screen: Screen, curves: Mapping[str, Curve]) -> None:
    """Draw P(done by t) of each backend over a logarithmic axis of time, a line each."""
    times = np.concatenate([curve.times_s for curve in curves.values()] or [np.empty(0)])
    times = times[times > 0]
    if not len(times):
        return
    low, high = log10(times.min()), log10(times.max())
    low, high = low - 0.05, max(high, low + 0.1) + 0.05
    at = np.logspace(low, high, CURVE_COLUMNS)
    width = max(len(name) for name in curves)
    screen.print()
    screen.draw(f"{'tasks done by':<{max(width, 13)}} {_axis(at)}")
    for name, curve in curves.items():
        shares = [share_at(curve, time) for time in at]
        bars = "".join(
            LEVELS[min(len(LEVELS) - 1, int(share * (len(LEVELS) - 1) + 1e-9))] for share in shares
        )
        screen.draw(f"{name:<{max(width, 13)}} {bars} {shares[-1]:.0%}")
    screen.print()


def _axis(at: NDArray[np.float64]) -> str:
    """Write round times over the columns that they belong to."""
    line = [" "] * (CURVE_COLUMNS + 8)
    free = 0
    for exponent in range(-3, 6):
        for step in (1, 2, 5):
            time = step * 10.0**exponent
            column = int(np.searchsorted(at, time))
            text = f"{time:g}s"
            if time < at[0] or column >= CURVE_COLUMNS or column < free:
                continue
            line[column : column + len(text)] = text
            free = column + len(text) + 1
    return "".join(line).rstrip()


def _blocks(columns: Mapping[str, Item], width: int) -> Iterator[dict[str, Item]]:
    """Cut what stands side by side into blocks that fit the width."""
    fitting = max(1, (width - LABEL_WIDTH) // COLUMN_WIDTH)
    names = list(columns)
    for start in range(0, len(names), fitting):
        yield {name: columns[name] for name in names[start : start + fitting]}


def table(results: Mapping[str, WorkloadSummary], lines: Sequence[tuple[str, Cell]]) -> Table:
    """Lay estimates beside each other, a column a backend."""
    made = Table(box=None, pad_edge=False)
    made.add_column("", no_wrap=True)
    for name in results:
        made.add_column(name, justify="right", overflow="fold")
    for label, show in lines:
        made.add_row(label, *(show(result) for result in results.values()))
    return made


def rows(results: Sequence[WorkloadSummary]) -> list[tuple[str, Cell]]:
    """Choose what is shown of each workload: counts, times, speed, parts of the time, money."""
    lines: list[tuple[str, Cell]] = [("tasks measured", lambda r: str(r.tasks.scheduled))]
    lines += [
        (f"  {outcome}", lambda r, o=outcome: str(getattr(r.tasks, o)))  # type: ignore[misc]
        for outcome in ("completed", "failed", "timeout", "abandoned", "cut", "dropped")
        if outcome == "completed" or any(getattr(r.tasks, outcome) for r in results)
    ]
    lines += [
        (f"task time {q}", lambda r, q=q: cell(getattr(r.task_time, f"{q}_s"), "s"))  # type: ignore[misc]
        for q in ("p50", "p90", "p95", "p99")
    ]
    limits = results[0].task_time.within if results else {}
    lines += [(f"done within {t} s", lambda r, t=t: share(r.task_time.within[t])) for t in limits]  # type: ignore[misc]
    lines += [
        ("decode speed p50", lambda r: cell(r.decode_tokens_per_s, "tokens/s")),
        ("TTFT p50", lambda r: cell(r.ttft_s.p50, "s")),
        ("TTFT p95", lambda r: cell(r.ttft_s.p95, "s")),
        *tier_rows(results),
        ("calls that ended well", lambda r: f"{r.calls.ok} of {sum(astuple(r.calls))}"),
        ("where the time goes", lambda _: ""),
    ]
    anywhere = {part for r in results for part, of in r.breakdown.items() if of > 0}
    parts = (part for part in PARTS if part in anywhere)
    lines += [
        (f"  {PART_NAMES.get(part, part)}", lambda r, p=part: f"{r.breakdown.get(p, 0):.1%}")  # type: ignore[misc]
        for part in parts
    ]
    lines += [
        ("USD in all", lambda r: cell(r.cost.total_usd)),
        ("USD per completed task", lambda r: cell(r.cost.per_completed_task_usd)),
    ]
    return lines


def tier_rows(results: Sequence[WorkloadSummary]) -> list[tuple[str, Cell]]:
    """Show what was asked for and what served, and how fast where one backend had several tiers."""
    if not any(r.tier.asked for r in results):
        return []
    served = dict.fromkeys(tier for r in results for tier in r.tier.served)
    none = Estimate(None, reason=Reason.NOT_APPLICABLE)
    return [
        ("tier asked for", lambda r: r.tier.asked or "-"),
        *((f"  calls by {tier}", lambda r, t=tier: str(r.tier.served.get(t, 0))) for tier in served),
        *(
            (f"  speed of {tier}", lambda r, t=tier: cell(r.tier.measured.get(t, none), "tokens/s"))
            for tier in served
            if any(len(r.tier.served) > 1 for r in results)
        ),
    ]


def compare_table(found: Mapping[str, CompareSummary], baseline: str) -> Table:
    """Lay comparisons beside each other, a column a candidate."""
    made = Table(box=None, pad_edge=False)
    made.add_column(f"against {baseline}", overflow="fold")
    for name in found:
        made.add_column(name, justify="right", overflow="fold")
    lines: list[tuple[str, Callable[[CompareSummary], str]]] = [
        ("pairs (bounded, lost)", lambda c: f"{c.pairs} ({c.pairs_bounded}, {c.pairs_lost})"),
        ("speed-up of a pair p50", lambda c: cell(c.speedup_p50, "x")),
        ("                   p10", lambda c: cell(c.speedup_p10, "x")),
        ("                   p90", lambda c: cell(c.speedup_p90, "x")),
        ("ratio of p50s", lambda c: cell(c.ratio_p50, "x")),
        ("ratio of p90s", lambda c: cell(c.ratio_p90, "x")),
        ("ratio of summed times", lambda c: cell(c.ratio_total, "x")),
        ("seconds saved p50", lambda c: cell(c.seconds_saved_p50, "s")),
    ]
    for label, show in lines:
        made.add_row(label, *(show(one) for one in found.values()))
    return made


def cell(estimate: Estimate, unit: str = "") -> str:
    """Show an estimate: value, unit and interval, or why there is none and what is known of it."""
    tail = f" {unit}" if unit else ""
    ends = f"[{_end(estimate.low, '-')}, {_end(estimate.high, '-')}]"
    if estimate.value is not None:
        bare = estimate.low is None and estimate.high is None
        return f"{number(estimate.value)}{tail}{'' if bare else ' ' + ends}"
    if estimate.reason is Reason.TOO_FEW and estimate.needed is not None:
        return f"needs {estimate.needed}, has {estimate.n}"
    why = str(estimate.reason).replace("_", " ")
    return f"{why} {ends}{tail}" if known(estimate) else why


def share(estimate: Estimate) -> str:
    """Show a share in percent."""
    if estimate.value is None:
        return str(estimate.reason).replace("_", " ")
    ends = [f"{end:.0%}" if end is not None else "-" for end in (estimate.low, estimate.high)]
    return f"{estimate.value:.0%} [{ends[0]}, {ends[1]}]"


def number(value: float) -> str:
    """Show three digits, and none behind the point from 100 on."""
    return f"{value:,.0f}" if abs(value) >= WHOLE_FROM else f"{value:#.3g}"


def _end(end: float | None, missing: str) -> str:
    return missing if end is None else number(end)
