"""Cases and recordings, played from their files, say what their writers expect."""

import base64
import hashlib
import itertools
import json
import re
from pathlib import Path

import orjson
import pytest

from harness.decode import decode_file, facts
from harness.errors import UsageError
from harness.values import Progress
from harness.wire import DIALECTS

DATA = Path(__file__).parents[1] / "data"
FILES = [DATA / "sse_cases.json", DATA / "own_cases.json"]
CASES = [c for file in FILES for c in json.loads(file.read_text()) if c["protocol"] == "openai-chat"]
WITH_MARK = [c for c in CASES if base64.b64decode(c["chunks"][-1]["bytes_b64"]).strip().endswith(b"[DONE]")]
TIMES = {"ttft_ms", "first_text_ms", "first_tool_ms", "event_ms", "last_output_ms", "done_ms", "tpot_ms"}
by_id = {"ids": lambda case: case["id"]}


def same(want, got):
    if isinstance(want, bool) or isinstance(got, bool):
        return want is got
    if isinstance(want, int | float) and isinstance(got, int | float):
        return abs(want - got) <= max(1e-6, 1e-6 * abs(want))
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(map(same, want, got))
    if isinstance(want, dict) and isinstance(got, dict):
        return all(same(value, got.get(key)) for key, value in want.items())
    return want == got


def digested(call):
    """A tool call as the cases give long ones: by length and digest of the arguments."""
    digest = hashlib.sha256(call["arguments"].encode()).hexdigest()
    return {"arguments_len": len(call["arguments"]), "arguments_sha256": digest, **call}


def differences(expect, got, without=frozenset()):
    got = got | {"tool_calls": [digested(call) for call in got["tool_calls"]]}
    keys = set(expect) - without - {"error", "warnings_contains", "incomplete_reason"}
    wrong = {key: (expect[key], got[key]) for key in keys if not same(expect[key], got[key])}
    want, have = expect["error"], got["error"]
    said = (have or {}).get("message", "").lower()
    kinds, needle = (want["kind_any_of"], want.get("message_contains") or "") if want else ([None], "")
    if (have or {}).get("kind") not in kinds or needle.lower() not in said:
        wrong["error"] = (want, have)
    if not set(expect.get("warnings_contains", ())) <= set(got["warnings"]):
        wrong["warnings"] = (expect["warnings_contains"], got["warnings"])
    return wrong


def whole_body(case):
    return b"".join(base64.b64decode(c["bytes_b64"]) * c.get("repeat", 1) for c in case["chunks"])


def decoded(case, pieces):
    how = case.get("end", {}).get("how", "eof")
    decoder = DIALECTS["openai-chat"].decoder()
    for stamp, piece in enumerate(pieces, start=1):
        decoder.feed(piece, stamp)
    told = facts(decoder.answer(ended=how == "eof"), end_ns=len(pieces))
    if how == "reset":  # the transport's own failure is not in the bytes
        told |= {"ok": False, "error": {"kind": "reset", "message": ""}}
    return told


@pytest.mark.parametrize("case", CASES, **by_id)
def test_case_agrees_in_times_and_content(case):
    told = {line["id"]: line for file in FILES for line in decode_file(file)}
    assert differences(case["expect"], told[case["id"]]) == {}


@pytest.mark.parametrize("case", CASES, **by_id)
def test_case_agrees_wherever_it_is_cut_in_two(case):
    body = whole_body(case)
    for cut in range(0, len(body) + 1, 1 + len(body) // 20_000 * 331):
        got = decoded(case, [body[:cut], body[cut:]])
        assert differences(case["expect"], got, without=TIMES) == {}, f"cut at {cut}"


@pytest.mark.parametrize("case", [c for c in CASES if len(whole_body(c)) < 20_000], **by_id)
def test_case_agrees_byte_by_byte(case):
    got = decoded(case, [bytes([byte]) for byte in whole_body(case)])
    assert differences(case["expect"], got, without=TIMES) == {}


@pytest.mark.parametrize("case", [c for c in WITH_MARK if whole_body(c)[-1:] != b"]"], **by_id)
def test_nothing_behind_the_end_mark_is_read(case):
    late = b'data: {"id":"c2","choices":[{"index":0,"delta":{"content":"late"}}]}\n\nnot JSON\n\n'
    got = decoded(case, [whole_body(case) + late, late])
    assert differences(case["expect"], got, without=TIMES) == {}


@pytest.mark.parametrize("case", WITH_MARK, **by_id)
def test_done_is_told_with_the_piece_that_holds_the_mark(case):
    decoder = DIALECTS["openai-chat"].decoder()
    pieces = [base64.b64decode(c["bytes_b64"]) for c in case["chunks"] for _ in range(c.get("repeat", 1))]
    progress = [decoder.feed(piece, at) for at, piece in enumerate(pieces, start=1)]
    assert Progress.DONE not in progress[:-1]
    assert (progress[-1] is Progress.DONE) is not pieces[-1].endswith(b"]")


def test_other_dialects_are_told_as_skipped():
    lines = [line for line in decode_file(FILES[0]) if "skipped" in line]
    assert {line["dialect"] for line in lines} == {"anthropic", "openai-responses"}
    assert all(line["skipped"] == f"dialect {line['dialect']} is not there yet" for line in lines)


def test_the_asked_dialect_wins_over_the_case():
    assert all("ok" in line for line in decode_file(FILES[0], dialect="openai-chat"))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(None, "cannot read", id="no-file"),
        pytest.param(b"{", "is not JSON", id="no-json"),
        pytest.param(b'"text"', "neither a list of cases nor a recording", id="text"),
        pytest.param(b"{}", "neither a list of cases nor a recording", id="other-object"),
        pytest.param(b"[1]", "case 0 is not of the cases' format", id="no-case"),
        pytest.param(b'[{"id": "a", "protocol": "openai-chat", "chunks": [{}]}]', "case 0", id="no-piece"),
        pytest.param(b'{"wire": [], "request": {}}', "is not a recording", id="empty-recording"),
        pytest.param(b'{"wire": [[1, "$"]], "request": {}}', "is not a recording", id="no-base64"),
    ],
)
def test_a_file_of_another_format_is_a_usage_error(tmp_path, content, sentence):
    file = tmp_path / "file.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=sentence):
        list(decode_file(file))


