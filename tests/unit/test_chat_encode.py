"""Dialect openai-chat: what is sent."""

from dataclasses import replace

import orjson
import pytest

from harness.values import Block, Request, Role, ToolCall
from harness.wire import DIALECTS
from harness.wire.chat import encode
from harness.wire.words import words

REQUEST = Request(model="m", blocks=(Block("u", 3, Role.USER),), max_tokens=9)


def body(request):
    return orjson.loads(encode(request).body)


def test_a_plain_request():
    assert encode(REQUEST).path == "/chat/completions"
    assert body(REQUEST) == {
        "model": "m",
        "messages": [{"role": "user", "content": words("u", 3)}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 9,
    }


def test_blocks_become_messages():
    calls = (ToolCall("t1", "read", '{"a":1}'), ToolCall("t2", "find", "{}"))
    blocks = (
        Block("s1", 2, Role.SYSTEM),
        Block("s2", 2, Role.SYSTEM),
        Block("u", 1, Role.USER, text='say "hi"'),
        Block("a1", 2, Role.ASSISTANT),
        Block("a2", 0, Role.ASSISTANT, tool_calls=calls[:1]),
        Block("a3", 0, Role.ASSISTANT, text="", tool_calls=calls[1:]),
        Block("r1", 2, Role.TOOL, answers="t1"),
        Block("r2", 1, Role.TOOL, answers="t2", text="found"),
    )
    assert body(replace(REQUEST, blocks=blocks))["messages"] == [
        {"role": "system", "content": f"{words('s1', 2)} {words('s2', 2)}"},
        {"role": "user", "content": 'say "hi"'},
        {
            "role": "assistant",
            "content": words("a1", 2),
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "read", "arguments": '{"a":1}'}},
                {"id": "t2", "type": "function", "function": {"name": "find", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": words("r1", 2)},
        {"role": "tool", "tool_call_id": "t2", "content": "found"},
    ]


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        pytest.param({"min_tokens": 9}, {"min_tokens": 9, "ignore_eos": True}, id="forced-length"),
        pytest.param({"service_tier": "fast"}, {"service_tier": "fast"}, id="tier"),
        pytest.param({"x_plan": {"k": 1}}, {"x_plan": {"k": 1}}, id="plan-for-our-simulator"),
        pytest.param(
            {"extra_body": {"max_tokens": 5, "top_k": 1}}, {"max_tokens": 5, "top_k": 1}, id="extra-wins"
        ),
        pytest.param(
            {"extra_body": {"stream_options": {"continuous_usage_stats": True}}},
            {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
            id="options-are-merged",
        ),
    ],
)
def test_options(changes, fields):
    assert body(replace(REQUEST, **changes)) == body(REQUEST) | fields


def test_the_limit_goes_by_its_new_name_where_asked():
    sent = body(replace(REQUEST, extra_body={"max_completion_tokens": True}))
    assert sent["max_completion_tokens"] == 9
    assert "max_tokens" not in sent


def test_tools_are_sent_as_function_schemas():
    first, second = body(replace(REQUEST, tools=("read", "find")))["tools"]
    assert first["type"] == "function"
    assert (first["function"]["name"], second["function"]["name"]) == ("read", "find")
    assert first["function"]["parameters"]["type"] == "object"


def test_the_dialect_is_registered():
    dialect = DIALECTS["openai-chat"]
    assert dialect.encode(REQUEST).path == "/chat/completions"
    assert dialect.stream_types == ("text/event-stream",)
    assert dialect.decoder().answer(ended=False).text == ""
    assert dialect.unstreamed(status=500, content_type=None, body=b"").error.kind == "http_error"
