"""Dialect openai-responses: what is sent, over HTTP and over a WebSocket."""

from dataclasses import replace

import orjson
import pytest

from harness.values import Block, Request, Role, ToolCall
from harness.wire import DIALECTS
from harness.wire.words import words

DIALECT = DIALECTS["openai-responses"]
REQUEST = Request(model="m", blocks=(Block("u", 3, Role.USER),), max_tokens=9)


def body(request):
    return orjson.loads(DIALECT.encode(request).body)


def test_a_plain_request():
    assert DIALECT.encode(REQUEST).path == "/responses"
    assert body(REQUEST) == {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": words("u", 3)}],
        "stream": True,
        "max_output_tokens": 9,
        "store": False,
    }


def test_blocks_become_items():
    calls = (ToolCall("t1", "read", '{"a":1}'), ToolCall("t2", "find", '{"a"'))
    blocks = (
        Block("s", 2, Role.SYSTEM),
        Block("u", 1, Role.USER, text='say "hi"'),
        Block("a1", 2, Role.ASSISTANT),
        Block("a2", 0, Role.ASSISTANT, tool_calls=calls),
        Block("r1", 2, Role.TOOL, answers="t1"),
        Block("r2", 1, Role.TOOL, answers="t2", text=""),
        Block("a3", 0, Role.ASSISTANT, text="", tool_calls=calls[:1]),
    )
    said = {"type": "message", "role": "assistant", "content": words("a1", 2)}
    first = {"type": "function_call", "call_id": "t1", "name": "read", "arguments": '{"a":1}'}
    assert body(replace(REQUEST, blocks=blocks))["input"] == [
        {"type": "message", "role": "system", "content": words("s", 2)},
        {"type": "message", "role": "user", "content": 'say "hi"'},
        said,
        first,
        {"type": "function_call", "call_id": "t2", "name": "find", "arguments": '{"a"'},
        {"type": "function_call_output", "call_id": "t1", "output": words("r1", 2)},
        {"type": "function_call_output", "call_id": "t2", "output": ""},
        first,
    ]


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        pytest.param({"service_tier": "ultrafast"}, {"service_tier": "ultrafast"}, id="tier"),
        pytest.param({"x_plan": {"k": 1}}, {"x_plan": {"k": 1}}, id="plan-for-our-simulator"),
        pytest.param({"min_tokens": 9}, {"min_tokens": 9, "ignore_eos": True}, id="forced-length"),
        pytest.param({"previous_response_id": "r1"}, {"previous_response_id": "r1"}, id="what-came-before"),
        pytest.param(
            {"extra_body": {"store": True, "reasoning": {"effort": "low"}}},
            {"store": True, "reasoning": {"effort": "low"}},
            id="extra-wins",
        ),
    ],
)
def test_options(changes, fields):
    assert body(replace(REQUEST, **changes)) == body(REQUEST) | fields


def test_tools_are_flat():
    (tool,) = body(replace(REQUEST, tools=("read",)))["tools"]
    assert (tool["type"], tool["name"], tool["strict"]) == ("function", "read", False)
    assert tool["parameters"]["type"] == "object"


@pytest.mark.parametrize("extra", [{}, {"stream": True}, {"a": '"stream":true,'}])
def test_the_message_of_a_websocket_is_the_body_without_stream(extra):
    encoded = DIALECT.encode(replace(REQUEST, extra_body=extra, previous_response_id="r1")).body
    rest = {key: value for key, value in orjson.loads(encoded).items() if key != "stream"}
    assert orjson.loads(DIALECT.as_message(encoded, "")) == {"type": "response.create", **rest}
    sent = orjson.loads(DIALECT.as_message(encoded, 'a"1'))
    assert sent == {"type": "response.create", "stream_id": 'a"1', **rest}


@pytest.mark.parametrize(
    ("message", "lane"),
    [
        (b'{"type":"x","stream_id":"a"}', "a"),
        (b"{}", ""),
        (b'{"stream_id":5}', ""),
        (b"junk", ""),
        (b"[]", ""),
    ],
)
def test_the_lane_of_a_message(message, lane):
    assert DIALECT.lane_of(message) == lane
