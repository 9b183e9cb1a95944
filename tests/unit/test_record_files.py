"""Records on disk: short lines that give back what was written, and what is said of lines that are none."""

import json
from dataclasses import asdict, fields

import numpy as np
import orjson
import pytest

from harness.errors import UsageError
from harness.measure.calls import Words, calls_of
from harness.measure.histogram import histogram
from harness.records import CallOutcome, CallRecord, EventsRecord, GapsRecord, Phase, TaskRecord, TokenSource
from harness.sinks import records as files
from harness.sinks.records import RecordWriter, read_calls, read_gaps, read_records
from harness.values import CallError, ErrorKind
from tests.making import MS, S, a_call, a_task

EVENTS = EventsRecord(call_id="b/w/0/1", gaps_us=[], kinds=[], tokens=[], reads=[])
MARKS = [
    f"{mark}_ns"
    for mark in ("scheduled", "sent", "headers", "first_output", "first_answer", "last_output", "done")
] + [f"{mark}_low_ns" for mark in ("first_output", "first_answer", "last_output")]
USUAL = {
    "backend": "ultrafast",
    "workload": "demo",
    "task_id": "ultrafast/demo/59",
    "call_id": "ultrafast/demo/59/6",
    "k": 59,
    "phase": Phase.MEASURE,
    "input_tokens": 5448,
    "input_planned": 5448,
    "cached_tokens": 4856,
    "output_tokens": 178,
    "output_asked": 178,
    "reasoning_tokens": 73,
    "hidden_tokens": 73,
    "token_source": TokenSource.EVENTS,
    "shared_read_events": 12,
    "tier_asked": "ultrafast",
    "tier_served": "ultrafast",
    "finish_reason": "tool_calls",
    "request_id": "chatcmpl-sim1234",
    "first_event_tokens": 12,
    "streamed_events": 30,
    "network_ns": 344_000,
}
LONGEST = {
    "input_planned": 123_455,
    "output_asked": 1233,
    "output_control": "max_tokens",
    "outcome": CallOutcome.FAILED,
    "error": CallError(ErrorKind.STREAM_ERROR, "x" * 200),
    "request_id": "r" * 64,
    "finish_reason": "f" * 64,
    "tier_served": "t" * 64,
    "warnings": ("compressed", "implausible_usage"),
}


def written(folder, call):
    with RecordWriter(folder / "out") as records:
        records.call(call, EVENTS)
    [back] = read_records(folder / "out", "calls.jsonl", CallRecord)
    return (folder / "out" / "calls.jsonl").read_bytes(), back


@pytest.mark.parametrize(
    ("at_ns", "said", "longest"),
    [
        pytest.param(99 * S + 123_456_789, {}, 1000, id="the demo"),
        pytest.param(36_000 * S + 123_456_789, {}, 1050, id="a run of ten hours"),
        pytest.param(36_000 * S + 123_456_789, LONGEST, 1600, id="all that a server can make long"),
    ],
)
def test_a_line_is_short(tmp_path, at_ns, said, longest):
    call = a_call(**{**USUAL, **dict.fromkeys(MARKS, at_ns), **said})
    line, back = written(tmp_path, call)
    assert len(line) < longest
    assert back == call


@pytest.mark.parametrize("told", [None, 0, 7])
@pytest.mark.parametrize("planned", [None, 0, 7])
def test_what_is_left_out_comes_back(tmp_path, told, planned):
    call = a_call(input_tokens=told, output_tokens=told, input_planned=planned, output_asked=planned)
    line, back = written(tmp_path, call)
    assert back == call
    assert (b"input_planned" in line) == (b"output_asked" in line) == (planned != told)


# --- read by columns -----------------------------------------------------------------------------

BEFORE = [{"sent_ns": 0, "done_ns": 3 * MS, "status": 503, "error": None}]
SEVERAL = [
    a_call(call_id="x/1", task_id="x"),
    a_call(call_id="x/2", task_id="x", **LONGEST, attempts=BEFORE, sent_ns=4 * MS),
    a_call(call_id="y/1", task_id="y", output_tokens=None, first_event_tokens=3, tier_asked="fast"),
    a_call(call_id="y/2", task_id="y", input_planned=7, cached_tokens=None),
]
GAPS = {"x/1": [0, 5, 1_000_000], "y/1": [0], "y/2": [0, 70, 70]}
PLACES = {"x": 0, "y": 1}


