"""OpenAI's responses: items that are added, filled by deltas and done. Pure.

The same events go out as server-sent events and as WebSocket frames, each its JSON. Reasoning is an item;
its text is streamed as open-weight servers do, or the item stays empty. What an answer left is kept under
its id where `store` is not false, and on a WebSocket always.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson

from harness.simulator.asked import (
    Asked,
    Finish,
    Place,
    Plan,
    UnservableError,
    count,
    joined,
    model_in,
    plan_of,
    prefixes_of,
    reserved,
    text_in,
)
from harness.simulator.dialects.speech import EVENT_STREAM, Speech, openai_refuse
from harness.simulator.output import Output, Piece, Sent
from harness.values import EventKind

Framed = Callable[[str, bytes], bytes]
"""(type of an event, its JSON) -> what is sent."""

_ITEMS = {EventKind.REASONING: "rs", EventKind.TEXT: "msg", EventKind.TOOL: "fc"}
_PARTS = {EventKind.REASONING: "reasoning_text", EventKind.TEXT: "output_text"}


def parse(body: Mapping[str, Any], place: Place) -> Asked:
    """Check the body of `POST /v1/responses`, or of the event `response.create`."""
    previous = text_in(body, "previous_response_id")
    before = place.history(previous) if previous is not None else ()
    if before is None:
        message = f"Previous response with id '{previous}' not found."
        raise UnservableError(message, "previous_response_not_found")
    instructions = text_in(body, "instructions")
    messages = [("system", instructions)] if instructions else []
    limit = count(body, "max_output_tokens", least=1)
    prefixes = prefixes_of([*messages, *_messages(body.get("input"))], after=before)
    plan = plan_of(body, limit=limit)
    generate = body.get("generate") is not False
    if not generate:  # the prompt is read, which its first token shows; that token is nobody's
        plan = Plan(plan.call_id, 1, 0, 1, (), Finish.STOP)
    return Asked(
        model=model_in(body),
        prefixes=prefixes,
        plan=plan,
        reserve_tokens=reserved(prefixes, plan, limit=limit if generate else None),
        stream=body.get("stream") is True,
        tier=text_in(body, "service_tier"),
        options={"store": body.get("store") is not False, "generate": generate, "previous": previous},
    )


def as_event(type_: str, data: bytes) -> bytes:
    """Frame an event for HTTP."""
    return b"event: %b\ndata: %b\n\n" % (type_.encode(), data)


class ResponsesEncoder:
    """Events in the order that OpenAI documents. One item is open at a time."""

    content_type = EVENT_STREAM

    def __init__(self, output: Output, *, framed: Framed = as_event) -> None:
        self._output = output
        self._framed = framed
        self._number = -1
        self._done: list[dict[str, Any]] = []
        self._open = b""
        self._texts: list[str] = []

    def greeting(self) -> Iterator[bytes]:
        """Encode that the request has been taken: OpenAI tells that before the model has begun."""
        for type_ in ("response.created", "response.in_progress"):
            yield self._event(type_, {"response": self._response("in_progress")})

    def opening(self) -> tuple[bytes, ...]:
        """See Encoder."""
        return ()

    def events(self, tokens: int) -> Iterator[Sent]:
        """See Encoder."""
        if not self._output.asked.options["generate"]:
            return
        for piece in self._output.take(tokens):
            yield from self._hidden()
            tool = piece.kind is EventKind.TOOL
            if piece.first:
                yield from self._begin(piece)
            if piece.text or not tool:
                yield Sent(piece.kind, 0 if tool and piece.first else piece.tokens, self._delta(piece))
            if piece.last:
                yield from self._finish(piece)

    def ending(self) -> Iterator[bytes]:
        """See Encoder."""
        for _, _, event in self._hidden():
            yield event
        status = self._status()
        told = {"response": self._response(status), "x_sim": self._output.x_sim}
        yield self._event(f"response.{status}", told)

    def completion(self) -> bytes:
        """See Encoder."""
        for _ in self.events(self._output.asked.plan.output_tokens):
            pass  # what is streamed fills the items, too
        return orjson.dumps(self._response(self._status()) | {"x_sim": self._output.x_sim})

    def _hidden(self) -> Iterator[Sent]:
        """Encode the item of reasoning that is not shown, before the first that is."""
        output = self._output
        if not self._done and output.reasoning_tokens and not output.facts.show_reasoning:
            item = {"id": self._item_id(EventKind.REASONING), "type": "reasoning", "summary": []}
            place = {"output_index": 0, "item": item}
            yield Sent(None, 0, self._event("response.output_item.added", place))
            yield Sent(None, 0, self._event("response.output_item.done", place))
            self._done.append(item)

    def _begin(self, piece: Piece) -> Iterator[Sent]:
        item_id, index = self._item_id(piece.kind), len(self._done)
        part_index = b'"content_index":0,'
        if piece.kind is EventKind.TOOL:
            part_index = b""
        self._open = b'"item_id":"%b","output_index":%d,%b' % (item_id.encode(), index, part_index)
        self._texts = []
        added = self._event(
            "response.output_item.added", {"output_index": index, "item": self._item(piece, "in_progress")}
        )
        if piece.kind is EventKind.TOOL:  # the call's name is in it
            yield Sent(piece.kind, piece.tokens, added)
            return
        yield Sent(None, 0, added)
        if piece.kind is EventKind.TEXT:
            yield Sent(None, 0, self._filled("response.content_part.added", b'"part":%b' % self._part("")))

    def _delta(self, piece: Piece) -> bytes:
        self._texts.append(piece.text)
        if piece.kind is EventKind.TEXT:
            rest = b'"delta":"%b","logprobs":[]' % piece.text.encode()
            return self._filled("response.output_text.delta", rest)
        if piece.kind is EventKind.REASONING:
            return self._filled("response.reasoning_text.delta", b'"delta":"%b"' % piece.text.encode())
        rest = b'"delta":%b' % orjson.dumps(piece.text)
        return self._filled("response.function_call_arguments.delta", rest)

    def _finish(self, piece: Piece) -> Iterator[Sent]:
        text = "".join(self._texts)
        said = orjson.dumps(text)
        if piece.kind is EventKind.TOOL:
            name = orjson.dumps(piece.name)
            done = [("response.function_call_arguments.done", b'"arguments":%b,"name":%b' % (said, name))]
        elif piece.kind is EventKind.REASONING:
            done = [("response.reasoning_text.done", b'"text":%b' % said)]
        else:
            done = [
                ("response.output_text.done", b'"text":%b,"logprobs":[]' % said),
                ("response.content_part.done", b'"part":%b' % self._part(text)),
            ]
        for type_, rest in done:
            yield Sent(None, 0, self._filled(type_, rest))
        cut = self._output.sent_tokens == self._output.asked.plan.output_tokens and self._cut()
        item = self._item(piece, "incomplete" if cut else "completed", text)
        place = {"output_index": len(self._done), "item": item}
        yield Sent(None, 0, self._event("response.output_item.done", place))
        self._done.append(item)

    def _event(self, type_: str, told: Mapping[str, Any]) -> bytes:
        self._number += 1
        event = {"type": type_, **told, "sequence_number": self._number}
        return self._framed(type_, orjson.dumps(event))

    def _filled(self, type_: str, rest: bytes) -> bytes:
        """Encode an event of the open item by hand: this is most of what a server does per token."""
        self._number += 1
        event = b'{"type":"%b",%b%b,"sequence_number":%d}' % (type_.encode(), self._open, rest, self._number)
        return self._framed(type_, event)

    def _part(self, text: str) -> bytes:
        return orjson.dumps({"type": "output_text", "text": text, "annotations": [], "logprobs": []})

    def _item_id(self, kind: EventKind) -> str:
        return f"{_ITEMS[kind]}_{self._output.facts.id}x{len(self._done)}"

    def _item(self, piece: Piece, status: str, text: str = "") -> dict[str, Any]:
        item: dict[str, Any] = {"id": self._item_id(piece.kind), "status": status}
        if piece.kind is EventKind.TOOL:
            call_id = self._output.tool_id(piece.place)
            about = {"call_id": call_id, "name": piece.name, "arguments": text}
            return {**item, "type": "function_call", **about}
        parts: list[dict[str, Any]] = [{"type": _PARTS[piece.kind], "text": text}] if text else []
        if piece.kind is EventKind.REASONING:
            return {**item, "type": "reasoning", "summary": [], "content": parts}
        parts = [part | {"annotations": [], "logprobs": []} for part in parts]
        return {**item, "type": "message", "role": "assistant", "content": parts}

    def _cut(self) -> bool:
        return self._output.asked.plan.finish is Finish.LENGTH

    def _status(self) -> str:
        return "incomplete" if self._cut() else "completed"

    def _response(self, status: str) -> dict[str, Any]:
        output, facts = self._output, self._output.facts
        over = status != "in_progress"
        usage = {
            "input_tokens": output.input_tokens,
            "input_tokens_details": {"cached_tokens": output.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": output.sent_tokens,
            "output_tokens_details": {"reasoning_tokens": output.reasoning_tokens},
            "total_tokens": output.input_tokens + output.sent_tokens,
        }
        return {
            "id": facts.id,
            "object": "response",
            "created_at": facts.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "model": facts.model,
            "output": list(self._done),
            "parallel_tool_calls": True,
            "previous_response_id": output.asked.options["previous"],
            "service_tier": facts.tier if over else "auto",
            "store": output.asked.options["store"],
            "tool_choice": "auto",
            "tools": [],
            "usage": usage if over else None,
        }


def _messages(given: object) -> Iterable[tuple[str, str]]:
    """Words of the input: a text, or items."""
    if isinstance(given, str):
        return [("user", given)]
    if not isinstance(given, list | None):
        raise ValueError("'input' must be a string or a list of items")  # noqa: TRY004
    return [_item(place, item) for place, item in enumerate(given or ())]


def _item(place: int, item: Any) -> tuple[str, str]:  # noqa: ANN401 - whatever a client sent
    try:
        kind = item.get("type") or "message"
        if kind == "function_call":
            return "assistant", joined([item["name"], item["arguments"]])
        if kind == "function_call_output":
            return "tool", _text(item["output"])
        return str(item.get("role")), _text(item.get("content") or item.get("summary") or "")
    except (AttributeError, KeyError, TypeError):
        raise ValueError(f"'input[{place}]' is not an item") from None


def _text(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else joined([part.get("text", "") for part in content])


RESPONSES = Speech(parse=parse, encoder=ResponsesEncoder, refuse=openai_refuse, id_prefix="resp_sim")
