"""Dialect gemini: what is sent to streamGenerateContent, and to the Interactions API."""

from dataclasses import replace

import orjson
import pytest

from harness.values import Block, Request, Role, ToolCall
from harness.wire import DIALECTS
from harness.wire.words import words

CALLS = (ToolCall("t1", "read", '{"a":1}'), ToolCall("t2", "find", "no JSON"))
REQUEST = Request(
    model="gemini-3.8-flash",
    blocks=(
        Block("s1", 1, Role.SYSTEM),
        Block("s2", 1, Role.SYSTEM),
        Block("u1", 2, Role.USER),
        Block("u2", 0, Role.USER, text="go"),
        Block("a", 0, Role.ASSISTANT, text="", tool_calls=CALLS),
        Block("r1", 1, Role.TOOL, answers="t1"),
        Block("r2", 0, Role.TOOL, answers="t2", text="found"),
        Block("b", 1, Role.ASSISTANT, tool_calls=CALLS[:1]),
    ),
    max_tokens=9,
    tools=("read",),
)
SCHEMA = {
    "name": "read",
    "description": "Run read on the input.",
    "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
}
UNSIGNED = "skip_thought_signature_validator"
INTERACTIONS = {"interactions": True}


def sent(**changes):
    request = DIALECTS["gemini"].encode(replace(REQUEST, **changes))
    return request.path, orjson.loads(request.body)


def test_what_is_sent():
    path, body = sent()
    assert path == "/models/gemini-3.8-flash:streamGenerateContent?alt=sse"
    assert body == {
        "systemInstruction": {"parts": [{"text": f"{words('s1', 1)} {words('s2', 1)}"}]},
        "contents": [
            {"role": "user", "parts": [{"text": f"{words('u1', 2)} go"}]},
            {
                "role": "model",
                "parts": [
                    {"functionCall": {"name": "read", "args": {"a": 1}}, "thoughtSignature": UNSIGNED},
                    {"functionCall": {"name": "find", "args": {"input": "no JSON"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "read", "response": {"result": words("r1", 1)}}},
                    {"functionResponse": {"name": "find", "response": {"result": "found"}}},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": words("b", 1)},
                    {"functionCall": {"name": "read", "args": {"a": 1}}, "thoughtSignature": UNSIGNED},
                ],
            },
        ],
        "generationConfig": {"maxOutputTokens": 9},
        "tools": [{"functionDeclarations": [SCHEMA]}],
    }


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        pytest.param({"service_tier": "priority"}, {"serviceTier": "priority"}, id="tier"),
        pytest.param({"min_tokens": 9}, {}, id="no-forced-length"),
        pytest.param({"x_plan": {"k": 1}}, {"x_plan": {"k": 1}}, id="plan"),
        pytest.param(
            {"extra_body": {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}},
            {"generationConfig": {"maxOutputTokens": 9, "thinkingConfig": {"thinkingBudget": 0}}},
            id="options-are-merged",
        ),
    ],
)
def test_options(changes, fields):
    assert sent(**changes)[1] == sent()[1] | fields


@pytest.mark.parametrize(
    ("model", "path"),
    [("tunedModels/mine", "/tunedModels/mine"), ("a b?c", "/models/a%20b%3Fc")],
)
def test_a_models_name_is_a_path(model, path):
    assert sent(model=model)[0] == f"{path}:streamGenerateContent?alt=sse"


def test_nothing_is_sent_that_is_not_there():
    _, body = sent(blocks=REQUEST.blocks[2:3], tools=())
    assert set(body) == {"contents", "generationConfig"}


def test_what_is_sent_to_the_interactions():
    path, body = sent(extra_body={**INTERACTIONS, "store": False}, service_tier="flex", x_plan={"k": 1})
    assert path == "/interactions"
    assert body == {
        "model": "gemini-3.8-flash",
        "stream": True,
        "system_instruction": f"{words('s1', 1)} {words('s2', 1)}",
        "input": [
            {"type": "user_input", "content": [{"type": "text", "text": f"{words('u1', 2)} go"}]},
            {"type": "function_call", "id": "t1", "name": "read", "arguments": {"a": 1}},
            {"type": "function_call", "id": "t2", "name": "find", "arguments": {"input": "no JSON"}},
            {"type": "function_result", "call_id": "t1", "name": "read", "result": words("r1", 1)},
            {"type": "function_result", "call_id": "t2", "name": "find", "result": "found"},
            {"type": "model_output", "content": [{"type": "text", "text": words("b", 1)}]},
            {"type": "function_call", "id": "t1", "name": "read", "arguments": {"a": 1}},
        ],
        "generation_config": {"max_output_tokens": 9},
        "tools": [{"type": "function", **SCHEMA}],
        "service_tier": "flex",
        "store": False,
        "x_plan": {"k": 1},
    }


def test_an_interaction_goes_on_from_the_last_one():
    _, body = sent(extra_body=INTERACTIONS, previous_response_id="i1", blocks=REQUEST.blocks[2:3], tools=())
    assert (body["previous_interaction_id"], set(body)) == (
        "i1",
        {"model", "stream", "input", "generation_config", "previous_interaction_id"},
    )
