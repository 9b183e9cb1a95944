"""Dialect ollama: what its lines mean, and what is sent."""

from dataclasses import replace

import orjson
import pytest

from harness.values import Block, EventKind, Progress, Request, Role, ToolCall, Usage
from harness.wire import DIALECTS
from harness.wire.words import words

DONE = {
    "done": True,
    "done_reason": "stop",
    "total_duration": 4_000_000_000,
    "load_duration": 500_000_000,
    "prompt_eval_count": 26,
    "prompt_eval_duration": 250_000_000,
    "eval_count": 12,
    "eval_duration": 3_000_000_000,
}


def line(**fields):
    return orjson.dumps(fields) + b"\n"


def said(content, **more):
    return line(model="m", message={"role": "assistant", "content": content, **more}, done=False)


def done(**changes):
    return line(model="m", message={"role": "assistant", "content": ""}, **{**DONE, **changes})


def answer(*pieces, ended=True):
    decoder = DIALECTS["ollama"].decoder()
    for at, piece in enumerate(pieces, start=1):
        decoder.feed(piece, at)
    return decoder.answer(ended=ended)


def kinds(told):
    return [tuple(EventKind)[kind] for kind in told.kinds]


def test_a_stream():
    told = answer(said(""), said("a"), b"\n", said("b"), done())
    assert (told.text, told.finish_reason, told.error, told.warnings) == ("ab", "stop", None, ())
    assert (list(told.high_ns), told.done_ns) == ([2, 4], 5)
    assert told.usage == Usage(input_tokens=26, output_tokens=12)
    assert told.server_timing == pytest.approx(
        {"load_s": 0.5, "prompt_s": 0.25, "completion_s": 3.0, "total_s": 4.0}
    )


def test_lines_of_one_read_and_a_character_in_two():
    body = said("é") + said("b") + done()
    at = body.index("é".encode()) + 1
    told = answer(body[:at], body[at:])
    assert (told.text, list(told.high_ns), told.done_ns) == ("éb", [2, 2], 2)


def test_the_done_line_ends_the_call():
    decoder = DIALECTS["ollama"].decoder()
    assert [decoder.feed(said(text), 1) for text in ("", "a")] == [Progress.SILENT, Progress.OUTPUT]
    assert decoder.feed(done(), 2) is Progress.DONE


def test_thinking_is_reasoning_that_is_shown():
    told = answer(said("", thinking="hm"), said("", reasoning_content="m"), said("a", thinking=""), done())
    assert (told.reasoning, told.text, kinds(told)) == ("hmm", "a", ["reasoning", "reasoning", "text"])
    assert told.reasoning_summary is False


def test_tool_calls_come_whole_and_stay_apart():
    calls = [{"function": {"index": i, "name": "f", "arguments": {}}} for i in range(2)]
    more = [{"id": "call_7", "function": {"name": "g", "arguments": {"a": [1]}}}]
    told = answer(said("", tool_calls=calls), said("", tool_calls=more), done())
    assert told.tool_calls == (
        ToolCall("", "f", "{}"),
        ToolCall("", "f", "{}"),
        ToolCall("call_7", "g", '{"a":[1]}'),
    )
    assert (kinds(told), told.first_tool) == (["tool", "tool"], 0)


def test_generate_has_the_text_at_the_top():
    told = answer(
        line(response="a", done=False),
        line(response="", thinking="t", done=False),
        line(response="b", **DONE),
    )
    assert (told.text, told.reasoning, list(told.high_ns)) == ("ab", "t", [1, 2, 3])


def test_an_error_in_the_stream():
    told = answer(said("a"), line(error="an error was encountered while running the model"))
    assert (told.error.kind, told.text) == ("stream_error", "a")
    assert told.error.message == "an error was encountered while running the model"


def test_a_last_line_without_its_end_is_read():
    told = answer(said("a"), done()[:-1])
    assert (told.error, told.usage, told.done_ns) == (None, Usage(26, 12), None)


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        pytest.param([said("a")], "truncated", id="no-done-line"),
        pytest.param([said("a"), done()[:40]], "malformed_event", id="half-a-line"),
        pytest.param([said("a"), b"oops\n", done()], "malformed_event", id="no-JSON"),
        pytest.param([b"\n"], "empty_response", id="nothing"),
    ],
)
def test_what_is_wrong_with_a_body(pieces, kind):
    assert answer(*pieces).error.kind == kind


def test_numbers_that_cannot_be_true_are_left_out():
    told = answer(said("a"), done(total_duration=-1, load_duration="5", eval_duration=None, eval_count=True))
    assert told.server_timing == pytest.approx({"prompt_s": 0.25})
    assert (told.usage, told.warnings) == (Usage(input_tokens=26), ("implausible_usage",))


def test_an_answer_sent_at_once_keeps_its_text():
    whole = orjson.dumps({"message": {"role": "assistant", "content": "hi"}, **DONE})
    told = DIALECTS["ollama"].unstreamed(status=200, content_type="application/json", body=whole)
    assert (told.text, told.error.kind, told.usage) == ("hi", "not_streamed", Usage(26, 12))


def test_a_refusal_has_the_servers_words():
    said = b'{"error":"model \\"x\\" not found, try pulling it first"}'
    told = DIALECTS["ollama"].unstreamed(status=404, content_type="application/json", body=said)
    assert told.error.message == 'HTTP 404: model "x" not found, try pulling it first'


CALLS = (ToolCall("t1", "read", '{"a":1}'), ToolCall("t2", "find", "no JSON"))
REQUEST = Request(
    model="m",
    blocks=(
        Block("s", 2, Role.SYSTEM),
        Block("u", 1, Role.USER),
        Block("a", 0, Role.ASSISTANT, text="", tool_calls=CALLS),
        Block("r1", 1, Role.TOOL, answers="t1"),
        Block("r2", 0, Role.TOOL, answers="t2", text="found"),
    ),
    max_tokens=9,
    tools=("read",),
)


def sent(**changes):
    request = DIALECTS["ollama"].encode(replace(REQUEST, **changes))
    return request.path, orjson.loads(request.body)


def test_what_is_sent():
    path, body = sent()
    (tool,) = body.pop("tools")
    assert (path, tool["function"]["name"]) == ("/api/chat", "read")
    assert body == {
        "model": "m",
        "stream": True,
        "options": {"num_predict": 9},
        "messages": [
            {"role": "system", "content": words("s", 2)},
            {"role": "user", "content": words("u", 1)},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"function": {"name": "read", "arguments": {"a": 1}}},
                    {"function": {"name": "find", "arguments": {"input": "no JSON"}}},
                ],
            },
            {"role": "tool", "tool_name": "read", "content": words("r1", 1)},
            {"role": "tool", "tool_name": "find", "content": "found"},
        ],
    }


def test_options_are_merged():
    _, body = sent(extra_body={"options": {"num_ctx": 32768}, "keep_alive": -1}, x_plan={"k": 1})
    assert body["options"] == {"num_predict": 9, "num_ctx": 32768}
    assert (body["keep_alive"], body["x_plan"]) == (-1, {"k": 1})


def test_a_suffix_asks_for_the_text_between():
    path, body = sent(blocks=REQUEST.blocks[:2], suffix=(Block("x", 0, Role.USER, text="}"),))
    assert (path, body["prompt"], body["suffix"]) == (
        "/api/generate",
        f"{words('s', 2)} {words('u', 1)}",
        "}",
    )
    assert "messages" not in body
