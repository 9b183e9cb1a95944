"""Anthropic's messages: blocks with a start, deltas and a stop. Pure.

Reasoning is a block of thinking, or not shown at all. The tier is told as a speed, and as what Anthropic
calls a service tier. Numbers of tokens in `message_delta` are totals.
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
    model_in,
    plan_of,
    prefixes_of,
    reserved,
    text_in,
)
from harness.simulator.dialects.speech import EVENT_STREAM, Speech, sse
from harness.simulator.limits import anthropic_headers
from harness.simulator.output import Output, Piece, Sent, arguments_of
from harness.simulator.refusal import Refusal
from harness.values import EventKind

FINISH = {Finish.STOP: "end_turn", Finish.LENGTH: "max_tokens", Finish.TOOLS: "tool_use"}

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_SLOW = ("default", "standard", "flex", "batch", "on_demand")
_PING = b'event: ping\ndata: {"type": "ping"}\n\n'


def parse(body: Mapping[str, Any], _place: Place) -> Asked:
    """Check the body of `POST /v1/messages`."""
    limit = count(body, "max_tokens", least=1)
    if limit is None:
        raise ValueError("'max_tokens' must be a whole number, at least 1")
    messages = [("system", _text(body.get("system") or ""))]
    for place, message in enumerate(list_in(body, "messages")):
        try:
            messages.append((message["role"], _text(message["content"])))
        except (AttributeError, KeyError, TypeError):
            raise ValueError(f"messages.{place} is not a message") from None
    if len(messages) == 1:
        raise ValueError("'messages' must be a list of at least one message object")
    prefixes = prefixes_of(messages)
    plan = plan_of(body, limit=limit)
    return Asked(
        model=model_in(body),
        prefixes=prefixes,
        plan=plan,
        reserve_tokens=reserved(prefixes, plan, limit=limit),
        stream=body.get("stream") is True,
        # fast asks for what a profile of a fast tier is; the other word is every profile's slow one
        tier="default" if "standard" in str(text_in(body, "speed") or body.get("service_tier")) else None,
    )


def refuse(refusal: Refusal) -> bytes:
    """Word a refusal as Anthropic does."""
    error = {"type": _ERRORS.get(refusal.status, "api_error"), "message": refusal.message}
    return orjson.dumps({"type": "error", "error": error})


class MessagesEncoder:
    """Named events. One block is open at a time."""

    content_type = EVENT_STREAM

    def __init__(self, output: Output) -> None:
        self._output = output
        self._blocks = 0

    def greeting(self) -> tuple[bytes, ...]:
        """See Encoder."""
        return ()

    def opening(self) -> Iterator[bytes]:
        """Encode the message without its content; the prompt's tokens are known by now."""
        message = self._message(content=[], stop_reason=None, output_tokens=1)
        yield sse({"type": "message_start", "message": message}, "message_start")
        yield _PING

    def events(self, tokens: int) -> Iterator[Sent]:
        """See Encoder."""
        for piece in self._output.take(tokens):
            tool = piece.kind is EventKind.TOOL
            if piece.first:  # a call's name is in it, other blocks start without output
                start = self._start(piece)
                yield Sent(piece.kind, piece.tokens, start) if tool else Sent(None, 0, start)
            if not tool:
                yield Sent(piece.kind, piece.tokens, self._delta(piece))
            elif piece.text:
                yield Sent(piece.kind, 0 if piece.first else piece.tokens, self._delta(piece))
            if piece.last:
                yield from self._stop(piece)

    def ending(self) -> Iterator[bytes]:
        """See Encoder."""
        output = self._output
        delta = {"stop_reason": FINISH[output.asked.plan.finish], "stop_sequence": None}
        usage = {
            "output_tokens": output.sent_tokens,
            "output_tokens_details": {"thinking_tokens": output.reasoning_tokens},
        }
        event = {"type": "message_delta", "delta": delta, "usage": usage, "x_sim": output.x_sim}
        yield sse(event, "message_delta")
        yield sse({"type": "message_stop"}, "message_stop")

    def completion(self) -> bytes:
        """See Encoder."""
        output = self._output
        content = [self._whole(piece) for piece in output.whole()]
        message = self._message(
            content=content,
            stop_reason=FINISH[output.asked.plan.finish],
            output_tokens=output.sent_tokens,
        )
        message["usage"]["output_tokens_details"] = {"thinking_tokens": output.reasoning_tokens}
        return orjson.dumps(message | {"x_sim": output.x_sim})

    def _message(
        self, *, content: list[dict[str, Any]], stop_reason: str | None, output_tokens: int
    ) -> dict[str, Any]:
        output = self._output
        slow = output.facts.tier in _SLOW
        usage = {
            "input_tokens": output.input_tokens - output.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": output.cached_tokens,
            "output_tokens": output_tokens,
            "service_tier": "priority" if output.facts.tier == "priority" else "standard",
            "speed": "standard" if slow else "fast",
        }
        return {
            "id": output.facts.id,
            "type": "message",
            "role": "assistant",
            "model": output.facts.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": usage,
        }

    def _start(self, piece: Piece) -> bytes:
        if piece.kind is EventKind.TEXT:
            block: dict[str, Any] = {"type": "text", "text": ""}
        elif piece.kind is EventKind.REASONING:
            block = {"type": "thinking", "thinking": "", "signature": ""}
        else:
            id_ = self._output.tool_id(piece.place)
            block = {"type": "tool_use", "id": id_, "name": piece.name, "input": {}}
        event = {"type": "content_block_start", "index": self._blocks, "content_block": block}
        return sse(event, "content_block_start")

    def _delta(self, piece: Piece) -> bytes:
        if piece.kind is EventKind.TEXT:
            delta = b'{"type":"text_delta","text":"%b"}' % piece.text.encode()
        elif piece.kind is EventKind.REASONING:
            delta = b'{"type":"thinking_delta","thinking":"%b"}' % piece.text.encode()
        else:
            delta = orjson.dumps({"type": "input_json_delta", "partial_json": piece.text})
        return self._framed_delta(delta)

    def _framed_delta(self, delta: bytes) -> bytes:
        event = b'{"type":"content_block_delta","index":%d,"delta":%b}' % (self._blocks, delta)
        return b"event: content_block_delta\ndata: " + event + b"\n\n"

    def _stop(self, piece: Piece) -> Iterator[Sent]:
        if piece.kind is EventKind.REASONING:
            yield Sent(None, 0, self._framed_delta(b'{"type":"signature_delta","signature":"c2lt"}'))
        event = {"type": "content_block_stop", "index": self._blocks}
        yield Sent(None, 0, sse(event, "content_block_stop"))
        self._blocks += 1

    def _whole(self, piece: Piece) -> dict[str, Any]:
        if piece.kind is EventKind.TEXT:
            return {"type": "text", "text": piece.text}
        if piece.kind is EventKind.REASONING:
            return {"type": "thinking", "thinking": piece.text, "signature": "c2lt"}
        id_ = self._output.tool_id(piece.place)
        return {"type": "tool_use", "id": id_, "name": piece.name, "input": arguments_of(piece)}


def _text(content: str | list[dict[str, Any]]) -> str:
    """All words of a message or of a tool's result."""
    if isinstance(content, str):
        return content
    return joined([_block(block) for block in content])


def _block(block: Mapping[str, Any]) -> str:
    kind = block["type"]
    if kind == "tool_use":
        return joined([block["name"], orjson.dumps(block["input"]).decode()])
    if kind == "tool_result":
        return _text(block.get("content") or "")
    return str(block.get("text") or block.get("thinking") or "")


MESSAGES = Speech(
    parse=parse,
    encoder=MessagesEncoder,
    refuse=refuse,
    id_prefix="msg_sim",
    limit_headers=anthropic_headers,
    request_id_header="request-id",
)
