"""What a person reads: progress on standard error while it runs, the answer on standard output."""

import os
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from harness.measure.findings import ADVICE
from harness.records import TaskOutcome
from harness.results import Estimate, Summary, Verdict, VerdictRecord, WorkloadSummary
from harness.scenario import Scenario

BANNER = "simulated backends: a model, not a measurement"
WHOLE_FROM = 100
"""From here on numbers are shown without decimals."""
FILE_WIDTH = 240
"""In a file or a pipe no line has to be folded for a screen."""
PLAIN_EVERY = 10
"""Without a terminal, a line of progress after so many tasks of a backend."""


class _Console(Console):
    """Falls silent when nobody reads any more: neither the run nor its exit code may depend on a reader."""

    def on_broken_pipe(self) -> None:
        """Write into nothing from now on."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self.file.fileno())
        os.close(nothing)


class LiveProgress:
    """A bar a backend on a terminal; elsewhere a line now and then. `totals` may be None: unknown."""

    def __init__(self, totals: Mapping[str, int | None], *, quiet: bool) -> None:
        self._console = _Console(stderr=True, quiet=quiet)
        self._plain = not self._console.is_terminal
        self._totals = totals
        self._done = dict.fromkeys(totals, 0)
        self._failed = dict.fromkeys(totals, 0)
        self._bars = Progress(
            TextColumn("{task.description:>20}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=quiet or self._plain,
        )
        self._ids = {name: self._bars.add_task(name, total=total, note="") for name, total in totals.items()}

    def __enter__(self) -> "LiveProgress":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self._bars.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def task_ended(self, backend: str, outcome: TaskOutcome) -> None:
        """Count a measured task."""
        self._done[backend] += 1
        self._failed[backend] += outcome is not TaskOutcome.COMPLETED
        note = f"{self._failed[backend]} not completed" if self._failed[backend] else ""
        self._bars.update(self._ids[backend], advance=1, note=note)
        if self._plain and self._done[backend] % PLAIN_EVERY == 0:
            total = self._totals[backend]
            of = f" of {total}" if total else ""
            self.say(f"{backend}: {self._done[backend]}{of} tasks ended{', ' + note if note else ''}")


def limits_line(scenario: Scenario) -> str:
    """Say the time limits of each backend's calls, defaults included, and the tasks' own."""
    limits = {
        name: ", ".join(
            f"{key[:-2].replace('_', ' ')} {value:g} s" for key, value in b.limits.model_dump().items()
        )
        for name, b in scenario.backends.items()
    }
    tasks = ", ".join(f"{entry.name} {entry.task_limit_s:g} s" for entry in scenario.workloads)
    calls = "; ".join(f"{name}: {text}" for name, text in limits.items())
    if len(set(limits.values())) == 1:
        calls = next(iter(limits.values()))
    return f"time limits of a call: {calls}; of a task: {tasks}"


def print_answer(summary: Summary, verdict: VerdictRecord, *, title: str, folder: str) -> None:
    """Print the answer: banner, counts, task time, speed, where the time goes, findings, verdict.

    Why a run is INVALID is told on standard error too: there it is not lost with the output.
    """
    console = _Console(highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH)
    simulated = any(finding.name == "simulated" for finding in summary.findings)
    console.print()
    console.print(Text(title, style="bold"))
    if simulated:
        console.print(Text(BANNER, style="yellow"))
    columns = {
        f"{backend}" if len(body.workloads) == 1 else f"{backend}/{workload}": result
        for backend, body in summary.backends.items()
        for workload, result in body.workloads.items()
    }
    console.print(_table(columns))
    for finding in summary.findings:
        where = "/".join(part for part in (finding.backend, finding.workload) if part)
        advice = ADVICE.get(finding.name, "")
        line = f"* {where + ': ' if where else ''}{finding.detail}{'; ' + advice if advice else ''}"
        console.print(line, markup=False, soft_wrap=True)
    console.print()
    console.print(Text(f"verdict {verdict.verdict}", style="bold"))
    for reason in verdict.reasons:
        console.print(f"  {reason}", markup=False, soft_wrap=True)
    console.print(f"records: {folder}", markup=False, soft_wrap=True)
    if verdict.verdict is Verdict.INVALID:
        why = f"this run is INVALID: {'; '.join(verdict.reasons)}"
        _Console(stderr=True, highlight=False).print(why, markup=False, soft_wrap=True)


def _table(columns: Mapping[str, WorkloadSummary]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right", overflow="fold")
    for label, cell in _rows(list(columns.values())):
        table.add_row(label, *(cell(result) for result in columns.values()))
    return table


def _rows(results: list[WorkloadSummary]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = [("tasks measured", lambda r: str(r.tasks.scheduled))]
    rows += [
        (f"  {outcome}", lambda r, o=outcome: str(getattr(r.tasks, o)))
        for outcome in ("completed", "failed", "timeout", "abandoned", "cut", "dropped")
        if outcome == "completed" or any(getattr(r.tasks, outcome) for r in results)
    ]
    rows += [
        ("task time p50", lambda r: _number(r.task_time.p50_s, "s")),
        ("          p90", lambda r: _number(r.task_time.p90_s, "s")),
        ("          p95", lambda r: _number(r.task_time.p95_s, "s")),
    ]
    limits = results[0].task_time.within if results else {}
    rows += [(f"done within {t} s", lambda r, t=t: _share(r.task_time.within[t])) for t in limits]
    rows += [
        ("decode speed p50", lambda r: _number(r.decode_tokens_per_s, "tokens/s")),
        ("TTFT p50", lambda r: _number(r.ttft_s.p50, "s")),
        ("TTFT p95", lambda r: _number(r.ttft_s.p95, "s")),
        ("where the time goes", lambda _: ""),
    ]
    parts = dict.fromkeys(part for r in results for part, share in r.breakdown.items() if share > 0)
    for part in parts:
        rows.append((f"  {part}", lambda r, p=part: f"{r.breakdown.get(p, 0):.1%}"))
    return rows


def _number(estimate: Estimate, unit: str) -> str:
    if estimate.value is None:
        return str(estimate.reason).replace("_", " ")
    digits = "#.3g" if estimate.value < WHOLE_FROM else ",.0f"
    return f"{estimate.value:{digits}} {unit}"


def _share(estimate: Estimate) -> str:
    return str(estimate.reason).replace("_", " ") if estimate.value is None else f"{estimate.value:.0%}"