def events(call_id, gaps_us):
    return EventsRecord(call_id=call_id, gaps_us=gaps_us, kinds=[], tokens=[], reads=[])


@pytest.fixture
def folder(tmp_path):
    with RecordWriter(tmp_path / "run") as records:
        for call in SEVERAL:
            records.call(call, events(call.call_id, GAPS.get(call.call_id, [0, 9])))
        records.task(a_task())
    return tmp_path / "run"


def same(found, expected):
    for one in fields(expected):
        ours, theirs = getattr(found, one.name), getattr(expected, one.name)
        if isinstance(theirs, Words):
            assert (ours.codes.tolist(), list(ours.names)) == (theirs.codes.tolist(), list(theirs.names))
        else:
            assert np.array_equal(ours, theirs, equal_nan=True), one.name


def test_no_calls_are_read_from_an_empty_file(folder):
    (folder / "calls.jsonl").write_bytes(b"")
    calls, call_ids = read_calls(folder)
    assert (len(calls), call_ids) == (0, [])
    same(calls, calls_of([]))


@pytest.mark.parametrize("at_once", [1, 3, 500])
def test_calls_are_read_by_columns(folder, monkeypatch, at_once):
    monkeypatch.setattr(files, "AT_ONCE", at_once)
    calls, call_ids = read_calls(folder)
    assert call_ids == [call.call_id for call in SEVERAL]
    same(calls, calls_of(SEVERAL))
    same(calls, calls_of(read_records(folder, "calls.jsonl", CallRecord)))


def gaps_of(folder, wanted=("x/1", "y/1", "y/2")):
    return read_gaps(folder, {call_id: call_id[0] for call_id in wanted})


def values(gaps):
    """Values of few digits are their own buckets, but for the million."""
    pooled = gaps.at(PLACES).pooled()
    return np.repeat(pooled.buckets, pooled.counts).tolist()


MILLION = int(histogram(np.array([1_000_000])).buckets[0])


def test_gaps_are_those_of_wanted_calls_without_the_first_nought(folder):
    assert values(gaps_of(folder)) == [5, 70, 70, MILLION]
    assert values(gaps_of(folder, ["y/2"])) == [70, 70]
    assert gaps_of(folder).at(PLACES).per_place(2, up_to=100).tolist() == [1, 2]


@pytest.mark.parametrize(
    "spelt",
    [
        pytest.param(lambda one: orjson.dumps(one), id="as we write"),
        pytest.param(lambda one: json.dumps(one).encode(), id="with spaces"),
        pytest.param(lambda one: orjson.dumps(dict(reversed(one.items()))), id="in another order"),
        pytest.param(lambda one: orjson.dumps(one | {"more": {"keys": [1]}}), id="more keys"),
        pytest.param(lambda one: orjson.dumps({"more": "[]"} | one), id="more keys before"),
    ],
)
def test_other_programs_may_spell_events_as_they_like(folder, spelt):
    lines = [spelt(asdict(events(call_id, gaps_us))) for call_id, gaps_us in GAPS.items()]
    (folder / "events.jsonl").write_bytes(b"\n".join(lines))
    assert values(gaps_of(folder)) == [5, 70, 70, MILLION]


def test_an_id_with_quotes_is_found(folder):
    name = 'x"\\é'
    (folder / "events.jsonl").write_bytes(orjson.dumps(events(name, [0, 8])))
    assert values(read_gaps(folder, {name: "x"})) == [8]


def test_the_events_of_several_workers_are_read_as_one(folder):
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "events.jsonl").write_bytes(b"")
    (folder / "events.0.jsonl").write_bytes(b"".join(lines[:1]))
    (folder / "events.12.jsonl").write_bytes(b"".join(lines[1:]))
    assert values(gaps_of(folder)) == [5, 70, 70, MILLION]


def gaps_line(call_id, numbers):
    counted = histogram(np.array(numbers[1:], dtype=np.int64))
    record = GapsRecord(
        call_id=call_id,
        buckets=counted.buckets.tolist(),
        counts=counted.counts.tolist(),
        overflow=counted.overflow,
    )
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def test_gaps_that_were_counted_elsewhere_are_added(folder):
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "events.jsonl").write_bytes(b"".join(lines[:-1]))
    (folder / "gaps.jsonl").write_bytes(gaps_line("y/2", GAPS["y/2"]) + gaps_line("z/1", [0, 3]))
    assert values(gaps_of(folder)) == [5, 70, 70, MILLION]


