"""Dialect `gemini`: streamGenerateContent, as events or as a JSON array, and the Interactions API.

Source: Gemini API reference, "Generating content"; the types of Google's Python client. Each event is a whole
GenerateContentResponse with a piece of the text; there is no end mark.
"""

from typing import Any

from harness.values import ErrorKind
from harness.wire import interactions
from harness.wire.choice import REASONING, TOOL, ChoiceState
from harness.wire.dialect import Dialect
from harness.wire.draft import Draft
from harness.wire.gemini_request import encode
from harness.wire.interactions import total
from harness.wire.json_array import ALONE
from harness.wire.refusal import AT_ONCE
from harness.wire.sse_or_array import EitherReader
from harness.wire.usage import count
from harness.wire.vendors import take_times

_ANSWER_KEYS = ("candidates", "steps", "outputs")

_TRAFFIC = {"ON_DEMAND": "standard", "ON_DEMAND_PRIORITY": "priority", "ON_DEMAND_FLEX": "flex"}
"""Vertex AI's words for the tiers that the Gemini API calls `serviceTier`."""


class GeminiReading:
    """What the events mean: parts of candidates, or steps of an interaction, with counts so far."""

    __slots__ = ("draft",)

    def __init__(self) -> None:
        self.draft = Draft()

    def event(self, event: dict[str, Any], name: str) -> int:
        """Take one event; bits of what it carries."""
        if name == ALONE:
            self._alone(event)
            return 0
        kind = event.get("event_type")
        if kind is not None:
            bits = interactions.take_event(self.draft, kind, event)
            told = interactions.usage_in(event)
            counts = interactions.counts_of_interaction(told) if type(told) is dict else {}
        else:
            bits = self._response(event)
            counts = self._counts_of_response(event.get("usageMetadata"))
        self._told(counts, bits)
        if not bits:
            take_times(event, self.draft.timing)
        return bits

    def whole(self, answer: dict[str, Any]) -> None:
        """Take an answer that was sent at once."""
        if "candidates" in answer:
            self.event(answer, "")
            return
        interactions.take_whole(self.draft, answer)
        usage = answer.get("usage")
        self._told(interactions.counts_of_interaction(usage) if type(usage) is dict else {}, 0)

    def counts(self) -> dict[str, object]:
        """Tell the newest counts. Thoughts alone are no count of an answer of which something came."""
        told = self.draft.usage
        names = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
        found = {name: told.get(name) for name in names}
        state = self.draft.choices[0]
        if found["output_tokens"] is None and not state.text and not state.tools.whole():
            found["output_tokens"] = found["reasoning_tokens"]
        return found

    def _alone(self, answer: dict[str, Any]) -> None:
        """Take an object that stands in no array: it came at once, whatever it is."""
        self.whole(answer)
        if answer.get("error"):
            self.draft.broke(answer)
        if any(key in answer for key in _ANSWER_KEYS):
            self.draft.fail(ErrorKind.NOT_STREAMED, AT_ONCE)
        else:
            self.draft.fail(ErrorKind.NOT_SSE, "the body is a JSON object that no answer looks like")

    def _told(self, counts: dict[str, object], bits: int) -> None:
        """Keep what was told; servers leave out what is 0, so the newest number of each stands."""
        told = {name: value for name, value in counts.items() if value is not None}
        self.draft.usage |= told
        if bits and "output_tokens" in told:
            self.draft.total = count(told["output_tokens"])

    def _response(self, event: dict[str, Any]) -> int:
        draft = self.draft
        if event.get("error"):
            draft.broke(event)
        draft.named(event.get("responseId"))
        take_times(event, draft.timing)
        feedback = event.get("promptFeedback")
        if type(feedback) is dict and feedback.get("blockReason"):
            draft.finish(draft.choices[0], feedback["blockReason"])
        bits = 0
        candidates = event.get("candidates")
        for candidate in candidates if type(candidates) is list else ():
            if type(candidate) is dict:
                bits |= self._candidate(candidate)
        return bits

    def _candidate(self, candidate: dict[str, Any]) -> int:
        state = self.draft.choice(candidate.get("index"))
        if candidate.get("finishReason"):
            self.draft.finish(state, candidate["finishReason"])
        content = candidate.get("content")
        parts = content.get("parts") if type(content) is dict else None
        bits = 0
        for part in parts if type(parts) is list else ():
            if type(part) is dict:
                bits |= _part(state, part)
        return bits

    def _counts_of_response(self, usage: object) -> dict[str, object]:
        """Name what `usageMetadata` tells: candidates and thoughts are counted apart there."""
        if type(usage) is not dict:
            return {}
        traffic = usage.get("trafficType")
        self.draft.served(usage.get("serviceTier"))
        self.draft.served(_TRAFFIC.get(traffic, traffic) if isinstance(traffic, str) else None)
        thoughts, said = usage.get("thoughtsTokenCount"), usage.get("candidatesTokenCount")
        return {
            "input_tokens": total(usage.get("promptTokenCount"), usage.get("toolUsePromptTokenCount")),
            "output_tokens": total(said, thoughts),
            "cached_tokens": usage.get("cachedContentTokenCount"),
            "reasoning_tokens": thoughts,
        }


def _part(state: ChoiceState, part: dict[str, Any]) -> int:
    """Take one part. Thoughts are summaries; calls come whole, on Vertex AI on request in pieces."""
    if part.get("thought") is True:
        bits = state.think(part.get("text"))
        state.summaries |= bits == REASONING
        return bits
    bits = state.said(part.get("text"))
    call = part.get("functionCall")
    if type(call) is dict:
        if call.get("partialArgs") and not call.get("name"):
            return bits | TOOL
        if call and state.tools.add_whole(call.get("name"), call.get("id"), call.get("args", {})):
            bits |= TOOL
    if type(part.get("executableCode")) is dict:  # the model's own call of a tool that runs with the server
        bits |= TOOL
    return bits


def key_header(key: str) -> dict[str, str]:
    """Carry a key as Google wants it."""
    return {"x-goog-api-key": key}


DIALECT = Dialect(
    name="gemini",
    encode=encode,
    reading=GeminiReading,
    frames=EitherReader,
    stream_types=("text/event-stream", "application/json"),
    paths=(":streamGenerateContent", "/interactions"),
    answer_keys=_ANSWER_KEYS,
    headers=key_header,
)
