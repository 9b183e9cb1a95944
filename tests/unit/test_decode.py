"""Cases and recordings, played from their files, say what their writers expect."""

import base64
import hashlib
import json
import re
from pathlib import Path

import orjson
import pytest

from harness.decode import PATHS, decode_file, facts
from harness.errors import UsageError
from harness.values import Progress
from harness.wire import DIALECTS

DATA = Path(__file__).parents[1] / "data"
FILES = [DATA / "sse_cases.json", DATA / "own_cases.json"]
CASES = [c for file in FILES for c in json.loads(file.read_text()) if c["protocol"] in DIALECTS]
MARKS = (b"[DONE]", b'{"type":"message_stop"}', b'"status":"completed"', b'"status":"incomplete"')
WITH_MARK = [
    c for c in CASES if any(mark in base64.b64decode(c["chunks"][-1]["bytes_b64"]) for mark in MARKS)
]
LATE = {
    "openai-chat": b'data: {"id":"c2","choices":[{"index":0,"delta":{"content":"late"}}]}\n\nnot JSON\n\n',
    "openai-completions": b'data: {"choices":[{"index":0,"text":"late"}]}\n\nnot JSON\n\n',
    "openai-responses": b'data: {"type":"response.output_text.delta","delta":"late"}\n\nnot JSON\n\n',
    "anthropic": b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"late"}}\n\n',
}
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
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
    keys = set(expect) - without - {"error", "warnings_contains"}
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
    decoder = DIALECTS[case["protocol"]].decoder()
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
    late = LATE[case["protocol"]]
    got = decoded(case, [whole_body(case) + late, late])
    assert differences(case["expect"], got, without=TIMES) == {}


@pytest.mark.parametrize("case", WITH_MARK, **by_id)
def test_done_is_told_with_the_piece_that_holds_the_mark(case):
    decoder = DIALECTS[case["protocol"]].decoder()
    pieces = [base64.b64decode(c["bytes_b64"]) for c in case["chunks"] for _ in range(c.get("repeat", 1))]
    progress = [decoder.feed(piece, at) for at, piece in enumerate(pieces, start=1)]
    assert Progress.DONE not in progress[:-1]
    assert (progress[-1] is Progress.DONE) is not pieces[-1].endswith(b"]")


@pytest.mark.parametrize("sent", [[], [b"data: {}\n\n"], [EVENT.replace(b'"stop"', b"null")]])
@pytest.mark.parametrize(("how", "kind"), [("open", "truncated"), ("reset", "reset")])
def test_an_end_without_its_mark_is_the_transports(tmp_path, sent, how, kind):
    file = tmp_path / "cases.json"
    chunks = [{"at_ms": 1, "bytes_b64": base64.b64encode(piece).decode()} for piece in sent]
    end = {"how": how, "at_ms": 9000}
    case = {"id": "a", "protocol": "openai-chat", "chunks": chunks, "end": end}
    file.write_bytes(orjson.dumps([case]))
    (line,) = decode_file(file)
    assert (line["error"]["kind"], line["done_ms"]) == (kind, 9000)


def test_an_unknown_protocol_is_told_as_no_model_call(tmp_path):
    file = tmp_path / "cases.json"
    file.write_bytes(orjson.dumps([{"id": "a", "protocol": "klingon", "chunks": []}]))
    (line,) = decode_file(file)
    assert line["error"] == {"kind": "not_a_model_call", "message": "there is no dialect klingon"}
    assert (line["id"], line["ok"], line["ttft_ms"]) == ("a", False, None)


def test_the_asked_dialect_wins_over_the_case():
    assert all("ok" in line for line in decode_file(FILES[0], dialect="openai-chat"))


