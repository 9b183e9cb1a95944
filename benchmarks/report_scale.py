"""How long `harness report` takes over a large run, and how much memory at most.

python benchmarks/report_scale.py [CALLS [EVENTS]]      by default 1,000,000 calls of 440 output events

Writes a DIR with the product's own records and writer into a temporary folder (about 3.9 kB a call), then
runs the report on it as a process of its own, and removes it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import heapreplace
from pathlib import Path

import numpy as np

from harness.accounts import identity
from harness.measure.breakdown import QUEUE, Piece, breakdown, call_piece, waiting
from harness.measure.facts import BackendFacts, RunFacts
from harness.measure.timeline import CallFacts, records_of
from harness.preparation import Options, read_scenario
from harness.prices import prices_of
from harness.records import SCHEMA, CallRecord, EventsRecord, Phase, TaskOutcome, TaskRecord, ToolRecord
from harness.report import write_facts
from harness.scenario import Scenario, objectives_of
from harness.sinks.records import RecordWriter
from harness.values import Answer, CallError, ErrorKind, StampClock, Timeline, Usage

DEMO = Path(__file__).parents[1] / "scenarios" / "demo.toml"
BAR_S, BAR_MB = 60, 2048
BYTES_A_CALL, BYTES_AN_EVENT = 1500, 8
"""Rather too many of both: what must be free on the disk."""
USERS = 200
"""Per backend; each has one task open."""
SESSION_TASKS = 3
CALLS_A_TASK = 10
POOL = 500
"""Different calls of a backend: every one written is one of them, moved in time."""
GAP_MS = {"standard": 18.5, "ultrafast": 4.0}
TOKENS_AN_EVENT = {"standard": (1,), "ultrafast": (1, 2, 3, 4, 5)}
FAILED_SHARE, SHARED_SHARE = 0.002, 0.1
MARKS = [
    f"{mark}_ns"
    for mark in ("scheduled", "sent", "headers", "first_output", "first_answer", "last_output", "done")
] + [f"{mark}_low_ns" for mark in ("first_output", "first_answer", "last_output")]
PAUSE_NS = 2_000_000_000

Kept = tuple[CallRecord, EventsRecord]


@dataclass(slots=True)
class Open:
    """A task under way: number k of its backend, at `at_ns`, with `left` calls to make."""

    k: int
    scheduled_ns: int
    at_ns: int
    left: int
    pieces: list[Piece] = field(default_factory=list)
    tools: list[ToolRecord] = field(default_factory=list)


def facts_of(backend: str, tier: str | None) -> CallFacts:
    """Say of a call what its timeline does not; its names and its place in time come later."""
    return CallFacts(
        call_id="",
        task_id="",
        k=0,
        backend=backend,
        workload="demo",
        phase=Phase.MEASURE,
        turn=1,
        dialect="openai-chat",
        transport="keep-alive",
        scheduled_ns=0,
        tier_asked=tier,
        output_asked=500,
        output_control=None,
        origin_ns=0,
        input_planned=20_000,
    )


def timeline(answer: Answer, done_ns: int, error: CallError | None = None) -> Timeline:
    """Make an exchange that was sent at 0."""
    return Timeline(
        sent_ns=0,
        done_ns=done_ns,
        headers_ns=done_ns // 20,
        status=200,
        connection="reused",
        clock=StampClock.KERNEL,
        round_trip_ns=300_000,
        error=error,
        answer=answer,
    )


def streamed(backend: str, tier: str | None, events: int, dice: np.random.Generator) -> Timeline:
    """Stream an answer: a tenth of its events share their read with the one before."""
    gaps = dice.gamma(6, GAP_MS[backend] * 1e6 / 6, events).astype(np.int64)
    gaps[dice.random(events) < SHARED_SHARE] = 0
    high = int(dice.lognormal(-0.8, 0.4) * 1e9) + np.cumsum(gaps)
    exact = np.diff(high, append=high[-1] + 1) > 0
    tokens = dice.choice(TOKENS_AN_EVENT[backend], events)
    hidden = int(dice.integers(0, 100))
    answer = Answer(
        high_ns=array("q", high.tolist()),
        low_ns=array("q", np.where(exact, high, np.concatenate(([0], high[:-1]))).tolist()),
        kinds=array("b", [0] * (events // 2) + [2] * (events - events // 2)),
        tokens=array("q", tokens.tolist()),
        usage=Usage(int(dice.integers(2000, 60_000)), int(tokens.sum()) + hidden, 1500, hidden),
        finish_reason="tool_calls",
        tier_served=tier or "default",
        request_id=f"chatcmpl-{dice.integers(1 << 60):x}",
    )
    return timeline(answer, int(high[-1]) + 1000)


def placed(shape: Kept, backend: str, task: Open, number: int) -> Kept:
    """Move a call to where its task is now, and name it."""
    call, events = shape
    task_id = f"{backend}/demo/{task.k}"
    call_id = f"{task_id}/{number}"
    marks = {name: at + task.at_ns for name in MARKS if (at := getattr(call, name)) is not None}
    moved = replace(call, call_id=call_id, task_id=task_id, k=task.k, **marks)
    return moved, replace(events, call_id=call_id)


def ended(task: Open, backend: str, outcome: TaskOutcome, calls: int) -> TaskRecord:
    """Close a task's books."""
    return TaskRecord(
        task_id=f"{backend}/demo/{task.k}",
        k=task.k,
        backend=backend,
        workload="demo",
        preset="demo",
        session=task.k // SESSION_TASKS,
        phase=Phase.MEASURE,
        seed=7,
        scheduled_ns=task.scheduled_ns,
        started_ns=task.scheduled_ns + 50_000,
        ended_ns=task.at_ns,
        human_ns=0,
        outcome=outcome,
        reason=None,
        turns=1,
        calls=calls,
        tools=task.tools,
        breakdown=breakdown(task.pieces, scheduled_ns=task.scheduled_ns, ended_ns=task.at_ns),
        breakdown_unknown=[QUEUE],
        cost_usd=None,
        plan_mismatch=0,
    )


