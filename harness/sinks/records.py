"""DIR: records line by line as calls and tasks end, so that a crash loses nothing that has ended."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import cache
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from harness.errors import HarnessError, LostRecordsError, UsageError
from harness.measure.histogram import Histogram
from harness.records import SCHEMA, CallRecord, EventsRecord, TaskRecord
from harness.results import Summary, VerdictRecord

if TYPE_CHECKING:
    from pydantic import TypeAdapter

RECORD_FILES = ("tasks.jsonl", "calls.jsonl", "events.jsonl")
RUN_FILE = "run.json"
GAPS_FILE = "gaps.jsonl"
INDENTED = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE

_CALL_KEYS = tuple(field.name for field in fields(CallRecord))
_SILENT = {field.name: field.default for field in fields(CallRecord)} | {"schema": MISSING}

_AS_TOLD = {"input_planned": "input_tokens", "output_asked": "output_tokens"}
"""Keys of a call that are left out where they equal another; together these rules keep lines short."""

Record = TypeVar("Record", CallRecord, EventsRecord, TaskRecord)


class RecordWriter:
    """Appends records to the three files of a new DIR; each line is flushed when it is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = make_folder(folder)
        try:  # unbuffered: a record is one write, and what could not be written is not tried again at the end
            files = [(folder / name).open("xb", buffering=0) for name in RECORD_FILES]
        except OSError as problem:
            raise UsageError(f"{folder}: cannot be written: {problem.strerror}; give another --out") from None
        self._tasks, self._calls, self._events = files

    def call(self, call: CallRecord, events: EventsRecord) -> None:
        """Write a call that has ended; its events first, so that no call lacks its events."""
        _append(self._events, events)
        self.call_line(told(call))

    def call_line(self, line: dict[str, Any]) -> None:
        """Write a call as `told` words it; its events are elsewhere."""
        _append(self._calls, line)

    def task(self, task: TaskRecord | dict[str, Any]) -> None:
        """Write a task that has ended; plain values where it comes from another process."""
        _append(self._tasks, task)

    def gaps(self, call_id: str, counted: Histogram) -> None:
        """Write the gaps, in us, of a call whose events stay on another machine."""
        line = {
            "schema": SCHEMA,
            "call_id": call_id,
            "buckets": counted.buckets.tolist(),
            "counts": counted.counts.tolist(),
            "overflow": counted.overflow,
        }
        with (self.folder / GAPS_FILE).open("ab", buffering=0) as file:
            _append(file, line)

    def close(self) -> None:
        """Close the files: all is written."""
        for file in (self._tasks, self._calls, self._events):
            file.close()

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        started = any(file.tell() for file in (self._tasks, self._calls, self._events))
        self.close()
        if isinstance(error, HarnessError | KeyboardInterrupt) and not started:
            self.take_back()

    def take_back(self) -> None:
        """Leave nothing of a run that could not start: its folder is free for the next try."""
        for name in (*RECORD_FILES, RUN_FILE):
            (self.folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # it held something else before
            self.folder.rmdir()


class EventsWriter:
    """Appends events to a file of its own: a worker's, beside those of the others."""

    def __init__(self, folder: Path, name: str) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / name).open("xb", buffering=0)
        except OSError as problem:
            raise UsageError(f"{folder / name}: cannot be written: {problem.strerror}") from None

    def write(self, events: EventsRecord) -> None:
        """Write a call's events."""
        _append(self._file, events)

    def __enter__(self) -> "EventsWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def make_folder(folder: Path) -> Path:
    """Create DIR; one that holds a run already is refused, so that no record is ever overwritten."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(f"{folder}: cannot be made: {problem.strerror}; give another --out") from None
    if any((folder / name).exists() for name in RECORD_FILES):
        raise UsageError(f"{folder}: holds a run already; give another --out")
    return folder


def write_json(folder: Path, name: str, value: dict[str, Any] | Summary | VerdictRecord) -> None:
    """Write a whole file in one step: a reader sees the old one or the new one, never a part."""
    part = folder / f".{name}.part"
    try:
        part.write_bytes(orjson.dumps(value, option=INDENTED))
        part.replace(folder / name)
    except OSError as problem:
        raise _lost(folder / name, problem) from None


def call_of(line: dict[str, Any]) -> CallRecord:
    """Make a call of what `told` made of it."""
    values = {key: line[other] for key, other in _AS_TOLD.items()} | line
    return _readers()[0].validate_python(values)


def task_of(line: dict[str, Any]) -> TaskRecord:
    """Make a task of its line."""
    return _readers()[1].validate_python(line)


@cache
def _readers() -> tuple["TypeAdapter[CallRecord]", "TypeAdapter[TaskRecord]"]:
    """Make what reads single lines, once: that takes as long as reading some hundred (8 ms)."""
    from pydantic import TypeAdapter

    return TypeAdapter(CallRecord), TypeAdapter(TaskRecord)


def read_records(folder: Path, name: str, kind: type[Record]) -> Iterator[Record]:
    """Read records back; keys this version does not know are dropped.

    The last line may be torn by a crash: it is left out. Any other bad line is a UsageError.
    """
    from pydantic import TypeAdapter

    adapter = TypeAdapter(kind)
    lines = (folder / name).read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            told = orjson.loads(line)
            if kind is CallRecord:
                told = {key: told[other] for key, other in _AS_TOLD.items()} | told
            yield adapter.validate_python(told)
        except (ValueError, KeyError, TypeError):
            if number == len(lines):
                return
            raise UsageError(f"{folder / name}: line {number} is not a record of schema 1") from None


def told(call: CallRecord) -> dict[str, Any]:
    """Leave out those later keys of a call that say nothing of their own."""
    values = {name: getattr(call, name) for name in _CALL_KEYS}
    silent = _SILENT | {key: values[other] for key, other in _AS_TOLD.items()}
    return {name: value for name, value in values.items() if silent[name] != value}


def _append(file: FileIO, record: dict[str, Any] | EventsRecord | TaskRecord) -> None:
    line = orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    try:
        while line:  # a disk that fills up takes a part first, and tells why with the rest
            line = line[file.write(line) :]
    except OSError as problem:
        raise _lost(Path(file.name), problem) from None


def _lost(path: Path, problem: OSError) -> LostRecordsError:
    return LostRecordsError(
        f"{path}: cannot be written: {problem.strerror}; the run ends here, its records until then stay"
    )
