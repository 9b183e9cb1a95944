"""Dialect `openai-responses`: POST /responses with `stream: true`, and the same over a WebSocket.

Source of the format: OpenAI's API reference, "Responses, streaming" and "WebSocket mode". Servers differ:
no `event:` lines, no `sequence_number` or `output_index`, a `[DONE]` at the end, an answer without deltas.
"""

from collections.abc import Callable
from typing import Any

from harness.wire import refusal as refusals
from harness.wire.choice import REASONING, TEXT, TOOL
from harness.wire.dialect import Dialect
from harness.wire.draft import Draft
from harness.wire.payload import joined
from harness.wire.responses_calls import ASKING, ItemCalls
from harness.wire.responses_prompt import as_message, encode, lane_of
from harness.wire.sse import FrameReader
from harness.wire.vendors import take_times

_ENDS = ("completed", "incomplete", "failed", "cancelled")
"""What the terminal events are called behind `response.`, and the states of a response that has ended."""


_LEVELS = _TEXT, _PART, _ITEM, _RESPONSE = range(4)
"""What tells a text whole again: its own event, its part's, its item's, the response's."""


class _Said:
    """One sort of text: its pieces, and how much of it was told again whole, at each of the levels.

    A whole text is missing if no more came in pieces than whole ones told before it. Its place in the stream
    says nothing: servers tell a message whole behind the tool calls that follow it.
    """

    __slots__ = ("_bit", "_pieces", "_told")

    def __init__(self, bit: int, pieces: list[str]) -> None:
        self._bit = bit
        self._pieces = pieces
        self._told = [0] * len(_LEVELS)

    def more(self, text: object) -> int:
        """Add a piece; its bit if it holds anything."""
        if type(text) is not str or not text:
            return 0
        self._pieces.append(text)
        return self._bit

    def whole(self, text: object, level: int) -> int:
        """Add what is told whole, if it is missing."""
        told = text if type(text) is str else ""
        came = sum(map(len, self._pieces)) > self._told[level]
        self._told[level] += len(told)
        return 0 if came else self.more(told)


