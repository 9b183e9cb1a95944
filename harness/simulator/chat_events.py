"""Tokens as OpenAI's chat completions: server-sent events, or one object. Pure.

A token is one English word with a blank before it. Reasoning comes as `delta.reasoning`, or not at all
where it is hidden. A tool call's name is its first token and an event of its own; the rest are pieces of
its arguments, which are valid JSON when all of them are joined.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from harness.simulator.chat_request import ChatRequest, Plan
from harness.simulator.jobs import Job
from harness.values import EventKind

_TEXT = """
 the of and a to in is you that it he was for on are as with his they at be this have from or one had by
 word but not what all were we when your can said there use an each which she do how their if will up other
 about out many then them these so some her would make like him into time has look two more write go see
 number no way could people my than first water been call who oil its now find long down day did get come
"""
WORDS = tuple(f" {word}" for word in _TEXT.split())

DONE = b"data: [DONE]\n\n"

SHORTEST_VALUE_TOKENS = 3
"""Name, opening, closing: a tool call of fewer tokens has the arguments {}."""


@dataclass(frozen=True, slots=True)
class Heading:
    """What every chunk of an answer repeats."""

    id: str
    created: int
    model: str
    service_tier: str


@dataclass(slots=True)
class _Segment:
    """A run of tokens of one kind, of which `done` have been sent; `index` counts tool calls."""

    kind: EventKind
    tokens: int
    index: int = 0
    name: str = ""
    done: int = 0


class ChatEncoder:
    """Turns "so many tokens more" into events, in the order of the plan."""

    def __init__(self, request: ChatRequest, job: Job, *, heading: Heading, show_reasoning: bool) -> None:
        self._request = request
        self._job = job
        self._heading = heading
        self._show_reasoning = show_reasoning
        self._segments = _segments(request.plan)
        self._at = 0
        self._sent_tokens = 0
        fixed = orjson.dumps(
            {
                "id": heading.id,
                "object": "chat.completion.chunk",
                "created": heading.created,
                "model": heading.model,
                "service_tier": heading.service_tier,
                "system_fingerprint": "fp_simulated",
            }
        )
        self._head = b"data: " + fixed[:-1] + b',"choices":['

    def opening(self) -> bytes:
        """Encode the event with the role, which carries no output."""
        return self._chunk(b'{"role":"assistant","content":"","refusal":null}')

    def events(self, tokens: int) -> Iterator[tuple[EventKind, int, bytes]]:
        """Encode the next `tokens` as output events (kind, tokens, bytes); hidden ones make none."""
        while tokens:
            segment = self._segments[self._at]
            count = min(tokens, segment.tokens - segment.done)
            if segment.kind is EventKind.TOOL and not segment.done:
                count = 1
            delta = self._delta(segment, count)
            segment.done += count
            self._sent_tokens += count
            tokens -= count
            self._at += segment.done == segment.tokens
            if delta is not None:
                yield segment.kind, count, self._chunk(delta)

    def ending(self) -> Iterator[bytes]:
        """Encode the finish event, the usage event if it was asked for, and the end mark."""
        yield self._chunk(b"{}", finish_reason=b'"%b"' % self._request.plan.finish_reason.encode())
        if self._request.include_usage:
            yield self._head + b'],"usage":' + orjson.dumps(self._usage()) + b"}\n\n"
        yield DONE

    def completion(self) -> bytes:
        """Encode the whole answer for a request that does not stream."""
        plan = self._request.plan
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        left = plan.output_tokens
        for segment in self._segments:
            count = min(left, segment.tokens)
            left -= count
            if segment.kind is EventKind.TEXT and count:
                message["content"] = self._words(0, count)
            elif segment.kind is EventKind.REASONING and count and self._show_reasoning:
                message["reasoning"] = self._words(0, count)
            elif segment.kind is EventKind.TOOL and count:
                function = {"name": segment.name, "arguments": self._arguments(segment, 0, count)}
                call = {"id": self._tool_id(segment), "type": "function", "function": function}
                message.setdefault("tool_calls", []).append(call)
        self._sent_tokens = plan.output_tokens
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": plan.finish_reason}
        heading = self._heading
        return orjson.dumps(
            {
                "id": heading.id,
                "object": "chat.completion",
                "created": heading.created,
                "model": heading.model,
                "service_tier": heading.service_tier,
                "system_fingerprint": "fp_simulated",
                "choices": [choice],
                "usage": self._usage(),
            }
        )

    def _chunk(self, delta: bytes, *, finish_reason: bytes = b"null") -> bytes:
        if self._request.continuous_usage:
            tail = b'],"usage":' + orjson.dumps(self._usage())
        else:
            tail = b'],"usage":null' if self._request.include_usage else b"]"
        choice = b'{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}' % (delta, finish_reason)
        return self._head + choice + tail + b"}\n\n"

    def _usage(self) -> dict[str, Any]:
        input_tokens = self._job.prefixes[-1].tokens
        reasoning = min(self._sent_tokens, self._request.plan.reasoning_tokens)
        return {
            "prompt_tokens": input_tokens,
            "completion_tokens": self._sent_tokens,
            "total_tokens": input_tokens + self._sent_tokens,
            "prompt_tokens_details": {"cached_tokens": self._job.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }

    def _delta(self, segment: _Segment, count: int) -> bytes | None:
        if segment.kind is EventKind.TEXT:
            return b'{"content":"%b"}' % self._words(segment.done, count).encode()
        if segment.kind is EventKind.REASONING:
            words = self._words(segment.done, count).encode()
            return b'{"reasoning":"%b"}' % words if self._show_reasoning else None
        function: dict[str, str] = {"arguments": self._arguments(segment, segment.done, count)}
        call: dict[str, Any] = {"index": segment.index, "function": function}
        if not segment.done:
            function["name"] = segment.name
            call |= {"id": self._tool_id(segment), "type": "function"}
        return orjson.dumps({"tool_calls": [call]})

    def _words(self, start: int, count: int) -> str:
        start += self._job.id * 7  # so that neighbours do not say the same
        return "".join([WORDS[(start + i) % len(WORDS)] for i in range(count)])

    def _arguments(self, segment: _Segment, start: int, count: int) -> str:
        """Pieces start .. start + count of a call, of which piece 0 is its name and no argument."""
        if segment.tokens < SHORTEST_VALUE_TOKENS:
            return "{}" if start + count == segment.tokens else ""
        first, last = max(start, 1), start + count
        text = self._words(first, last - first) if last > first else ""
        if start <= 1 < last:
            text = '{"input":"' + text.lstrip()
        return text + '"}' if last == segment.tokens else text

    def _tool_id(self, segment: _Segment) -> str:
        return f"call_sim{self._job.id}x{segment.index}"


def _segments(plan: Plan) -> list[_Segment]:
    segments = [
        _Segment(EventKind.REASONING, plan.reasoning_tokens),
        _Segment(EventKind.TEXT, plan.text_tokens),
    ]
    segments += [
        _Segment(EventKind.TOOL, tool.tokens, index=index, name=tool.name)
        for index, tool in enumerate(plan.tools)
    ]
    return [segment for segment in segments if segment.tokens]
