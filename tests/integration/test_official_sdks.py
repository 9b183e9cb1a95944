"""Our decoders and the official SDKs, fed the same bytes, understand the same."""

import base64
import json
from contextlib import contextmanager
from pathlib import Path

import anthropic
import openai
import pytest

from harness.decode import decode_file
from harness.wire import DIALECTS
from tests.replaying import STREAM, replaying

DATA = Path(__file__).parents[1] / "data"
HI = [{"role": "user", "content": "hi"}]


def nothing_yet():
    return {"text": "", "reasoning": "", "calls": {}, "finish": None, "usage": None}


@contextmanager
def openai_client(url):
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=10) as client:
        yield client


def chat(url, told):
    with openai_client(url) as client:
        for chunk in client.chat.completions.create(model="m", messages=HI, stream=True):
            if chunk.usage and chunk.usage.completion_tokens is not None:
                told["usage"] = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
            for choice in chunk.choices or ():
                delta = choice.delta
                if choice.index or delta is None:
                    continue
                told["text"] += delta.content or delta.refusal or ""
                told["reasoning"] += (
                    getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None) or ""
                )
                told["finish"] = choice.finish_reason or told["finish"]
                for call in delta.tool_calls or ():
                    before = told["calls"].get(call.index, "")
                    told["calls"][call.index] = before + (call.function.arguments or "")


def completions(url, told):
    with openai_client(url) as client:
        for chunk in client.completions.create(model="m", prompt="hi", stream=True):
            if chunk.usage:
                told["usage"] = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
            for choice in chunk.choices:
                told["text"] += choice.text
                told["finish"] = choice.finish_reason or told["finish"]


def responses(url, told):
    with openai_client(url) as client:
        for event in client.responses.create(model="m", input="hi", stream=True):
            kind = event.type
            if kind == "response.output_text.delta":
                told["text"] += event.delta
            elif kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
                told["reasoning"] += event.delta
            elif kind == "response.output_item.done" and event.item.type == "function_call":
                told["calls"][len(told["calls"])] = event.item.arguments
            elif kind in ("response.completed", "response.incomplete", "response.failed"):
                told["finish"] = kind.removeprefix("response.")
                if event.response.usage:
                    told["usage"] = (event.response.usage.input_tokens, event.response.usage.output_tokens)


def messages(url, told):
    with (
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=10) as client,
        client.messages.stream(model="m", max_tokens=9, messages=HI) as stream,
    ):
        try:
            for _ in stream:
                pass
        finally:
            took(stream.current_message_snapshot, told)


def took(message, told):
    for block in message.content:
        told["text"] += block.text if block.type == "text" else ""
        told["reasoning"] += block.thinking if block.type == "thinking" else ""
        if block.type == "tool_use":
            told["calls"][len(told["calls"])] = block.input
    told["finish"] = message.stop_reason
    usage = message.usage
    cached = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
    told["usage"] = (usage.input_tokens + cached, usage.output_tokens)


SDKS = {
    "openai-chat": chat,
    "openai-completions": completions,
    "openai-responses": responses,
    "anthropic": messages,
}
READ = {name: sdk for name, sdk in SDKS.items() if name in DIALECTS}


def understood(raw, dialect):
    """What the SDK makes of the bytes, and what it raised."""
    told = nothing_yet()
    with replaying(raw) as url:
        try:
            READ[dialect](url if dialect == "anthropic" else f"{url}/v1", told)
        except (openai.OpenAIError, anthropic.AnthropicError, ValueError, AttributeError) as problem:
            return told, problem
        except Exception as problem:
            if type(problem).__name__ != "RemoteProtocolError":  # of the SDKs' own HTTP library
                raise
            return told, problem
    return told, None


def in_their_words(ours):
    calls = [call["arguments"] for call in ours["tool_calls"]]
    if ours["dialect"] == "anthropic":
        calls = [json.loads(said or "{}") for said in calls]
    usage = ours["usage"] and (ours["usage"].get("input_tokens"), ours["usage"].get("output_tokens"))
    return {
        "text": ours["text"],
        "reasoning": ours["reasoning"],
        "calls": dict(enumerate(calls)),
        "finish": ours["finish_reason"],
        "usage": usage,
    }


def raw_of(recording):
    return b"".join(base64.b64decode(data) for _, data in recording["wire"])


RECORDED = {}
for file in sorted((DATA / "recordings").glob("*.json")):
    (line,) = decode_file(file)
    if line["dialect"] in READ and line["status"] != 101:
        RECORDED[file.stem] = (line, raw_of(json.loads(file.read_text())))
STREAMS = {
    name: pair
    for name, pair in RECORDED.items()
    if pair[0]["status"] == 200 and (pair[0]["error"] or {}).get("kind") != "not_streamed"
}
MISREAD = {
    "P14": "raises at an event without data",
    "P16": "drops a last event without its blank line",
    "P34": "has no index to tell two calls apart by",
    "P66": "drops the event behind a byte order mark",
}
"""Cases that the SDKs themselves get wrong; they were written for that."""

CASES = [
    case
    for case in json.loads((DATA / "sse_cases.json").read_text())
    if case["protocol"] in READ and case["id"] not in MISREAD
]
DECODED = {told["id"]: told for told in decode_file(DATA / "sse_cases.json")}
GIVEN_UP = {
    "llamacpp_agent_error_midstream",
    "llmock_chat_disconnect",
    "llmock_messages_disconnect",
    "llmock_messages_malformed",
}
REFUSALS = {name: pair for name, pair in RECORDED.items() if pair[0]["status"] >= 400}


def whole_of(case):
    pieces = (base64.b64decode(c["bytes_b64"]) * c.get("repeat", 1) for c in case["chunks"])
    return STREAM + b"".join(pieces)


def agree(ours, raw):
    """Compare; where the SDK gives up, what it had is the beginning of ours, and ours has failed too."""
    sdk, problem = understood(raw, ours["dialect"])
    mine = in_their_words(ours)
    if problem is None:
        assert mine == sdk
        return None
    assert not ours["ok"], problem
    assert mine["text"].startswith(sdk["text"])
    if ours["error"]["kind"] == "stream_error" and isinstance(problem, openai.APIError):
        assert problem.message in ours["error"]["message"]
    return problem


@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_understood_as_by_the_sdk(name):
    assert (agree(*STREAMS[name]) is not None) is (name in GIVEN_UP)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_cases_are_understood_as_by_the_sdk(case):
    agree(DECODED[case["id"]], whole_of(case))


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_are_status_errors_for_both(name):
    ours, raw = REFUSALS[name]
    _, problem = understood(raw, ours["dialect"])
    assert isinstance(problem, openai.APIStatusError | anthropic.APIStatusError)
    assert (problem.status_code, ours["error"]["kind"]) == (ours["status"], "http_error")
    body = problem.body.get("error", problem.body)
    assert body["message"] in ours["error"]["message"]


def test_there_are_as_many_as_there_should_be():
    assert len(STREAMS) >= 25
    assert len(REFUSALS) >= 9
    assert len(CASES) >= 39
