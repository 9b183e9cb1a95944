"""Decisions on runs that are over: objectives again, and one run held against another."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import UsageError
from harness.measure.compare import compare
from harness.measure.compare_findings import BackendIdentity, Side, identity_findings
from harness.measure.conclude import conclude
from harness.measure.facts import Records, RunFacts
from harness.measure.summary import MEASURED
from harness.measure.verdict import exit_code
from harness.report import read_about, read_run
from harness.results import CompareSummary, Estimate, Finding, FindingName, Verdict
from harness.sinks.answer import cell, compare_table, out, print_findings, print_verdict

ALIKE = ("workloads", "seed", "load", "cache_salt")
"""What two runs must have in common to be compared: the tasks, and how they were started."""

AT_ONCE = (FindingName.SHARED_QUOTA,)
"""Findings that are only true of backends in one run: two runs do not slow each other."""

USERS = "users"
"""The one part of the load that `compare` lets differ: what do more users cost each task?"""


@dataclass(frozen=True, slots=True)
class _Kept:
    records: Records
    facts: RunFacts


def gate(folder: Path, *, baseline: Path | None, allow_inconclusive: bool) -> int:
    """Decide a run's objectives again; with `baseline` a backend that got slower, or is gone, fails too.

    Slower: the whole interval of the ratio of median task times (then / now) lies below 1.
    """
    kept = _Kept(*read_run(folder))
    _, verdict = conclude(kept.records, kept.facts)
    screen = out()
    print_verdict(screen, verdict)
    code = exit_code(verdict.verdict, allow_inconclusive=allow_inconclusive)
    if baseline is None:
        return code
    _refuse_unlike(baseline, folder)
    compared, findings = _compared(baseline, folder)
    screen.print(compare_table(compared, str(baseline)))
    print_findings(screen, findings)
    slower = [name for name, found in compared.items() if _slower(found.ratio_p50)]
    for name in slower:
        told = cell(compared[name].ratio_p50, "x")
        screen.tell(f"FAIL {name}: slower than in {baseline}: ratio of medians {told}")
    gone = [name for name in read_run(baseline)[1].backends if name not in kept.facts.backends]
    for name in gone:
        screen.tell(f"FAIL {name}: in {baseline}, but not in this run")
    failed = bool(slower or gone) and code != exit_code(Verdict.INVALID, allow_inconclusive=False)
    return exit_code(Verdict.FAIL, allow_inconclusive=False) if failed else code


def _slower(ratio: Estimate) -> bool:
    """Tell whether the whole interval of a known ratio then / now lies below 1."""
    return ratio.value is not None and ratio.high is not None and ratio.high < 1


def compare_runs(first: Path, second: Path) -> int:
    """Print what changed from the first run to the second, backend by backend."""
    users = _refuse_unlike(first, second, but=USERS)
    compared, findings = _compared(first, second)
    if users[0] != users[1]:
        detail = f"the load differs: users a backend: {users[0]} in {first}, {users[1]} in {second}"
        findings.insert(0, Finding(FindingName.UNEQUAL_LOAD, None, None, detail))
    screen = out()
    screen.tell(f"{second} against {first}: above 1 the second run is faster")
    screen.print(compare_table(compared, str(first)))
    print_findings(screen, findings)
    both = (read_run(first)[1].backends, read_run(second)[1].backends)
    for name in sorted(both[0].keys() ^ both[1].keys()):
        screen.tell(f"* {name}: in {first if name in both[0] else second} only")
    return 0


def _compared(first: Path, second: Path) -> tuple[dict[str, CompareSummary], list[Finding]]:
    then, now = _Kept(*read_run(first)), _Kept(*read_run(second))
    names = [name for name in then.facts.backends if name in now.facts.backends]
    if not names:
        raise UsageError(f"{first} and {second} have no backend of the same name")
    compared, findings = {}, []
    for name in names:
        found, more = compare(
            _side(then, name, first),
            _side(now, name, second),
            generator=np.random.default_rng([now.facts.seed, *name.encode()]),
            open_loop=now.facts.asked_per_s is not None,
            runs=_runs(then, now),
        )
        compared[name] = found
        more = [*identity_findings(_identity(then, name, first), _identity(now, name, second)), *more]
        findings += [replace(one, backend=name) for one in more if one.name not in AT_ONCE]
    return compared, findings


def _refuse_unlike(first: Path, second: Path, *, but: str | None = None) -> tuple[Any, Any]:
    """Refuse runs of other tasks or another load: their times say nothing of each other.

    but: the key of the load that may differ; gives what both runs have there.
    """
    then, now = (dict(read_about(folder)["scenario"]) for folder in (first, second))
    loads = [dict(about.get("load", {})) for about in (then, now)]
    free = [load.pop(but, None) for load in loads]
    then["load"], now["load"] = loads
    unlike = [key for key in ALIKE if then.get(key) != now.get(key)]
    if unlike:
        raise UsageError(f"{first} and {second} are unlike runs: they differ in {', '.join(unlike)}")
    return free[0], free[1]


def _called(name: str, folder: Path) -> str:
    """Name a backend of one of two runs, so that a sentence about both says which one it means."""
    return f"{name} in {folder}"


def _identity(kept: _Kept, name: str, folder: Path) -> BackendIdentity:
    return replace(kept.facts.backends[name].identity, backend=_called(name, folder))


def _side(kept: _Kept, name: str, folder: Path) -> Side:
    tasks = [task for task in kept.records.tasks if task.backend == name]
    measured = [task for task in tasks if task.phase in MEASURED]
    calls = kept.records.calls.of_tasks({task.task_id for task in measured})
    warm = [task for task in tasks if task.phase not in MEASURED]
    return Side(_called(name, folder), kept.facts.workload, measured, calls, earlier=warm)


def _runs(*both: _Kept) -> Mapping[str, int] | None:
    if all(kept.facts.repeats == 1 for kept in both):
        return None
    return {task.task_id: task.repeat for kept in both for task in kept.records.tasks}
