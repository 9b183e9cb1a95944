"""One choice of a chat-shaped stream: text, reasoning and tool calls out of its deltas."""

from typing import Any

from harness.values import EventKind
from harness.wire.tool_calls import ToolCalls

TEXT, TOOL, REASONING = 1, 2, 4
"""Bits: what an event carries."""

_ORDER = ((TEXT, EventKind.TEXT), (TOOL, EventKind.TOOL), (REASONING, EventKind.REASONING))

KIND = tuple(
    next((tuple(EventKind).index(kind) for bit, kind in _ORDER if bits & bit), 0) for bits in range(8)
)
"""By those bits, the one kind that the event counts as: an answer goes before reasoning."""


class ChoiceState:
    """What a choice has said so far.

    summaries, raw_reasoning: which sorts of reasoning came.
    """

    __slots__ = ("finish_reason", "raw_reasoning", "reasoning", "summaries", "text", "tools")

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.tools = ToolCalls()
        self.finish_reason: str | None = None
        self.summaries = self.raw_reasoning = False

    def began(self) -> bool:
        """Tell whether anything was said in it, its end included."""
        return bool(self.finish_reason or self.text or self.reasoning or self.tools.whole())

    def delta(self, delta: dict[str, Any]) -> int:
        """Take a delta of any sort; bits of what it carries."""
        bits = self.said(delta.get("content")) | self.said(delta.get("refusal"))
        bits |= self._reasoning(delta)
        calls, old = delta.get("tool_calls"), delta.get("function_call")
        if isinstance(calls, list) and self.tools.add(calls):
            bits |= TOOL
        if isinstance(old, dict) and self.tools.add_old(old):
            bits |= TOOL
        return bits

    def said(self, content: object) -> int:
        """Take text, or a list of parts (Mistral: `text` and `thinking`); bits of what it carries."""
        if isinstance(content, str) and content:
            self.text.append(content)
            return TEXT
        bits = 0
        for part in content if isinstance(content, list) else ():
            inner = part if isinstance(part, dict) else {"text": part}
            if isinstance(inner.get("text"), str):
                bits |= self.said(inner["text"])
            elif thought := _thought(inner.get("thinking")):
                self.raw_reasoning = True
                bits |= self.think(thought)
        return bits

    def _reasoning(self, delta: dict[str, Any]) -> int:
        """`reasoning` and `reasoning_content`, often both with one text, and OpenRouter's details.

        Else `reasoning_text` (GitHub Copilot) or `thinking` (gateways to models that call it so).
        """
        said = delta.get("reasoning_content")
        other = delta.get("reasoning")
        bits = self.think(said) | (self.think(other) if other != said else 0)
        bits = bits or self.think(delta.get("reasoning_text")) or self.think(delta.get("thinking"))
        details = delta.get("reasoning_details")
        if isinstance(details, list) and details:
            bits |= self._details(details, told=bits != 0)
        elif bits:
            self.raw_reasoning = True
        return bits

    def _details(self, details: list[Any], *, told: bool) -> int:
        """`reasoning_details`: text, summaries, and encrypted parts, which are no output.

        Source: OpenRouter's documentation, "Reasoning Tokens". The text also stands in `reasoning`
        (then `told`), which alone does not say whether it is a summary.
        """
        bits = 0
        for part in details:
            if isinstance(part, dict):
                text, summary = part.get("text"), part.get("summary")
                self.raw_reasoning |= bool(text)
                self.summaries |= bool(summary)
                bits |= 0 if told else self.think(text) | self.think(summary)
        return bits

    def think(self, text: object) -> int:
        """Take a piece of reasoning; bits of what it carries."""
        if isinstance(text, str) and text:
            self.reasoning.append(text)
            return REASONING
        return 0


def _thought(thinking: object) -> str:
    """Mistral's `thinking`: a text or a list of text parts."""
    parts = thinking if isinstance(thinking, list) else [thinking]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))