class ResponsesReading:
    """What the events mean: items begin, grow by deltas, and are told whole at their end.

    What is told whole counts as output only where no piece of it came before.
    """

    __slots__ = ("_calls", "_reasoning", "_state", "_text", "draft")

    def __init__(self) -> None:
        self.draft = Draft()
        self._state = self.draft.choices[0]
        self._text = _Said(TEXT, self._state.text)
        self._reasoning = _Said(REASONING, self._state.reasoning)
        self._calls = ItemCalls(self._state.tools)

    def event(self, event: dict[str, Any], name: str) -> int:
        """Take one event; bits of what it carries."""
        kind = event.get("type")
        if type(kind) is not str:
            kind = name
            if name:
                event["type"] = name
        if kind == "response.output_text.delta":  # the usual one
            delta = event.get("delta")
            if delta and type(delta) is str:
                self._state.text.append(delta)
                return TEXT
            return 0
        take = _TAKE.get(kind)
        if take is not None:
            return take(self, event)
        if refusals.fails(event) or (event.get("error") and not kind.startswith("response.")):
            self._broke(event)
        return 0

    def whole(self, answer: dict[str, Any]) -> None:
        """Take a response that was sent at once."""
        self.ended({"response": answer})

    def counts(self) -> dict[str, object]:
        """Tell the newest usage."""
        told = self.draft.usage
        incoming, outgoing = told.get("input_tokens_details"), told.get("output_tokens_details")
        return {
            "input_tokens": told.get("input_tokens"),
            "output_tokens": told.get("output_tokens"),
            "cached_tokens": incoming.get("cached_tokens") if isinstance(incoming, dict) else None,
            "reasoning_tokens": outgoing.get("reasoning_tokens") if isinstance(outgoing, dict) else None,
        }

    def refusal(self, event: dict[str, Any]) -> int:
        """Take a piece of a refusal, which is the answer's text."""
        return self._text.more(event.get("delta"))

    def text_done(self, event: dict[str, Any]) -> int:
        """Take the whole text of a part."""
        return self._text.whole(event.get("text") or event.get("refusal"), _TEXT)

    def thought(self, event: dict[str, Any]) -> int:
        """Take a piece of the reasoning itself."""
        return self._raw(self._reasoning.more(event.get("delta")))

    def thought_done(self, event: dict[str, Any]) -> int:
        """Take the whole reasoning of a part."""
        return self._raw(self._reasoning.whole(event.get("text"), _TEXT))

    def summary(self, event: dict[str, Any]) -> int:
        """Take a piece of a summary of the reasoning."""
        return self._summed(self._reasoning.more(event.get("delta")))

    def summary_done(self, event: dict[str, Any]) -> int:
        """Take a whole summary."""
        return self._summed(self._reasoning.whole(event.get("text"), _TEXT))

    def part_added(self, event: dict[str, Any]) -> int:
        """Take the beginning of a part, which seldom has text yet."""
        part = event.get("part")
        if type(part) is not dict:
            return 0
        if part.get("type") == "summary_text":
            return self._summed(self._reasoning.more(part.get("text")))
        if part.get("type") == "reasoning_text":
            return self._raw(self._reasoning.more(part.get("text")))
        return self._text.more(part.get("text") or part.get("refusal"))

    def part_done(self, event: dict[str, Any]) -> int:
        """Take a whole part."""
        part = event.get("part")
        if type(part) is not dict:
            return 0
        text = part.get("text") or part.get("refusal")
        if part.get("type") == "summary_text":
            return self._summed(self._reasoning.whole(text, _PART))
        if part.get("type") == "reasoning_text":
            return self._raw(self._reasoning.whole(text, _PART))
        return self._text.whole(text, _PART)

    def item_added(self, event: dict[str, Any]) -> int:
        """Take the beginning of an item: a tool call has its name from here on."""
        item = event.get("item")
        if type(item) is not dict:
            return 0
        kind = item.get("type")
        if kind == "message":
            return self._text.more(_text(item.get("content")))
        if type(kind) is str and kind in ASKING:
            return self._calls.item(event, item)
        return TOOL if item.get("name") else 0  # a tool that the server runs

    def item_done(self, event: dict[str, Any]) -> int:
        """Take a whole item, as far as no piece of it came."""
        return self._item(event, _ITEM)

    def arguments(self, event: dict[str, Any]) -> int:
        """Take a piece of a tool call's arguments."""
        return self._calls.piece(event)

    def arguments_done(self, event: dict[str, Any]) -> int:
        """Take the whole arguments of a call."""
        return self._calls.done(event)

    def foreign(self, event: dict[str, Any]) -> int:
        """Take a piece of what the model says to a tool that the server runs: output, but no call for us."""
        return TOOL if event.get("delta") else 0

    def told(self, event: dict[str, Any]) -> int:
        """Take what an event says of the response as a whole."""
        response = event.get("response")
        if type(response) is dict:
            self.draft.named(response.get("id"))
            if response.get("service_tier") != "auto":  # that is what was asked for, no tier
                self.draft.served(response.get("service_tier"))
            usage = response.get("usage")
            if type(usage) is dict and ("output_tokens" in usage or "input_tokens" in usage):
                self.draft.usage = usage
        return 0

    def ended(self, event: dict[str, Any]) -> int:
        """Take the terminal event; it may be the only one that tells the output."""
        self.told(event)
        take_times(event, self.draft.timing)
        response = event.get("response")
        response = response if type(response) is dict else {}
        kind = str(event.get("type") or "").removeprefix("response.")
        word = kind if kind in _ENDS else response.get("status")
        bits = self._output(response)
        if isinstance(word, str):
            self.draft.finish(self._state, word)
        details = response.get("incomplete_details")
        if type(details) is dict:
            self.draft.cut_short(details.get("reason"))
        if word in ("failed", "cancelled") or response.get("error"):
            self.draft.broke(response if response.get("error") else event, f"the response ended as {word}")
        self.draft.over = True
        return bits

    def _broke(self, event: dict[str, Any]) -> None:
        """Take an error: flat over SSE, `{"error": {...}, "status": 429}` over a WebSocket."""
        status = event.get("status")
        self.draft.error_status = status if type(status) is int else None
        said = f"the server sent an error without a message ({event.get('code') or 'no code'})"
        self.draft.broke(event, joined([said]))

    def _output(self, response: dict[str, Any]) -> int:
        """Take the items of a whole response, as far as they are missing.

        Reasoning that is told behind the answer is none of its output. Servers give items other ids here, so
        calls are looked at only if there are more than came.
        """
        items = response.get("output")
        items = [item for item in items if type(item) is dict] if type(items) is list else []
        items = [item for item in items if type(item.get("type")) is str]
        calls = [item for item in items if item["type"] in ASKING]
        nothing, more = not (self._state.text or self._state.reasoning), len(calls) > len(self._calls)
        bits = 0
        for place, item in enumerate(items):
            kind = item["type"]
            if kind == "message" or (more if kind in ASKING else nothing and not self._calls):
                bits |= self._item({"item": item, "output_index": place}, _RESPONSE)
        return bits

    def _item(self, event: dict[str, Any], level: int) -> int:
        """Take a whole item, as far as no piece of it came: of reasoning itself, else its summary."""
        item = event.get("item")
        if type(item) is not dict:
            return 0
        kind = item.get("type")
        if kind == "message":
            return self._text.whole(_text(item.get("content")), level)
        if kind == "reasoning":
            raw = _text(item.get("content"))
            if raw:
                return self._raw(self._reasoning.whole(raw, level))
            return self._summed(self._reasoning.whole(_text(item.get("summary")), level))
        return self._calls.item(event, item) if type(kind) is str and kind in ASKING else 0

    def _raw(self, bits: int) -> int:
        self._state.raw_reasoning |= bits != 0
        return bits

    def _summed(self, bits: int) -> int:
        self._state.summaries |= bits != 0
        return bits


