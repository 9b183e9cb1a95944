"""How each dialect's bodies look, for tests of what holds for all of them: events in, pieces of a body out.

A dialect that is not there yet is left out, so its shape can stand here first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from harness.wire import DIALECTS

Event = dict[str, Any]


def sse(event: Event) -> bytes:
    return b"data: " + orjson.dumps(event, option=orjson.OPT_NON_STR_KEYS) + b"\n\n"


def named_sse(event: Event) -> bytes:
    return b"event: %s\n%s" % (str(event.get("type")).encode("utf-8", "replace"), sse(event))


def line(event: Event) -> bytes:
    return orjson.dumps(event, option=orjson.OPT_NON_STR_KEYS) + b"\n"


def element(event: Event) -> bytes:
    return orjson.dumps(event, option=orjson.OPT_NON_STR_KEYS)


@dataclass(frozen=True)
class Shape:
    """text: an output event that carries a text. others: more events, with and without output.

    silent: what may stand between events; broken: an event that is no JSON; opening, between: of arrays.
    endless: the beginning of an event without an end.
    """

    dialect: str
    text: Callable[[str], Event]
    others: tuple[Event, ...]
    frame: Callable[[Event], bytes] = sse
    silent: tuple[bytes, ...] = (b":\n\n", b"data:\n\n", b"event: ping\n\n")
    broken: bytes = b"data: {\n\n"
    opening: bytes = b""
    between: bytes = b""
    endless: bytes = b"data: "

    def body(self, frames: list[bytes]) -> bytes:
        return self.opening + self.between.join(frames)


def _delta(**fields: Any) -> Event:
    return {"id": "c", "choices": [{"index": 0, "delta": fields}]}


def _candidate(*parts: Event, **more: Any) -> Event:
    return {"candidates": [{"content": {"parts": list(parts)}, "index": 0}], **more}


_CHAT = (
    _delta(),
    _delta(reasoning="r", content=None),
    _delta(tool_calls=[{"index": 0, "id": "t", "function": {"name": "f", "arguments": "{"}}]),
    _delta(tool_calls=[{"function": {"name": "f", "arguments": "{}"}}]),
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "x_groq": {"usage": {"queue_time": 1}}},
    {"error": {"message": "broken"}},
)
_LEGACY = (
    {"choices": [{"index": 0, "text": ""}]},
    {"choices": [{"index": 1, "text": "b"}]},
    {
        "choices": [{"text": "", "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    },
)
_LLAMACPP = (
    {"content": "", "tokens": [0], "stop": False, "prompt_progress": {"total": 7, "processed": 3}},
    {"content": "é", "tokens": [1, 2], "stop": False},
    {"content": "b", "tokens": [1], "stop": False, "tokens_predicted": 4, "tokens_evaluated": 7},
    {
        "content": "",
        "tokens": [],
        "stop": True,
        "stop_type": "eos",
        "timings": {"cache_n": 1, "prompt_ms": 2},
    },
    {"error": {"message": "broken", "code": 500}},
)
_OLLAMA = (
    {"message": {"role": "assistant", "content": ""}, "done": False},
    {"message": {"content": "", "thinking": "r"}, "done": False},
    {"message": {"content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}, "done": False},
    {"response": "b", "done": False},
    {"error": "broken"},
    {"message": {"content": ""}, "done": True, "done_reason": "stop", "eval_count": 3, "eval_duration": 9},
)
_GEMINI = (
    _candidate({"text": "t", "thought": True}, usageMetadata={"thoughtsTokenCount": 5}),
    _candidate({"functionCall": {"name": "f", "args": {"x": [1, "]}"]}}}),
    _candidate({"text": ""}, usageMetadata={"promptTokenCount": 3, "candidatesTokenCount": 2}),
    {"candidates": [{"finishReason": "STOP", "index": 0}], "responseId": "r"},
    {"error": {"code": 503, "message": "broken", "status": "UNAVAILABLE"}},
)
_INTERACTIONS = (
    {"event_type": "interaction.created", "interaction": {"id": "i", "status": "in_progress"}},
    {"event_type": "step.start", "index": 1, "step": {"type": "function_call", "id": "t", "name": "f"}},
    {"event_type": "step.delta", "index": 1, "delta": {"type": "arguments_delta", "arguments": "{}"}},
    {"event_type": "step.delta", "index": 2, "delta": {"type": "thought_summary", "content": {"text": "s"}}},
    {"event_type": "error", "error": {"message": "broken"}},
    {"event_type": "interaction.completed", "interaction": {"id": "i", "status": "completed"}},
)

_ALL = {
    "openai-chat": Shape("openai-chat", lambda said: _delta(content=said), _CHAT),
    "mistral-fim": Shape("mistral-fim", lambda said: _delta(content=said), _CHAT),
    "openai-completions": Shape(
        "openai-completions", lambda said: {"choices": [{"index": 0, "text": said}]}, _LEGACY
    ),
    "llamacpp": Shape("llamacpp", lambda said: {"content": said, "stop": False}, _LLAMACPP),
    "ollama": Shape(
        "ollama",
        lambda said: {"message": {"role": "assistant", "content": said}, "done": False},
        _OLLAMA,
        frame=line,
        silent=(b"\n", b" \n"),
        broken=b"{\n",
        endless=b'{"message":"',
    ),
    "gemini": Shape("gemini", lambda said: _candidate({"text": said}), _GEMINI),
    "gemini, an array": Shape(
        "gemini",
        lambda said: _candidate({"text": said}),
        _GEMINI,
        frame=element,
        silent=(),
        broken=b"{]",
        opening=b"[",
        between=b",\n",
        endless=b'[{"candidates":"',
    ),
    "gemini, interactions": Shape(
        "gemini",
        lambda said: {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": said}},
        _INTERACTIONS,
    ),
    "openai-responses": Shape(
        "openai-responses",
        lambda said: {
            "type": "response.output_text.delta",
            "output_index": 0,
            "content_index": 0,
            "delta": said,
        },
        ({"type": "response.completed", "response": {"status": "completed"}},),
        frame=named_sse,
    ),
    "anthropic": Shape(
        "anthropic",
        lambda said: {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": said},
        },
        ({"type": "message_stop"},),
        frame=named_sse,
    ),
}

SHAPES = {name: shape for name, shape in _ALL.items() if shape.dialect in DIALECTS}