ENDS = b'[{"id": "a", "protocol": "openai-chat", "chunks": [], "end": {%b}}]'


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(None, "cannot read", id="no-file"),
        pytest.param(b"{", "is not JSON", id="no-json"),
        pytest.param(b'"text"', "neither a list of cases nor a recording", id="text"),
        pytest.param(b"{}", "neither a list of cases nor a recording", id="other-object"),
        pytest.param(b'[{"id": 1}]', "case 0 .* format: no 'protocol' in it$", id="no-protocol"),
        pytest.param(b"[1]", "case 0 is not of the cases' format", id="no-case"),
        pytest.param(b'[{"id": "a", "protocol": "openai-chat", "chunks": [{}]}]', "case 0", id="no-piece"),
        pytest.param(b'[{"id": "a", "protocol": "b", "chunks": [], "end": 5}]', "case 0", id="no-end"),
        pytest.param(ENDS % b'"how": "odd"', "case 0", id="odd-end"),
        pytest.param(ENDS % b'"how": []', "case 0", id="no-word-for-the-end"),
        pytest.param(ENDS % b'"at_ms": 1e300', "case 0", id="no-time-of-a-call"),
        pytest.param(b'{"wire": 5}', "is not a recording", id="no-wire"),
        pytest.param(b'{"wire": [[1]]}', "is not a recording", id="no-read"),
        pytest.param(b'{"frames_ms": [[1, "in"]]}', "is not a recording", id="no-message"),
        pytest.param(b'{"frames_ms": [["a", "in", "{}"]]}', "is not a recording", id="no-time"),
        pytest.param(b'{"frames_ms": [[1, "in", 5]]}', "is not a recording", id="no-text"),
        pytest.param(b'{"wire": [[1, "$"]], "request": {}}', "is not a recording", id="no-base64"),
    ],
)
def test_a_file_of_another_format_is_a_usage_error(tmp_path, content, sentence):
    file = tmp_path / "file.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=sentence):
        list(decode_file(file))


def test_an_unknown_dialect_is_a_usage_error():
    with pytest.raises(UsageError, match="unknown dialect 'klingon': there are openai-chat"):
        decode_file(FILES[0], dialect="klingon")


def recording(tmp_path, *reads, path="/v1/chat/completions", method="POST", dialect=None):
    wire = [[at, base64.b64encode(data).decode()] for at, data in reads]
    file = tmp_path / "mine.json"
    file.write_bytes(orjson.dumps({"request": {"method": method, "path": path}, "wire": wire}))
    (line,) = decode_file(file, dialect=dialect)
    return line


CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"%x;ext=1\r\n%b\r\n" % (len(EVENT), EVENT)
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
SIZED = PLAIN + b"Content-Length: %d\r\n\r\n" % len(EVENT)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize(
    ("reads", "kind", "done_ms"),
    [
        pytest.param([(1, CHUNKED + CHUNK), (2, b"0\r\n\r\n"), (9, b"")], None, 2, id="chunked"),
        pytest.param([(1, CHUNKED), (2, CHUNK), (9, b"")], "truncated", 9, id="no-last-chunk"),
        pytest.param([(1, SIZED), (2, EVENT[:30]), (3, EVENT[30:]), (9, b"")], None, 3, id="length"),
        pytest.param([(1, SIZED), (2, EVENT[:30]), (9, b"")], "truncated", 9, id="short-of-length"),
        pytest.param([(1, PLAIN + b"\r\n" + EVENT), (9, b"")], None, 9, id="until-close"),
        pytest.param([(1, b"HTTP/1.1 20")], "truncated", 1, id="no-head"),
        pytest.param([], "truncated", 0, id="nothing-at-all"),
        pytest.param([(1, b"")], "truncated", 1, id="closed-at-once"),
        pytest.param([(1, b"garbage\r\n\r\nmore")], "truncated", 1, id="no-status"),
        pytest.param([(1, CHUNKED), (2, CHUNK + b"zz\r\n"), (9, b"")], "truncated", 9, id="no-chunk-size"),
        pytest.param([(1, CHUNKED), (2, CHUNK + b"-1\r\n"), (9, b"")], "truncated", 9, id="size-below-0"),
        pytest.param(
            [(1, PLAIN + b"content-length: " + b"9" * 5000 + b"\r\n\r\n" + EVENT), (9, b"")],
            None,
            9,
            id="odd-length",
        ),
        pytest.param([(1, b"HTTP/1.1 " + b"9" * 5000 + b" X\r\n\r\n")], "truncated", 1, id="odd-status"),
        pytest.param([(1, CONTINUE + SIZED[:9]), (2, SIZED[9:]), (3, EVENT)], None, 3, id="two-heads"),
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


JSON_HEAD = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


def json_answer(status, body):
    return JSON_HEAD % (status, len(body), body)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/metrics", b"a 1"),
        ("GET", "/v1/models", b'{"data":[]}'),
        ("GET", "/v1/chat/completions", b"{}"),
        ("POST", "/v1/embeddings", b'{"data":[{"embedding":[0.1]}]}'),
        ("POST", "", b"{}"),
    ],
)
def test_what_asks_no_model_is_told_so(tmp_path, method, path, body):
    line = recording(tmp_path, (1, json_answer(200, body)), path=path, method=method)
    assert (line["id"], line["dialect"], line["status"]) == ("mine.json", None, 200)
    assert (line["error"]["kind"], line["ok"], line["ttft_ms"]) == ("not_a_model_call", False, None)


