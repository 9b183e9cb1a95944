"""Records on disk: short lines that give back what was written."""

import pytest

from harness.records import CallOutcome, CallRecord, EventsRecord, Phase, TokenSource
from harness.sinks.records import RecordWriter, read_records
from harness.values import CallError, ErrorKind
from tests.making import S, a_call

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
