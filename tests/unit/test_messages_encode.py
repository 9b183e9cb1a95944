"""Dialect anthropic: what is sent."""

from dataclasses import replace

import orjson
import pytest

from harness.values import Block, Request, Role, ToolCall
from harness.wire import DIALECTS
from harness.wire.words import words

DIALECT = DIALECTS["anthropic"]
REQUEST = Request(model="m", blocks=(Block("u", 3, Role.USER),), max_tokens=9)


def body(request):
    return orjson.loads(DIALECT.encode(request).body)


def said(text):
    return {"type": "text", "text": text}


def test_a_plain_request():
    assert DIALECT.encode(REQUEST).path == "/messages"
    assert body(REQUEST) == {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": [said(words("u", 3))]}],
        "stream": True,
    }


def test_keys_and_version_stand_in_headers_of_their_own():
    assert DIALECT.headers("k") == {"x-api-key": "k"}
    assert DIALECT.fixed_headers == (("anthropic-version", "2023-06-01"),)


def test_blocks_become_turns():
    calls = (ToolCall("t1", "read", '{"a":1}'), ToolCall("t2", "find", '{"a"'))
    blocks = (
        Block("s1", 2, Role.SYSTEM),
        Block("s2", 2, Role.SYSTEM),
        Block("u", 1, Role.USER, text='say "hi"'),
        Block("a1", 2, Role.ASSISTANT),
        Block("a2", 0, Role.ASSISTANT, tool_calls=calls),
        Block("r1", 2, Role.TOOL, answers="t1"),
        Block("r2", 1, Role.TOOL, answers="t2", text="found"),
        Block("u2", 1, Role.USER),
        Block("a3", 0, Role.ASSISTANT, text="", tool_calls=(ToolCall("t3", "stop", ""),)),
        Block("a4", 0, Role.ASSISTANT, text=""),
    )
    told = body(replace(REQUEST, blocks=blocks))
    assert told["system"] == f"{words('s1', 2)} {words('s2', 2)}"
    assert told["messages"] == [
        {"role": "user", "content": [said('say "hi"')]},
        {
            "role": "assistant",
            "content": [
                said(words("a1", 2)),
                {"type": "tool_use", "id": "t1", "name": "read", "input": {"a": 1}},
                {"type": "tool_use", "id": "t2", "name": "find", "input": {"input": '{"a"'}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": words("r1", 2)},
                {"type": "tool_result", "tool_use_id": "t2", "content": "found"},
                said(words("u2", 1)),
            ],
        },
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t3", "name": "stop", "input": {}}]},
    ]


def test_a_turn_without_a_word_is_left_out():
    blocks = (Block("u", 1, Role.USER), Block("a", 0, Role.ASSISTANT, text=""), Block("s", 0, Role.SYSTEM))
    told = body(replace(REQUEST, blocks=blocks))
    assert (len(told["messages"]), "system" in told) == (1, False)


@pytest.mark.parametrize("arguments", ["{}", '{"a":1}', "[1]", "5", '"text"', "", '{"a":"\\ud800"}'])
def test_the_input_of_a_call_is_an_object_whatever_the_model_had_said(arguments):
    blocks = (Block("a", 0, Role.ASSISTANT, text="", tool_calls=(ToolCall("t", "f", arguments),)),)
    (use,) = body(replace(REQUEST, blocks=blocks))["messages"][0]["content"]
    assert type(use["input"]) is dict


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        pytest.param({"service_tier": "fast"}, {"speed": "fast"}, id="speed"),
        pytest.param({"service_tier": "standard"}, {"speed": "standard"}, id="no-speed"),
        pytest.param({"service_tier": "auto"}, {"service_tier": "auto"}, id="tier"),
        pytest.param({"service_tier": "standard_only"}, {"service_tier": "standard_only"}, id="no-tier"),
        pytest.param({"x_plan": {"k": 1}}, {"x_plan": {"k": 1}}, id="plan-for-our-simulator"),
        pytest.param({"min_tokens": 9}, {"min_tokens": 9, "ignore_eos": True}, id="forced-length"),
        pytest.param({"extra_body": {"max_tokens": 5}}, {"max_tokens": 5}, id="extra-wins"),
    ],
)
def test_options(changes, fields):
    assert body(replace(REQUEST, **changes)) == body(REQUEST) | fields


def test_tools_are_sent_with_their_schema():
    (tool,) = body(replace(REQUEST, tools=("read",)))["tools"]
    assert (sorted(tool), tool["name"]) == (["description", "input_schema", "name"], "read")
    assert tool["input_schema"]["type"] == "object"
