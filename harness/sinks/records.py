"""DIR: records line by line as calls and tasks end, so that a crash loses nothing that has ended."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import cache
from io import FileIO
from itertools import islice
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import orjson

from harness.errors import HarnessError, LostRecordsError, UsageError
from harness.measure.calls import KEYS, Calls, Gathering
from harness.measure.gaps import Gaps, values_of
from harness.measure.histogram import Histogram
from harness.records import CallRecord, EventsRecord, GapsRecord, TaskRecord
from harness.results import Summary, VerdictRecord
from harness.values import CallError

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

_LATER = {field.name: field.default for field in fields(CallRecord) if field.default is not MISSING}
_ROW = itemgetter(*KEYS)

BAD = (ValueError, KeyError, TypeError, AttributeError, OverflowError)
"""What a line that is no record raises."""
AT_ONCE = 500
"""Lines of calls that are taken up together."""
BUFFER = 1 << 20

_HEAD, _GAPS, _ENDS = b'{"schema":1,"call_id":"', b'","gaps_us":[', (b"]}\n", b"]}")
"""How a line of events begins, goes on and ends."""
_QUOTED = re.compile(rb'["\\\\]')

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
        line = GapsRecord(
            call_id=call_id,
            buckets=counted.buckets.tolist(),
            counts=counted.counts.tolist(),
            overflow=counted.overflow,
        )
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
        of_workers = [file.name for file in self.folder.glob("events.[0-9]*.jsonl")]
        for name in (*RECORD_FILES, RUN_FILE, *of_workers):
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
    short = issubclass(kind, CallRecord)
    for number, line in _lines(folder / name):
        try:
            yield adapter.validate_python(_whole(line)) if short else adapter.validate_json(line)
        except BAD:
            _refuse(folder / name, number, line)


def read_calls(folder: Path) -> tuple[Calls, list[str]]:
    """Read all calls, by columns, and their ids; bad lines as in `read_records`."""
    path, gathering = folder / "calls.jsonl", Gathering()
    each = _lines(path)
    while lines := list(islice(each, AT_ONCE)):
        try:
            gathering.add([_ROW(_whole(line)) for _, line in lines])
        except BAD:  # one of them is: find it
            _take(path, lines, lambda line: gathering.add([_ROW(_whole(line))]))
    return gathering.calls(), gathering.call_ids


def read_gaps(folder: Path, task_of: dict[str, str]) -> Gaps:
    """Read the gaps of calls, from all files of events and from `gaps.jsonl` if there is one.

    task_of: call_id -> task_id of the calls that are wanted. It is used up: each call counts once, wherever
    it stands. Bad lines as in `read_records`.
    """
    gaps = Gaps()

    def take_events(line: bytes) -> None:
        call_id, told = _cut(line)
        gaps_us = np.fromstring(told or "0", dtype=np.int64, sep=",")[1:]
        task_id = task_of.pop(call_id, None)
        if task_id is not None:
            gaps.add(task_id, gaps_us)

    for path in (folder / "events.jsonl", *folder.glob("events.[0-9]*.jsonl")):
        _take(path, _lines(path), take_events)
    if (folder / GAPS_FILE).exists():
        _read_counted(folder / GAPS_FILE, task_of, gaps)
    return gaps


def _read_counted(path: Path, task_of: dict[str, str], gaps: Gaps) -> None:
    """Read the gaps of calls whose events stayed on another machine."""
    from pydantic import TypeAdapter

    adapter = TypeAdapter(GapsRecord)

    def take(line: bytes) -> None:
        record = adapter.validate_json(line)
        buckets, counts = (np.array(one, dtype=np.int64) for one in (record.buckets, record.counts))
        gaps_us = values_of(Histogram(buckets, counts, record.overflow))
        task_id = task_of.pop(record.call_id, None)
        if task_id is not None:
            gaps.add(task_id, gaps_us)

    _take(path, _lines(path), take)


def _take(path: Path, lines: Iterable[tuple[int, bytes]], take: Callable[[bytes], None]) -> None:
    """Take lines one by one, and refuse the bad one."""
    for number, line in lines:
        try:
            take(line)
        except BAD:
            _refuse(path, number, line)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Give the lines of a file that are not empty, with their numbers."""
    with path.open("rb", buffering=BUFFER) as file:
        for number, line in enumerate(file, start=1):
            if line != b"\n":
                yield number, line


def _refuse(path: Path, number: int, line: bytes) -> None:
    """Refuse a line that is no record, unless it is the last one, torn by a crash."""
    if line.endswith(b"\n"):
        raise UsageError(f"{path}: line {number} is not a record of schema 1") from None


def _whole(line: bytes) -> dict[str, Any]:
    """Give all keys of a call, those too that were left out of its line."""
    told: dict[str, Any] = orjson.loads(line)
    for key, other in _AS_TOLD.items():
        told.setdefault(key, told[other])
    for key, default in _LATER.items():
        told.setdefault(key, default)
    if told["error"] is not None:
        told["error"] = CallError(told["error"]["kind"], told["error"]["message"])
    return told


def _cut(line: bytes) -> tuple[str, bytes]:
    """Give the id and the gaps of a line of events, these as text.

    Of a line as it is written here nothing else has to be read, which is most of a large report's time.
    """
    at = line.find(_GAPS)
    call_id, stop = line[len(_HEAD) : at], line.find(b"]", at)
    if line.startswith(_HEAD) and 0 < at < stop and line.endswith(_ENDS) and not _QUOTED.search(call_id):
        return call_id.decode(), line[at + len(_GAPS) : stop]
    told = orjson.loads(line)
    return told["call_id"], orjson.dumps([int(gap) for gap in told["gaps_us"]])[1:-1]


def told(call: CallRecord) -> dict[str, Any]:
    """Leave out those later keys of a call that say nothing of their own."""
    values = {name: getattr(call, name) for name in _CALL_KEYS}
    silent = _SILENT | {key: values[other] for key, other in _AS_TOLD.items()}
    return {name: value for name, value in values.items() if silent[name] != value}


def _append(file: FileIO, record: dict[str, Any] | EventsRecord | GapsRecord | TaskRecord) -> None:
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
