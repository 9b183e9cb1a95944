"""Dialect `anthropic`: POST /messages with `stream: true`, as Anthropic and compatible servers speak it.

Source of the format: Anthropic's API reference, "Streaming Messages" and "Fast mode".
"""

from typing import Any

from harness.wire import refusal as refusals
from harness.wire.choice import REASONING, TEXT, TOOL
from harness.wire.dialect import Dialect
from harness.wire.draft import Draft
from harness.wire.messages_prompt import encode
from harness.wire.sse import FrameReader
from harness.wire.usage import count
from harness.wire.vendors import take_times

_COMMITTED = "priority"  # capacity bought beforehand, at standard speed; others' `priority` is a faster tier

_CACHE = ("cache_creation_input_tokens", "cache_read_input_tokens")


class MessagesReading:
    """What the events mean: blocks begin, grow by deltas and stop; usage stands at both ends.

    Thinking counts as reasoning that was streamed: the wire does not say whether it was summarised.
    """

    __slots__ = ("_foreign", "_state", "_whole", "draft")

    def __init__(self) -> None:
        self.draft = Draft()
        self._state = self.draft.choices[0]
        self._whole: dict[int | None, object] = {}  # inputs that came with the beginning of their block
        self._foreign: set[int | None] = set()  # blocks of tools that the server runs

    def event(self, event: dict[str, Any], name: str) -> int:
        """Take one event; bits of what it carries."""
        kind = event.get("type")
        if type(kind) is not str:
            kind = name
        if kind == "content_block_delta":
            delta = event.get("delta")
            if type(delta) is not dict:
                return 0
            text = delta.get("text")
            if text and type(text) is str:  # the usual one
                self._state.text.append(text)
                return TEXT
            return self._delta(delta, event.get("index"))
        if kind == "content_block_start":
            block = event.get("content_block")
            return self._begins(block, event.get("index")) if type(block) is dict else 0
        if kind == "content_block_stop":
            self._stops(event.get("index"))
        else:
            self._frame(kind, event)
        return 0

    def whole(self, answer: dict[str, Any]) -> None:
        """Take a message that was sent at once."""
        content = answer.get("content")
        for place, block in enumerate(content if type(content) is list else ()):
            if type(block) is dict:
                self._begins(block, place)
                self._stops(place)
        self._frame("message_start", {"message": answer})
        self._frame("message_delta", {"delta": answer})  # its reason to stop

    def counts(self) -> dict[str, object]:
        """Tell the newest usage. Input is all of it: what a cache held, or took, stands apart on the wire."""
        told = self.draft.usage
        details = told.get("output_tokens_details")
        parts: list[Any] = [told.get("input_tokens"), *(told.get(name) or 0 for name in _CACHE)]
        odd = [part for part in parts if count(part) is None]
        return {
            "input_tokens": odd[0] if odd else sum(parts),
            "output_tokens": told.get("output_tokens"),
            "cached_tokens": told.get("cache_read_input_tokens"),
            "reasoning_tokens": details.get("thinking_tokens") if isinstance(details, dict) else None,
        }

    def _delta(self, delta: dict[str, Any], index: object) -> int:
        """Take a piece of a block that is no text. Signatures and citations are no output."""
        thinking, said = delta.get("thinking"), delta.get("partial_json")
        if type(thinking) is str and thinking:
            return self._think(thinking)
        if type(said) is not str or not said:
            return 0
        if _key(index) in self._foreign:
            return TOOL
        self._whole.pop(_key(index), None)
        return self._tool(index, arguments=said)

    def _begins(self, block: dict[str, Any], index: object) -> int:
        """Take the beginning of a block: its text is nearly always empty yet, a tool call has its name."""
        text, thinking, name = block.get("text"), block.get("thinking"), block.get("name")
        if type(text) is str and text:
            self._state.text.append(text)
            return TEXT
        if type(thinking) is str and thinking:
            return self._think(thinking)
        if block.get("type") == "tool_use":
            self._foreign.discard(_key(index))
            if block.get("input"):
                self._whole[_key(index)] = block["input"]
            return self._tool(index, name=name, id_=block.get("id"))
        if type(name) is not str or not name:
            return 0
        self._foreign.add(_key(index))  # a tool that the server runs
        return TOOL

    def _stops(self, index: object) -> None:
        """End a block: an input that came with its beginning, and in no pieces, is all there is."""
        said = self._whole.pop(_key(index), None)
        if said is not None:
            self._tool(index, arguments=said)

    def _frame(self, kind: str, event: dict[str, Any]) -> None:
        """Take an event that is about the message as a whole."""
        if kind == "message_stop":
            self.draft.over = True
        elif kind == "message_start" and type(message := event.get("message")) is dict:
            self.draft.named(message.get("id"))
            self._told(message.get("usage"))
        elif kind == "message_delta":
            delta = event.get("delta")
            if type(delta) is dict and delta.get("stop_reason"):
                self.draft.finish(self._state, delta["stop_reason"])
            self._told(event.get("usage"))
            take_times(event, self.draft.timing)
        elif kind == "error" or event.get("error") or refusals.fails(event):
            self.draft.broke(event, "the server sent an error without a message")

    def _told(self, usage: object) -> None:
        """Take usage: running totals, of which each tells those that changed.

        The tier is the speed where that is `fast`, else the service tier.
        """
        if type(usage) is not dict:
            return
        self.draft.usage = self.draft.usage | {key: told for key, told in usage.items() if told is not None}
        told = self.draft.usage
        tier, speed = told.get("service_tier"), told.get("speed")
        self.draft.served(speed if type(speed) is str else "standard" if tier == _COMMITTED else tier)

    def _think(self, thinking: str) -> int:
        self._state.reasoning.append(thinking)
        self._state.raw_reasoning = True
        return REASONING

    def _tool(
        self, index: object, *, name: object = None, id_: object = None, arguments: object = None
    ) -> int:
        function = {"name": name, "arguments": arguments}
        return TOOL if self._state.tools.add([{"index": index, "id": id_, "function": function}]) else 0


def _key(index: object) -> int | None:
    """Make an index fit to be a key."""
    return index if type(index) is int else None


def headers(key: str) -> dict[str, str]:
    """Carry a key as Anthropic wants it."""
    return {"x-api-key": key}


DIALECT = Dialect(
    name="anthropic",
    encode=encode,
    reading=MessagesReading,
    frames=FrameReader,
    stream_types=("text/event-stream",),
    paths=("/messages",),
    answer_keys=("content",),
    headers=headers,
    fixed_headers=(("anthropic-version", "2023-06-01"),),
)