def test_a_call_counts_once_wherever_its_gaps_stand(folder):
    """Events that were copied into DIR later stand beside their counts."""
    (folder / "gaps.jsonl").write_bytes(gaps_line("y/2", GAPS["y/2"]))
    (folder / "events.1.jsonl").write_bytes((folder / "events.jsonl").read_bytes())
    assert values(gaps_of(folder)) == [5, 70, 70, MILLION]


# --- lines that are no records -------------------------------------------------------------------


def read(folder, name):
    """Read a file in the way of a report."""
    if name == "tasks.jsonl":
        return len(list(read_records(folder, name, TaskRecord)))
    return len(read_calls(folder)[0]) if name == "calls.jsonl" else gaps_of(folder).at(PLACES).pooled().total


BAD = [
    pytest.param("tasks.jsonl", b"nonsense", id="tasks: no JSON"),
    pytest.param("tasks.jsonl", b'{"schema":1}', id="tasks: no keys"),
    pytest.param("calls.jsonl", b"nonsense", id="calls: no JSON"),
    pytest.param("calls.jsonl", b"[1]", id="calls: a list"),
    pytest.param("calls.jsonl", b'{"schema":1}', id="calls: no keys"),
    pytest.param("calls.jsonl", ("outcome", "fine"), id="calls: a word that is none"),
    pytest.param("calls.jsonl", ("sent_ns", "soon"), id="calls: no number"),
    pytest.param("calls.jsonl", ("done_ns", None), id="calls: no mark"),
    pytest.param("calls.jsonl", ("error", {"kind": "bad luck", "message": ""}), id="calls: no error of ours"),
    pytest.param("calls.jsonl", ("call_id", 7), id="calls: no id"),
    pytest.param("events.jsonl", b"nonsense", id="events: no JSON"),
    pytest.param("events.jsonl", b'{"schema":1,"call_id":"x/1"}', id="events: no gaps"),
    pytest.param("events.jsonl", b'{"schema":1,"call_id":"x/1","gaps_us":[0,1', id="events: an end amid it"),
    pytest.param(
        "events.jsonl", b'{"schema":1,"call_id":"x/1","gaps_us":[0,x],"reads":[]}', id="events: no number"
    ),
    pytest.param(
        "events.jsonl", b'{"schema":1,"call_id":"x/1","gaps_us":[0,,1],"reads":[]}', id="events: a hole"
    ),
    pytest.param("gaps.jsonl", b'{"schema":1,"call_id":"x/1","buckets":[1]}', id="gaps: no counts"),
    pytest.param(
        "gaps.jsonl",
        b'{"schema":1,"call_id":"z","buckets":[1],"counts":[1,2],"overflow":0}',
        id="gaps: unlike lengths",
    ),
]


@pytest.mark.parametrize(("name", "bad"), BAD)
def test_a_bad_line_is_named(folder, name, bad):
    if isinstance(bad, tuple):
        bad = orjson.dumps(json.loads((folder / name).read_bytes().splitlines()[0]) | dict([bad]))
    path = folder / name
    good = path.read_bytes() if path.exists() else gaps_line("y/1", GAPS["y/1"])
    before = len(good.splitlines())
    path.write_bytes(good + b"\n" + bad + b"\n" + good)
    with pytest.raises(UsageError) as caught:
        read(folder, name)
    assert str(caught.value) == f"{path}: line {before + 2} is not a record of schema 1"


@pytest.mark.parametrize("name", ["tasks.jsonl", "calls.jsonl", "events.jsonl"])
def test_a_torn_last_line_is_left_out_wherever_it_is_torn(folder, name):
    whole = (folder / name).read_bytes()
    last = whole.rstrip().rfind(b"\n") + 1
    (folder / name).write_bytes(whole[:last])
    without = read(folder, name)
    for torn in range(last, len(whole) - 1, 7):
        (folder / name).write_bytes(whole[:torn])
        assert read(folder, name) == without
    (folder / name).write_bytes(whole.rstrip())
    assert read(folder, name) > without