def _text(parts: object) -> str:
    """Join the texts of an item's parts."""
    told = [part for part in parts if type(part) is dict] if type(parts) is list else []
    texts = [part.get("text") or part.get("refusal") for part in told]
    return "".join(text for text in texts if type(text) is str)


_Take = Callable[[ResponsesReading, dict[str, Any]], int]
_TAKE: dict[str, _Take] = {
    "response.refusal.delta": ResponsesReading.refusal,
    "response.output_text.done": ResponsesReading.text_done,
    "response.refusal.done": ResponsesReading.text_done,
    "response.reasoning_text.delta": ResponsesReading.thought,
    "response.reasoning_text.done": ResponsesReading.thought_done,
    "response.reasoning.delta": ResponsesReading.thought,  # OpenRouter
    "response.reasoning_summary_text.delta": ResponsesReading.summary,
    "response.reasoning_summary_text.done": ResponsesReading.summary_done,
    "response.reasoning_summary_part.added": ResponsesReading.part_added,
    "response.reasoning_summary_part.done": ResponsesReading.part_done,
    "response.content_part.added": ResponsesReading.part_added,
    "response.content_part.done": ResponsesReading.part_done,
    "response.output_item.added": ResponsesReading.item_added,
    "response.output_item.done": ResponsesReading.item_done,
    "response.function_call_arguments.delta": ResponsesReading.arguments,
    "response.function_call_arguments.done": ResponsesReading.arguments_done,
    "response.custom_tool_call_input.delta": ResponsesReading.arguments,
    "response.custom_tool_call_input.done": ResponsesReading.arguments_done,
    "response.shell_call_command.delta": ResponsesReading.foreign,
    "response.mcp_call_arguments.delta": ResponsesReading.foreign,
    "response.code_interpreter_call_code.delta": ResponsesReading.foreign,
    "response.created": ResponsesReading.told,
    "response.queued": ResponsesReading.told,
    "response.in_progress": ResponsesReading.told,
    **{f"response.{word}": ResponsesReading.ended for word in _ENDS},
}

DIALECT = Dialect(
    name="openai-responses",
    encode=encode,
    reading=ResponsesReading,
    frames=FrameReader,
    stream_types=("text/event-stream",),
    paths=("/responses",),
    answer_keys=("output",),
    as_message=as_message,
    lane_of=lane_of,
)
