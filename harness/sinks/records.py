"""DIR: records line by line as calls and tasks end, so that a crash loses nothing that has ended."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeVar

import orjson

from harness.errors import UsageError
from harness.records import CallRecord, EventsRecord, TaskRecord
from harness.results import Summary, VerdictRecord

RECORD_FILES = ("tasks.jsonl", "calls.jsonl", "events.jsonl")
INDENTED = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE

Record = TypeVar("Record", CallRecord, EventsRecord, TaskRecord)


class RecordWriter:
    """Appends records to the three files of a new DIR; each line is flushed when it is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = make_folder(folder)
        self._tasks, self._calls, self._events = ((folder / name).open("xb") for name in RECORD_FILES)

    def call(self, call: CallRecord, events: EventsRecord) -> None:
        """Write a call that has ended; its events first, so that no call lacks its events."""
        _append(self._events, events)
        _append(self._calls, call)

    def task(self, task: TaskRecord) -> None:
        """Write a task that has ended."""
        _append(self._tasks, task)

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self._tasks, self._calls, self._events):
            file.close()


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
    part.write_bytes(orjson.dumps(value, option=INDENTED))
    part.replace(folder / name)


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
            yield adapter.validate_python(orjson.loads(line))
        except ValueError:
            if number == len(lines):
                return
            raise UsageError(f"{folder / name}: line {number} is not a record of schema 1") from None


def _append(file: IO[bytes], record: CallRecord | EventsRecord | TaskRecord) -> None:
    file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
    file.flush()