def test_a_refusal_is_told_in_the_servers_words_whatever_was_asked(tmp_path):
    refused = (1, json_answer(404, b'{"error":{"message":"no such path"}}'))
    for path in ("/v1/nowhere", "/v1/chat/completions", "/v1/messages"):
        line = recording(tmp_path, refused, path=path)
        assert line["error"] == {"kind": "http_error", "message": "HTTP 404: no such path"}
        assert (line["status"], line["text"]) == (404, "")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"choices": [{"message": {"content": "hi"}, "finish_reason": "end"}]}),
        (
            "/v1/responses",
            {
                "status": "end",
                "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}],
            },
        ),
        ("/v1/messages", {"content": [{"type": "text", "text": "hi"}], "stop_reason": "end"}),
    ],
)
@pytest.mark.parametrize("kind", [b"application/json", b"text/event-stream", b"text/plain"])
def test_an_answer_that_came_at_once_keeps_its_text_and_has_no_first_output(tmp_path, path, body, kind):
    answered = json_answer(200, orjson.dumps(body)).replace(b"application/json", kind)
    line = recording(tmp_path, (5, answered), path=path)
    assert (line["error"]["kind"], line["ok"]) == ("not_streamed", False)
    assert (line["text"], line["finish_reason"], line["ttft_ms"]) == ("hi", "end", None)


@pytest.mark.parametrize("kind", [b"", b"application/json", b"text/plain", b"application/octet-stream"])
def test_a_stream_is_one_whatever_its_content_type_says(tmp_path, kind):
    head = CHUNKED.replace(b"text/event-stream", kind)
    line = recording(tmp_path, (1, head), (2, CHUNK), (3, b"0\r\n\r\n"))
    assert (line["text"], line["error"], line["ttft_ms"]) == ("hi", None, 2e-6)


def test_an_error_is_one_whatever_its_content_type_says(tmp_path):
    said = b'data: {"error": {"message": "quota used up"}}\n\n'
    line = recording(tmp_path, (1, json_answer(200, said)))
    assert line["error"] == {"kind": "stream_error", "message": "quota used up"}


def test_a_page_and_an_odd_object_are_no_stream(tmp_path):
    for body in (b"<p>data: a</p>", b'{"data": 5}', b""):
        line = recording(tmp_path, (1, json_answer(200, body)))
        assert (line["error"]["kind"], line["n_content_events"]) == ("not_sse", 0)


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/chat/completions?stream=1", "openai-chat"),
        ("http://127.0.0.1:1/v1/chat/completions/", "openai-chat"),
        ("/v1/responses", "openai-responses"),
        ("/anthropic/v1/messages?beta=true", "anthropic"),
    ],
)
def test_the_dialect_follows_from_the_recorded_path(tmp_path, path, dialect):
    assert recording(tmp_path, (1, CHUNKED), path=path)["dialect"] == dialect
    assert recording(tmp_path, (1, CHUNKED), path=path, dialect="openai-chat")["dialect"] == "openai-chat"


@pytest.mark.parametrize("path", PATHS)
def test_the_longest_ending_of_a_path_decides(tmp_path, path):
    assert recording(tmp_path, (1, CHUNKED), path=f"/v1{path}")["dialect"] == PATHS[path]


def test_every_recording_is_one_line_with_its_files_name():
    files = sorted((DATA / "recordings").glob("*.json"))
    for file in files:
        (line,) = decode_file(file)
        assert orjson.dumps(line)
        assert line["id"] == file.name
        assert (line["error"] is None) is line["ok"]
    assert len(files) > 45


# --- events of recordings have the times that the recorder gave them -------------------------------


def is_output(text):
    """Tell whether an event, as the recorder kept it, carries output: by hand, not by our reader."""
    data = "".join(row[5:].strip() for row in text.splitlines() if row.startswith("data:"))
    event = json.loads(data) if data.startswith("{") and data.endswith("}") else {}
    kind = event.get("type", "")
    if kind.startswith("response."):
        item = event.get("item", {})
        return kind.endswith(".delta") or (kind.endswith("item.added") and item["type"] == "function_call")
    if kind.startswith("content_block"):
        delta = event.get("delta", {})
        return bool(delta.get("text") or delta.get("thinking") or delta.get("partial_json"))
    deltas = [choice.get("delta", {}) for choice in event.get("choices", [])]
    return any(
        delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls") for delta in deltas
    )


TIMED = [
    file
    for file in sorted((DATA / "recordings").glob("*.json"))
    if re.match("[a-z]+_(chat|messages|responses|mistral)_", file.stem) and "ollama" not in file.stem
]


