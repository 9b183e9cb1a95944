"""Gemini's generateContent: each event a whole response with a piece of the text. Pure.

Streamed as server-sent events with `alt=sse`, else as one JSON array. Calls come whole, usage in every event.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from harness.simulator.asked import (
    Asked,
    Finish,
    Place,
    count,
    joined,
    list_in,
    mapping,
    plan_of,
    prefixes_of,
    reserved,
    text_in,
)
from harness.simulator.dialects.speech import EVENT_STREAM, Speech
from harness.simulator.output import Output, Piece, Sent, WholeCalls, arguments_of
from harness.simulator.refusal import Refusal
from harness.values import EventKind

FINISH = {Finish.STOP: "STOP", Finish.LENGTH: "MAX_TOKENS", Finish.TOOLS: "STOP"}
STREAM = "streamGenerateContent"

_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
_TRAFFIC = {"priority": "ON_DEMAND_PRIORITY", "flex": "ON_DEMAND_FLEX"}
_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


def parse(body: Mapping[str, Any], place: Place) -> Asked:
    """Check the body of `POST .../models/M:streamGenerateContent` or `:generateContent`."""
    messages = []
    if system := mapping(body, "systemInstruction"):
        messages.append(("system", _text(system)))
    for number, content in enumerate(list_in(body, "contents")):
        try:
            messages.append((str(content.get("role")), _text(content)))
        except (AttributeError, KeyError, TypeError):
            raise ValueError(f"contents[{number}] is not a content") from None
    limit = count(mapping(body, "generationConfig"), "maxOutputTokens", least=1)
    prefixes = prefixes_of(messages)
    plan = plan_of(body, limit=limit)
    tier = text_in(body, "serviceTier")
    return Asked(
        model=place.words["model"],
        prefixes=prefixes,
        plan=plan,
        reserve_tokens=reserved(prefixes, plan, limit=limit),
        stream=place.words["method"] == STREAM,
        tier="default" if tier == "standard" else tier,
        options={"array": place.words.get("alt") != "sse"},
    )


def refuse(refusal: Refusal) -> bytes:
    """Word a refusal as Google does; when to come again stands in its details."""
    error: dict[str, Any] = {
        "code": refusal.status,
        "message": refusal.message,
        "status": _STATUS.get(refusal.status, "INTERNAL"),
    }
    if refusal.retry_after_ms is not None:
        delay = f"{refusal.retry_after_ms / 1000:.3f}s"
        error["details"] = [{"@type": _RETRY_INFO, "retryDelay": delay}]
    return orjson.dumps({"error": error})


class GeminiEncoder:
    """Whole responses, framed as events or as elements of an array."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._pieces = WholeCalls(output)
        self._array = bool(output.asked.options["array"])
        self._begun = False
        self.content_type = "application/json; charset=UTF-8" if self._array else EVENT_STREAM

    def greeting(self) -> tuple[bytes, ...]:
        """See Encoder."""
        return ()

    def opening(self) -> tuple[bytes, ...]:
        """See Encoder."""
        return ()

    def events(self, tokens: int) -> Iterator[Sent]:
        """See Encoder."""
        for piece in self._pieces.take(tokens):
            yield Sent(piece.kind, piece.tokens, self._framed(self._response([self._part(piece)])))

    def ending(self) -> Iterator[bytes]:
        """See Encoder."""
        last = self._response([{"text": ""}], finish=True) | {"x_sim": self._output.x_sim}
        yield self._framed(last)
        if self._array:
            yield b"]"

    def completion(self) -> bytes:
        """See Encoder."""
        parts = [self._part(piece) for piece in self._output.whole()]
        return orjson.dumps(self._response(parts, finish=True) | {"x_sim": self._output.x_sim})

    def _framed(self, response: dict[str, Any]) -> bytes:
        data = orjson.dumps(response)
        if not self._array:
            return b"data: " + data + b"\r\n\r\n"
        begun, self._begun = self._begun, True
        return (b",\r\n" if begun else b"[") + data

    def _response(self, parts: list[dict[str, Any]], *, finish: bool = False) -> dict[str, Any]:
        output = self._output
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish:
            candidate["finishReason"] = FINISH[output.asked.plan.finish]
        tier = output.facts.tier
        usage = {
            "promptTokenCount": output.input_tokens,
            "candidatesTokenCount": output.sent_tokens - output.reasoning_tokens,
            "thoughtsTokenCount": output.reasoning_tokens,
            "cachedContentTokenCount": output.cached_tokens,
            "totalTokenCount": output.input_tokens + output.sent_tokens,
            "trafficType": _TRAFFIC.get(tier, "ON_DEMAND"),
            "serviceTier": "standard" if tier == "default" else tier,
        }
        return {
            "candidates": [candidate],
            "usageMetadata": usage,
            "modelVersion": output.facts.model,
            "responseId": output.facts.id,
        }

    def _part(self, piece: Piece) -> dict[str, Any]:
        if piece.kind is EventKind.TEXT:
            return {"text": piece.text}
        if piece.kind is EventKind.REASONING:
            return {"text": piece.text, "thought": True}
        id_ = self._output.tool_id(piece.place)
        return {"functionCall": {"id": id_, "name": piece.name, "args": arguments_of(piece)}}


def _text(content: Mapping[str, Any]) -> str:
    words = []
    for part in content["parts"]:
        if "functionCall" in part:
            call = part["functionCall"]
            words += [call["name"], orjson.dumps(call.get("args")).decode()]
        elif "functionResponse" in part:
            words.append(orjson.dumps(part["functionResponse"]["response"]).decode())
        else:
            words.append(str(part["text"]))
    return joined(words)


GEMINI = Speech(parse=parse, encoder=GeminiEncoder, refuse=refuse, id_prefix="sim")
