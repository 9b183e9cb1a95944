"""Recorded answers of real servers and others' mocks, against the recorder's own list of events."""

import base64
import json
from pathlib import Path

import pytest

from harness.decode import decode_file
from harness.recording import parse
from harness.wire import DIALECTS

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"

WAFER = (
    "The wafer keeps every weight next to the arithmetic, so a token needs no trip to distant memory."
    " Tab\tand emoji 🚀 survive, and so does ünïcode."
)
THOUGHT = "The user wants a short text. I will answer in two sentences."
ZERO = {"input_tokens": 0, "output_tokens": 0}


def completions(event):
    return event["choices"][0]["text"]


def chat(event):
    return event["choices"] and event["choices"][0]["delta"].get("content")


def llamacpp(event):
    return event["content"]


def ollama(event):
    return event["message"]["content"] or event["message"].get("reasoning_content")


def gemini(event):
    return event["candidates"][0]["content"]["parts"][0]["text"]


def interactions(event):
    return event.get("delta", {}).get("text")


@pytest.mark.parametrize(
    ("name", "says", "facts"),
    [
        ("lcp_completions", completions, {"n_content_events": 48, "finish_reason": "length", "usage": None}),
        (
            "lcp_completions_suffix_fim",
            completions,
            {"n_content_events": 32, "finish_reason": "length", "warnings": ["no_usage"]},
        ),
        (
            "tfserve_completions",
            completions,
            {"n_content_events": 40, "usage": {"input_tokens": 7, "output_tokens": 40}},
        ),
        (
            "llamacpp_completions_stream",
            completions,
            {
                "n_content_events": 64,
                "usage": {"input_tokens": 7, "output_tokens": 64, "cached_tokens": 0},
                "finish_reason": "length",
            },
        ),
        (
            "llamacpp_completion_native",  # its first two events are the prompt's progress
            llamacpp,
            {
                "n_content_events": 64,
                "tokens_per_event": [1] * 64,
                "usage": {"input_tokens": 7, "output_tokens": 64, "cached_tokens": 6},
                "finish_reason": "limit",
            },
        ),
        (
            "llamacpp_infill",
            llamacpp,
            {
                "n_content_events": 32,
                "tokens_per_event": [1] * 32,
                "usage": {"input_tokens": 27, "output_tokens": 32, "cached_tokens": 0},
                "text": "\n\n# This is a test of the `add` function.\ndef add(a, b):\n    return a + b\n\n"
                "add(1",
            },
        ),
        (
            "aimock_ollama_chat_ndjson",
            ollama,
            {"text": WAFER, "reasoning": THOUGHT, "finish_reason": "stop", "usage": ZERO},
        ),
        (
            "aimock_gemini_sse_text",
            gemini,
            {"text": WAFER, "reasoning": THOUGHT, "finish_reason": "STOP", "hidden_tokens": None},
        ),
        (
            "aimock_gemini_interactions",
            interactions,
            {"text": WAFER, "finish_reason": "completed", "request_id": "aimock-int-0", "usage": ZERO},
        ),
        (
            "llmock_gemini_ok",
            gemini,
            {
                "text": "Simulated answer from gemini-3.8-flash for 'hello there'.",
                "usage": {"input_tokens": 2, "output_tokens": 14},
            },
        ),
        ("llmock_mistral_ok", chat, {"text": "Hello! LLMock handled this request for gpt-4o."}),
    ],
)
def test_a_recording(name, says, facts):
    path = RECORDINGS / f"{name}.json"
    listed = json.loads(path.read_text())["response"]["events_ms"]
    events = [(at, json.loads(text.removeprefix("data: "))) for at, text in listed if "[DONE]" not in text]
    with_output = [(at, event) for at, event in events if says(event)]
    (told,) = decode_file(path)
    assert told["event_ms"] == pytest.approx([at for at, _ in with_output], abs=1e-3)
    assert told["reasoning"] + told["text"] == "".join(says(event) for _, event in with_output)
    assert (told["status"], told["ok"], told["malformed_events"]) == (200, True, 0)
    assert {key: told[key] for key in facts} == facts


def answer_of(name, dialect):
    recording = parse(json.loads((RECORDINGS / f"{name}.json").read_text()))
    decoder = DIALECTS[dialect].decoder()
    for at, data in recording.reads:
        decoder.feed(data, at)
    return decoder.answer(ended=recording.whole)


@pytest.mark.parametrize(
    ("name", "dialect", "timing"),
    [
        ("llamacpp_completion_native", "llamacpp", {"prompt_s": 0.008674, "completion_s": 0.551901}),
        ("llamacpp_infill", "llamacpp", {"prompt_s": 0.09296, "completion_s": 0.277468}),
        ("llamacpp_chat_usage_timings", "openai-chat", None),
        ("lcp_completions", "openai-completions", {}),
    ],
)
def test_times_that_the_server_told(name, dialect, timing):
    """As the last `timings` in the bytes say."""
    wire = json.loads((RECORDINGS / f"{name}.json").read_text())["wire"]
    body = b"".join(base64.b64decode(data) for _, data in wire)
    if timing is None:
        last = json.loads(body[body.rindex(b'"timings":') + 10 :].split(b"}")[0] + b"}")
        timing = {"prompt_s": last["prompt_ms"] / 1e3, "completion_s": last["predicted_ms"] / 1e3}
    assert answer_of(name, dialect).server_timing == pytest.approx(timing)