@pytest.mark.parametrize("file", TIMED, ids=lambda file: file.stem)
def test_output_events_have_the_recorders_times(file):
    told = json.loads(file.read_text())["response"].get("events_ms") or []
    (line,) = decode_file(file)
    assert line["event_ms"] == pytest.approx([at for at, text in told if is_output(text)], abs=0.001)


# --- WebSocket -------------------------------------------------------------------------------------


def test_a_recorded_websocket_is_told_by_its_first_answer_and_all_of_them():
    (line,) = decode_file(DATA / "recordings" / "aimock_ws_responses_tool_loop.json")
    assert (line["id"], line["dialect"]) == ("aimock_ws_responses_tool_loop.json", "openai-responses")
    assert (line["text"], line["finish_reason"], line["error"]) == ("Let me look.", "completed", None)
    assert [call["name"] for call in line["tool_calls"]] == ["read_file", "list_dir"]
    assert line["ttft_ms"] == pytest.approx(17.4831 - 0.0677)
    assert line["done_ms"] == pytest.approx(21.2838 - 0.0677)
    first, second = line["answers"]
    assert first == {key: line[key] for key in first}
    assert second["error"] == {"kind": "stream_error", "message": "No fixture matched (no_fixture_match)"}
    assert (second["ttft_ms"], second["done_ms"]) == (None, pytest.approx(26.2991 - 21.4708))


def socket(tmp_path, *frames, url="ws://127.0.0.1:1/v1/responses"):
    file = tmp_path / "ws.json"
    file.write_bytes(orjson.dumps({"url": url, "frames_ms": [[at, way, text] for at, way, text in frames]}))
    (line,) = decode_file(file)
    return line


def message(kind, **fields):
    return orjson.dumps({"type": kind, **fields}).decode()


def test_lanes_of_a_websocket_are_kept_apart(tmp_path):
    said = "response.output_text.delta"
    line = socket(
        tmp_path,
        (0, "out", message("response.create", stream_id="a")),
        (1, "out", message("response.create", stream_id="b")),
        (2, "out", message("response.create", stream_id="a")),
        (3, "in", message(said, delta="a1", stream_id="a")),
        (4, "in", message(said, delta="b1", stream_id="b")),
        (5, "in", message("response.steer.accepted", stream_id="a")),
        (6, "in", message("response.completed", response={}, stream_id="a")),
        (7, "in", message(said, delta="a2", stream_id="a")),
        (8, "in", message("response.completed", response={}, stream_id="b")),
        (9, "in", message("response.completed", response={}, stream_id="a")),
    )
    answers = [(told["text"], told["ttft_ms"], told["done_ms"]) for told in line["answers"]]
    assert answers == [("a1", 3, 6), ("b1", 3, 7), ("a2", 5, 7)]


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        pytest.param([], "empty_response", id="nothing"),
        pytest.param([(0, "out", "{}"), (1, "out", "junk")], "empty_response", id="nothing-came"),
        pytest.param([(1, "in", "junk"), (2, "in", "[1]")], "malformed_event", id="junk"),
        pytest.param([(0, "out", "{}"), (1, "close", None)], "empty_response", id="closed-without-a-word"),
        pytest.param([(1, "in", message("response.output_text.delta", delta="a"))], "truncated", id="no-end"),
    ],
)
def test_odd_websockets_are_one_line_too(tmp_path, frames, kind):
    assert socket(tmp_path, *frames)["error"]["kind"] == kind


def test_a_websocket_of_another_path_asks_no_model(tmp_path):
    line = socket(tmp_path, (0, "in", "{}"), url="ws://127.0.0.1/elsewhere")
    assert (line["dialect"], line["error"]["kind"]) == (None, "not_a_model_call")


@pytest.mark.parametrize("name", ["agent_tool_call", "agent_tool_call_cut", "chat_usage_timings"])
def test_tpot_agrees_with_what_the_server_measured_itself(name):
    """llama.cpp's last event tells its own time of generation: n - 1 steps after the first token."""
    file = DATA / "recordings" / f"llamacpp_{name}.json"
    wire = b"".join(base64.b64decode(piece) for _, piece in orjson.loads(file.read_bytes())["wire"])
    told = orjson.loads(re.findall(rb'"timings":(\{[^}]*\})', wire)[-1])
    (line,) = decode_file(file)
    assert line["tpot_ms"] == pytest.approx(told["predicted_ms"] / (told["predicted_n"] - 1), rel=0.1)
