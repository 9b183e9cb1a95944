"""Dialect `openai-chat`: POST /chat/completions with `stream: true`, as OpenAI and many others speak it.

Source of the format: OpenAI's API reference, "Chat Completions, streaming"; what other servers do
to it is told by tests/data/sse_cases.json, each case with its report.
"""

from typing import Any

from harness.wire import refusal as refusals
from harness.wire.choice import TEXT, ChoiceState
from harness.wire.dialect import Dialect
from harness.wire.draft import Draft
from harness.wire.prompt import encode
from harness.wire.sse import FrameReader
from harness.wire.usage import count, counts_of_chat
from harness.wire.vendors import take_times


class ChatReading:
    """What chat's events mean: `choices` with deltas, and usage somewhere."""

    __slots__ = ("draft",)

    def __init__(self) -> None:
        self.draft = Draft()

    def event(self, event: dict[str, Any], name: str) -> int:  # noqa: ARG002 - chat names no events
        """Take one event; bits of what it carries."""
        draft = self.draft
        usage = event.get("usage")
        if usage:
            self._told(usage)
        if event.get("error"):
            draft.broke(event)
        if draft.request_id is None or "service_tier" in event:
            draft.named(event.get("id"))
            draft.served(event.get("service_tier"))
        bits = 0
        choices = event.get("choices")
        if type(choices) is list:
            for choice in choices:
                bits |= self._choice(choice)
        if usage or not bits or "timings" in event:
            self._beside(event, bits)
        return bits

    def whole(self, answer: dict[str, Any]) -> None:
        """Take an answer that was sent at once: its messages are deltas that are complete."""
        choices = answer.get("choices")
        for choice in choices if type(choices) is list else ():
            if type(choice) is dict:
                self._choice(choice | {"delta": choice.get("message")})
        self.event({key: value for key, value in answer.items() if key != "choices"}, "")

    def counts(self) -> dict[str, object]:
        """Tell the newest usage."""
        return counts_of_chat(self.draft.usage)

    def _choice(self, choice: object) -> int:
        """Take one choice's part of an event; bits of what it carries."""
        if type(choice) is not dict:
            return 0
        state = self.draft.choice(choice.get("index"))
        if choice.get("finish_reason"):  # some servers say "" for null
            self._finish(state, choice)
        delta = choice.get("delta")
        if not delta or type(delta) is not dict:
            return state.said(choice.get("text")) or self._message(state, choice)  # legacy completions
        if len(delta) == 1:  # the usual one
            content = delta.get("content")
            if content and type(content) is str:
                state.text.append(content)
                return TEXT
        return state.delta(delta)

    def _message(self, state: ChoiceState, choice: dict[str, Any]) -> int:
        """Take a whole message in an event: all of the answer, unless it comes behind its pieces."""
        message = choice.get("message")
        if type(message) is not dict or state.text or state.reasoning or state.tools.whole():
            return 0
        return state.delta(message)

    def _beside(self, event: dict[str, Any], bits: int) -> None:
        """Take what stands beside the choices: running totals; at the end times, and usage in odd places."""
        draft, usage = self.draft, event.get("usage")
        if bits:
            self._running(usage, event.get("timings"))
            if draft.choices[0].finish_reason is None:
                return
        elif "choices" not in event and refusals.fails(event):
            draft.broke(event, "the server sent an error without a message")
        take_times(event, draft.timing)
        groq = event.get("x_groq")
        if not usage and type(groq) is dict:  # Groq, where usage was not asked for
            self._told(groq.get("usage"))
            if groq.get("error"):
                draft.broke({"error": groq["error"]})

    def _running(self, usage: object, timings: object) -> None:
        """Keep the running total of tokens that few streams tell.

        `usage`: vLLM's `continuous_usage_stats`; `timings`: llama.cpp's `timings_per_token`.
        """
        said = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if said is None and isinstance(timings, dict):
            said = timings.get("predicted_n")
        self.draft.total = count(said)
        self.draft.implausible |= said is not None and self.draft.total is None

    def _told(self, usage: object) -> None:
        """Keep the newest usage that holds a number: `{}`, nulls or zeros at the end do not take one back."""
        if type(usage) is not dict:
            return
        counts = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
        if any(counts) or (0 in counts and not self.draft.usage):
            if None in counts:  # each of the two in an event of its own
                usage = self.draft.usage | {key: told for key, told in usage.items() if told is not None}
            self.draft.usage = usage
        self.draft.served(usage.get("service_tier"))

    def _finish(self, state: ChoiceState, choice: dict[str, Any]) -> None:
        self.draft.finish(state, choice["finish_reason"])
        self._told(choice.get("usage"))  # Moonshot's place for it
        if state.finish_reason == "error":
            self.draft.broke(choice, "the server ended the answer with finish_reason error")


DIALECT = Dialect(
    name="openai-chat",
    encode=encode,
    reading=ChatReading,
    frames=FrameReader,
    stream_types=("text/event-stream",),
    paths=("/chat/completions",),
    answer_keys=("choices",),
)
