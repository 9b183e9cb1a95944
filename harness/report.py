"""Everything that is made from records alone: summary, verdict, answer; again at any time."""

import gc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from harness.errors import UsageError
from harness.measure.calls import Calls
from harness.measure.conclude import conclude, curves
from harness.measure.facts import Records, RunFacts
from harness.measure.verdict import exit_code
from harness.records import SCHEMA, TaskRecord
from harness.sinks.answer import print_answer
from harness.sinks.records import RUN_FILE, read_calls, read_gaps, read_records, write_json

_FACTS = TypeAdapter(RunFacts)


def write_facts(folder: Path, about: dict[str, Any], facts: RunFacts) -> None:
    """Write `run.json` with what the run has learned of itself."""
    write_json(folder, RUN_FILE, about | {"facts": _FACTS.dump_python(facts, mode="json")})


def finish(folder: Path, records: Records, facts: RunFacts, *, allow_inconclusive: bool) -> int:
    """Write summary and verdict, print the answer; returns the exit code by the verdict."""
    summary, verdict = conclude(records, facts)
    write_json(folder, "summary.json", summary)
    write_json(folder, "verdict.json", verdict)
    print_answer(summary, verdict, facts, curves=curves(records, facts), folder=str(folder))
    return exit_code(verdict.verdict, allow_inconclusive=allow_inconclusive)


def read_about(folder: Path) -> dict[str, Any]:
    """Read a DIR's `run.json`; UsageError where there is none, or one of another version."""
    try:
        about: Any = orjson.loads((folder / RUN_FILE).read_bytes())
    except OSError as problem:
        raise UsageError(f"{folder}: no run here: {RUN_FILE}: {problem.strerror}") from None
    except ValueError:
        raise UsageError(f"{folder / RUN_FILE}: not JSON") from None
    if not isinstance(about, dict) or not isinstance(about.get("scenario"), dict):
        raise UsageError(f"{folder / RUN_FILE}: this is not about a run")
    if about.get("schema") != SCHEMA:
        raise UsageError(
            f"{folder / RUN_FILE}: of schema {about.get('schema')}; this version reads schema {SCHEMA}"
        )
    return about


def read_run(folder: Path) -> tuple[Records, RunFacts]:
    """Read a DIR back; UsageError where it is none, or its run never came to its end."""
    about = read_about(folder)
    if "facts" not in about:
        raise UsageError(
            f"{folder}: this run did not come to its end; its records are there, its facts are not"
        )
    try:
        facts = _FACTS.validate_python(about["facts"])
    except ValidationError:
        raise UsageError(f"{folder / RUN_FILE}: written by another version of the harness") from None
    gc.disable()  # there is no cycle among millions of records, and the search for one is a third of the time
    try:
        return _read(folder), facts
    except OSError as problem:
        raise UsageError(f"{problem.filename}: cannot be read: {problem.strerror}") from None
    finally:
        gc.enable()


def _read(folder: Path) -> Records:
    tasks = list(read_records(folder, "tasks.jsonl", TaskRecord))
    _refuse_twice(folder / "tasks.jsonl", [task.task_id for task in tasks])
    calls, task_of = _read_calls(folder)
    return Records(tasks, calls, read_gaps(folder, task_of))


def _read_calls(folder: Path) -> tuple[Calls, dict[str, str]]:
    """Read calls, and call_id -> task_id of those that ended well: their gaps are counted."""
    calls, call_ids = read_calls(folder)
    _refuse_twice(folder / "calls.jsonl", call_ids)
    each = zip(call_ids, calls.task_id.codes, calls.ok, strict=True)
    return calls, {call_id: calls.task_id.names[code] for call_id, code, ok in each if ok}


def _refuse_twice(path: Path, ids: Sequence[str]) -> None:
    """Refuse a file that was put together from others: what stands twice would count twice."""
    if len(set(ids)) < len(ids):
        again = next(name for name, n in Counter(ids).items() if n > 1)
        raise UsageError(f"{path}: {again} stands there more than once")


def report(folders: Sequence[Path]) -> int:
    """Make summary, verdict and answer of each DIR again."""
    for folder in folders:
        finish(folder, *read_run(folder), allow_inconclusive=False)
    return 0