def use_tool(task: Open, seconds: float) -> None:
    end_ns = task.at_ns + round(seconds * 1e9)
    task.tools.append(ToolRecord(name="read", started_ns=task.at_ns, ended_ns=end_ns))
    task.pieces.append(waiting("tool", task.at_ns, end_ns))
    task.at_ns = end_ns


def lane(
    scenario: Scenario, backend: str, calls: int, events: int
) -> Iterator[tuple[int, Kept | TaskRecord]]:
    """Give (when, record) of a backend's calls and tasks as they end; the last tasks are cut."""
    dice = np.random.default_rng([7, *backend.encode()])
    about = facts_of(backend, scenario.backends[backend].service_tier)
    shapes = [
        records_of(streamed(backend, about.tier_asked, events, dice), about, cut=False) for _ in range(POOL)
    ]
    error = CallError(ErrorKind.RESET, "the connection was reset")
    broken = records_of(timeline(Answer(), 200_000_000, error), about, cut=False)
    lengths = np.random.default_rng(7).geometric(1 / CALLS_A_TASK, calls).tolist()  # the same on all
    numbers = iter(range(0, calls, SESSION_TASKS))

    def begin(at_ns: int, k: int) -> Open:
        return Open(k, at_ns, at_ns, lengths[k])

    open_tasks = [begin(i * 10_000_000, next(numbers)) for i in range(min(USERS, calls))]
    turns = [(task.at_ns, i) for i, task in enumerate(open_tasks)]  # sorted: a heap
    for _ in range(calls):
        task, i = open_tasks[turns[0][1]], turns[0][1]
        fails = dice.random() < FAILED_SHARE
        number = lengths[task.k] - task.left + 1
        shape = broken if fails else shapes[dice.integers(POOL)]
        kept = placed(shape, backend, task, number)
        task.pieces.append(call_piece(kept[0]))
        task.at_ns = kept[0].done_ns
        task.left -= 1
        yield task.at_ns, kept
        if fails or not task.left:
            outcome = TaskOutcome.FAILED if fails else TaskOutcome.COMPLETED
            yield task.at_ns, ended(task, backend, outcome, number)
            k = task.k + 1 if (task.k + 1) % SESSION_TASKS else next(numbers)
            open_tasks[i] = begin(task.at_ns + PAUSE_NS, k)
        else:
            use_tool(task, dice.exponential())
        heapreplace(turns, (open_tasks[i].at_ns, i))
    for task in open_tasks:
        if task.pieces:
            yield task.at_ns, ended(task, backend, TaskOutcome.CUT, lengths[task.k] - task.left)


def write_run(folder: Path, *, calls: int, events: int) -> None:
    """Write a DIR of two backends."""
    scenario = read_scenario(Options(DEMO))
    end_ns = 0
    with RecordWriter(folder) as writer:
        for backend in scenario.backends:
            for at_ns, kept in lane(scenario, backend, calls // 2, events):
                end_ns = max(end_ns, at_ns)
                if isinstance(kept, TaskRecord):
                    writer.task(kept)
                else:
                    writer.call(*kept)
    about = {"schema": SCHEMA, "scenario": scenario.model_dump(mode="json", by_alias=True)}
    write_facts(folder, about, run_facts(scenario, end_ns / 1e9))


def run_facts(scenario: Scenario, run_s: float) -> RunFacts:
    return RunFacts(
        title="a large run, made by benchmarks/report_scale.py",
        workload="demo",
        seed=7,
        backends={
            name: BackendFacts(identity(name, backend), prices_of(backend.model, backend.price))
            for name, backend in scenario.backends.items()
        },
        baseline="standard",
        objectives=objectives_of(scenario),
        repeats=1,
        salted=True,
        interrupted=False,
        measure_s=run_s,
        run_s=run_s,
        cpu_share=0.5,
        loop_lag_p99_ms=1.0,
    )


def report(folder: Path) -> tuple[float, float]:
    """Run `harness report` on a DIR; returns seconds and the most MB that it held in memory."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", "report", str(folder)], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"the report ended with exit code {process.returncode}")
    return time.monotonic() - began, used.ru_maxrss * 1024 / 1e6


def main(calls: int = 1_000_000, events: int = 440) -> None:
    with tempfile.TemporaryDirectory() as root:
        free, needed = shutil.disk_usage(root).free, calls * (BYTES_A_CALL + events * BYTES_AN_EVENT)
        if free < needed:
            sys.exit(f"{root}: {free / 1e9:.1f} GB free, {needed / 1e9:.1f} GB needed: set TMPDIR")
        folder = Path(root) / "run"
        write_run(folder, calls=calls, events=events)
        took_s, mb = report(folder)
    print(
        f"report of {calls:,} calls x {events} events: {took_s:.1f} s, {mb:,.0f} MB"
        f" (bar {BAR_S} s, {BAR_MB:,} MB) with: harness report DIR"
    )


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
