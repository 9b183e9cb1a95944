"""OpenAI's chat completions, and Mistral's fill-in-the-middle, which answers in the same shape. Pure.

Reasoning comes as `delta.reasoning`, or not at all where it is hidden. Of FIM, usage stands on the last
chunk that has choices; of chat, behind them, where it was asked for.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from harness.simulator.asked import (
    Asked,
    Finish,
    Place,
    all_text,
    count,
    joined,
    list_in,
    mapping,
    model_in,
    plan_of,
    prefixes_of,
    reserved,
    text_in,
)
from harness.simulator.dialects.speech import EVENT_STREAM, Speech, openai_refuse
from harness.simulator.output import Output, Piece, Sent
from harness.values import EventKind

DONE = b"data: [DONE]\n\n"
FINISH = {Finish.STOP: "stop", Finish.LENGTH: "length", Finish.TOOLS: "tool_calls"}


def parse(body: Mapping[str, Any], _place: Place) -> Asked:
    """Check the body of `POST /v1/chat/completions`."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise ValueError("'messages' must be a list of at least one message object")
    options = mapping(body, "stream_options")
    limit = count(body, "max_completion_tokens", least=1) or count(body, "max_tokens", least=1)
    prefixes = prefixes_of(_message(place, message) for place, message in enumerate(messages))
    plan = plan_of(body, limit=limit, least=count(body, "min_tokens"))
    return Asked(
        model=model_in(body),
        prefixes=prefixes,
        plan=plan,
        reserve_tokens=reserved(prefixes, plan, limit=limit),
        stream=body.get("stream") is True,
        tier=text_in(body, "service_tier"),
        include_usage=options.get("include_usage") is True,
        continuous_usage=options.get("continuous_usage_stats") is True,
    )


def parse_fim(body: Mapping[str, Any], _place: Place) -> Asked:
    """Check the body of `POST /v1/fim/completions`."""
    if not isinstance(body.get("prompt"), str):
        raise ValueError("'prompt' must be a string")  # noqa: TRY004 - one error for all bad bodies
    limit = count(body, "max_tokens", least=1)
    prefixes = prefixes_of([("prompt", body["prompt"]), ("suffix", text_in(body, "suffix") or "")])
    plan = all_text(plan_of(body, limit=limit, least=count(body, "min_tokens")))
    return Asked(
        model=model_in(body),
        prefixes=prefixes,
        plan=plan,
        reserve_tokens=reserved(prefixes, plan, limit=limit),
        stream=body.get("stream") is True,
        options={"usage_on_finish": True},
    )


def usage_of(output: Output) -> dict[str, Any]:
    """Tell the tokens so far as chat and legacy completions do."""
    return {
        "prompt_tokens": output.input_tokens,
        "completion_tokens": output.sent_tokens,
        "total_tokens": output.input_tokens + output.sent_tokens,
        "prompt_tokens_details": {"cached_tokens": output.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": output.reasoning_tokens},
    }


class ChatEncoder:
    """Chunks with deltas. Bytes are put together by hand: this is most of what a server does per token."""

    content_type = EVENT_STREAM

    def __init__(self, output: Output) -> None:
        self._output = output
        self._head = b"data: " + orjson.dumps(self._heading("chat.completion.chunk"))[:-1] + b',"choices":['

    def greeting(self) -> tuple[bytes, ...]:
        """See Encoder."""
        return ()

    def opening(self) -> tuple[bytes, ...]:
        """Encode the event with the role, which carries no output."""
        return (self._chunk(b'{"role":"assistant","content":"","refusal":null}'),)

    def events(self, tokens: int) -> Iterator[Sent]:
        """See Encoder."""
        for piece in self._output.take(tokens):
            yield Sent(piece.kind, piece.tokens, self._chunk(self._delta(piece)))

    def ending(self) -> Iterator[bytes]:
        """See Encoder."""
        asked = self._output.asked
        on_finish = asked.options.get("usage_on_finish")
        reason = b'"%b"' % FINISH[asked.plan.finish].encode()
        yield self._chunk(b"{}", finish_reason=reason, usage=bool(on_finish))
        if asked.include_usage and not on_finish:
            yield self._head + self._usage() + b"}\n\n"
        yield DONE

    def completion(self) -> bytes:
        """See Encoder."""
        output = self._output
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        for piece in output.whole():
            if piece.kind is EventKind.TEXT:
                message["content"] = piece.text
            elif piece.kind is EventKind.REASONING:
                message["reasoning"] = piece.text
            else:
                function = {"name": piece.name, "arguments": piece.text}
                call = {"id": output.tool_id(piece.place), "type": "function", "function": function}
                message.setdefault("tool_calls", []).append(call)
        finish = FINISH[output.asked.plan.finish]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        heading = self._heading("chat.completion")
        return orjson.dumps(
            {**heading, "choices": [choice], "usage": usage_of(output), "x_sim": output.x_sim}
        )

    def _heading(self, kind: str) -> dict[str, Any]:
        facts = self._output.facts
        return {
            "id": facts.id,
            "object": kind,
            "created": facts.created,
            "model": facts.model,
            "service_tier": facts.tier,
            "system_fingerprint": "fp_simulated",
        }

    def _chunk(self, delta: bytes, *, finish_reason: bytes = b"null", usage: bool = False) -> bytes:
        asked = self._output.asked
        if usage:
            tail = self._usage()
        elif asked.continuous_usage:
            tail = b'],"usage":' + orjson.dumps(usage_of(self._output))
        else:
            tail = b'],"usage":null' if asked.include_usage else b"]"
        choice = b'{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}' % (delta, finish_reason)
        return self._head + choice + tail + b"}\n\n"

    def _usage(self) -> bytes:
        usage, x_sim = orjson.dumps(usage_of(self._output)), orjson.dumps(self._output.x_sim)
        return b'],"usage":%b,"x_sim":%b' % (usage, x_sim)

    def _delta(self, piece: Piece) -> bytes:
        if piece.kind is EventKind.TEXT:
            return b'{"content":"%b"}' % piece.text.encode()
        if piece.kind is EventKind.REASONING:
            return b'{"reasoning":"%b"}' % piece.text.encode()
        function: dict[str, str] = {"arguments": piece.text}
        call: dict[str, Any] = {"index": piece.place, "function": function}
        if piece.first:
            function["name"] = piece.name
            call |= {"id": self._output.tool_id(piece.place), "type": "function"}
        return orjson.dumps({"tool_calls": [call]})


def _message(place: int, message: Mapping[str, Any]) -> tuple[str, str]:
    try:
        content = message.get("content") or ""
        pieces = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        for call in list_in(message, "tool_calls"):
            pieces += [call["function"]["name"], call["function"]["arguments"]]
        return str(message.get("role")), joined(pieces)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"message {place} is not a chat message") from None


CHAT = Speech(parse=parse, encoder=ChatEncoder, refuse=openai_refuse, id_prefix="chatcmpl-sim")
FIM = Speech(parse=parse_fim, encoder=ChatEncoder, refuse=openai_refuse, id_prefix="cmpl-sim")