@pytest.mark.parametrize("dialect", ["klingon", "anthropic"])
def test_an_unknown_dialect_is_a_usage_error(dialect):
    with pytest.raises(UsageError, match=f"unknown dialect '{dialect}': there are openai-chat"):
        decode_file(FILES[0], dialect=dialect)


def recording(tmp_path, *reads, path="/v1/chat/completions"):
    wire = [[at, base64.b64encode(data).decode()] for at, data in reads]
    file = tmp_path / "mine.json"
    file.write_bytes(orjson.dumps({"request": {"method": "POST", "path": path}, "wire": wire}))
    (line,) = decode_file(file)
    return line


EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"%x;ext=1\r\n%b\r\n" % (len(EVENT), EVENT)
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
SIZED = PLAIN + b"Content-Length: %d\r\n\r\n" % len(EVENT)


@pytest.mark.parametrize(
    ("reads", "kind", "done_ms"),
    [
        pytest.param([(1, CHUNKED + CHUNK), (2, b"0\r\n\r\n"), (9, b"")], None, 2, id="chunked"),
        pytest.param([(1, CHUNKED), (2, CHUNK), (9, b"")], "truncated", 9, id="no-last-chunk"),
        pytest.param([(1, SIZED), (2, EVENT[:30]), (3, EVENT[30:]), (9, b"")], None, 3, id="length"),
        pytest.param([(1, SIZED), (2, EVENT[:30]), (9, b"")], "truncated", 9, id="short-of-length"),
        pytest.param([(1, PLAIN + b"\r\n" + EVENT), (9, b"")], None, 9, id="until-close"),
        pytest.param([(1, b"HTTP/1.1 20")], "truncated", 1, id="no-head"),
    ],
)
def test_framing_of_a_recording(tmp_path, reads, kind, done_ms):
    line = recording(tmp_path, *((at * 1_000_000, data) for at, data in reads))
    assert (line["error"] and line["error"]["kind"]) == kind
    assert line["done_ms"] == done_ms


def test_framing_is_taken_off_wherever_it_is_cut(tmp_path):
    raw = CHUNKED + CHUNK + CHUNK + b"0\r\n\r\n"
    for cut in range(len(raw) - 2):  # the last size line ends the body, its blank line adds nothing
        line = recording(tmp_path, (1, raw[:cut]), (2, raw[cut:]), (3, b""))
        assert (line["text"], line["error"], line["done_ms"]) == ("hihi", None, 2e-6)


def test_several_chunks_in_one_read_are_one_read(tmp_path):
    line = recording(tmp_path, (5, CHUNKED), (7, CHUNK + CHUNK), (8, b"0\r\n\r\n"))
    assert line["exact"] == [False, True]


@pytest.mark.parametrize("path", ["/v1/messages?beta=true", "/v1/responses", "/metrics"])
def test_a_recording_of_no_dialect_that_is_there_is_skipped(tmp_path, path):
    line = recording(tmp_path, (1, CHUNKED), path=path)
    said = "no dialect reads what its path asks for"
    assert line == {"id": "mine", "dialect": None, "skipped": said}


def test_the_dialect_follows_from_the_recorded_path(tmp_path):
    assert "error" in recording(tmp_path, (1, CHUNKED), path="/v1/chat/completions?stream=1")


def test_lines_of_all_recordings_can_be_printed():
    files = sorted((DATA / "recordings").glob("*.json"))
    lines = list(itertools.chain.from_iterable(map(decode_file, files)))
    assert len(lines) == len(files) > 15
    assert all(orjson.dumps(line) for line in lines)


@pytest.mark.parametrize("name", ["agent_tool_call", "agent_tool_call_cut", "chat_usage_timings"])
def test_tpot_agrees_with_what_the_server_measured_itself(name):
    """llama.cpp's last event tells its own time of generation: n - 1 steps after the first token."""
    file = DATA / "recordings" / f"llamacpp_{name}.json"
    wire = b"".join(base64.b64decode(piece) for _, piece in orjson.loads(file.read_bytes())["wire"])
    told = orjson.loads(re.findall(rb'"timings":(\{[^}]*\})', wire)[-1])
    (line,) = decode_file(file)
    assert line["tpot_ms"] == pytest.approx(told["predicted_ms"] / (told["predicted_n"] - 1), rel=0.1)
