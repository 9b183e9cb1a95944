"""Ollama's `/api/chat` and `/api/generate`: an object a line, streamed unless refused. Pure.

Tool calls come whole; what is thought is always streamed, as `eval_count` holds it. There are no ids and no
tiers; times are nanoseconds.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
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
from harness.simulator.dialects.speech import Speech
from harness.simulator.output import Output, Piece, Sent, WholeCalls, arguments_of
from harness.simulator.refusal import Refusal
from harness.values import EventKind

FINISH = {Finish.STOP: "stop", Finish.LENGTH: "length", Finish.TOOLS: "stop"}


def parse(body: Mapping[str, Any], _place: Place) -> Asked:
    """Check the body of `POST /api/chat`."""
    messages = []
    for place, message in enumerate(list_in(body, "messages")):
        try:
            words = [message.get("content") or ""]
            for call in message.get("tool_calls") or ():
                function = call["function"]
                words += [function["name"], orjson.dumps(function["arguments"]).decode()]
            messages.append((str(message["role"]), joined(words)))
        except (AttributeError, KeyError, TypeError):
            raise ValueError(f"message {place} is not a chat message") from None
    if not messages:
        raise ValueError("'messages' must be a list of at least one message object")
    return _asked(body, messages, generate=False)


def parse_generate(body: Mapping[str, Any], _place: Place) -> Asked:
    """Check the body of `POST /api/generate`."""
    words = ((part, text_in(body, part) or "") for part in ("system", "prompt", "suffix"))
    return _asked(body, [word for word in words if word[1]], generate=True)


def _asked(body: Mapping[str, Any], messages: list[tuple[str, str]], *, generate: bool) -> Asked:
    limit = count(mapping(body, "options"), "num_predict", least=1)
    prefixes = prefixes_of(messages)
    plan = plan_of(body, limit=limit)
    if generate:
        plan = all_text(plan)
    return Asked(
        model=model_in(body),
        prefixes=prefixes,
        plan=plan,
        reserve_tokens=reserved(prefixes, plan, limit=limit),
        stream=body.get("stream") is not False,
        options={"generate": generate},
    )


def refuse(refusal: Refusal) -> bytes:
    """Word a refusal as Ollama does."""
    return orjson.dumps({"error": refusal.message})


class OllamaEncoder:
    """Lines with messages, the last with `done` and all numbers."""

    content_type = "application/x-ndjson"

    def __init__(self, output: Output) -> None:
        self._output = output
        self._pieces = WholeCalls(output)
        made = datetime.fromtimestamp(output.facts.created, UTC).isoformat().replace("+00:00", "Z")
        self._heading = {"model": output.facts.model, "created_at": made}

    def greeting(self) -> tuple[bytes, ...]:
        """See Encoder."""
        return ()

    def opening(self) -> tuple[bytes, ...]:
        """See Encoder."""
        return ()

    def events(self, tokens: int) -> Iterator[Sent]:
        """See Encoder."""
        for piece in self._pieces.take(tokens):
            line = {**self._heading, **self._said([piece]), "done": False}
            yield Sent(piece.kind, piece.tokens, orjson.dumps(line) + b"\n")

    def ending(self) -> Iterator[bytes]:
        """See Encoder."""
        yield orjson.dumps(self._last([])) + b"\n"

    def completion(self) -> bytes:
        """See Encoder."""
        return orjson.dumps(self._last(self._output.whole()))

    def _said(self, pieces: list[Piece]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        for piece in pieces:
            if piece.kind is EventKind.TEXT:
                message["content"] = piece.text
            elif piece.kind is EventKind.REASONING:
                message["thinking"] = piece.text
            else:
                function = {"name": piece.name, "arguments": arguments_of(piece)}
                message.setdefault("tool_calls", []).append({"function": function})
        if self._output.asked.options["generate"]:
            return {"response": message["content"]}
        return {"message": message}

    def _last(self, pieces: list[Piece]) -> dict[str, Any]:
        output = self._output
        said = self._said(pieces)
        prompt_ns, decode_ns = output.prompt_ns, output.decode_ns
        return {
            **self._heading,
            **said,
            "done": True,
            "done_reason": FINISH[output.asked.plan.finish],
            "total_duration": prompt_ns + decode_ns,
            "load_duration": 0,
            "prompt_eval_count": output.input_tokens,
            "prompt_eval_duration": prompt_ns,
            "eval_count": output.sent_tokens,
            "eval_duration": decode_ns,
            "x_sim": output.x_sim,
        }


OLLAMA = Speech(parse=parse, encoder=OllamaEncoder, refuse=refuse, id_prefix="sim", hides_reasoning=False)
OLLAMA_GENERATE = Speech(parse=parse_generate, encoder=OllamaEncoder, refuse=refuse, id_prefix="sim")
