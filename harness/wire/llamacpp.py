"""Dialect `llamacpp`: llama-server's own POST /completion, and /infill where the request has a suffix.

Source: llama.cpp, tools/server/README.md and server-task.cpp (`to_json_non_oaicompat`). Its other
interfaces are the dialects that they copy.
"""

from typing import Any

from harness.values import Request
from harness.wire.choice import ChoiceState
from harness.wire.dialect import Dialect
from harness.wire.draft import Draft
from harness.wire.prompt import text_of, with_body
from harness.wire.sse import FrameReader
from harness.wire.usage import count
from harness.wire.vendors import take_times


class LlamacppReading:
    """What the events mean: `content` in each, `stop` in the last; a prompt's progress has no content."""

    __slots__ = ("_open", "_tokens", "draft")

    def __init__(self) -> None:
        self.draft = Draft()
        self._tokens = 0  # output tokens so far, where only the events' lists of them tell
        self._open: set[int] = set()  # choices without their end, where several prompts were sent

    def event(self, event: dict[str, Any], name: str) -> int:  # noqa: ARG002 - its events have no names
        """Take one event; bits of what it carries."""
        draft = self.draft
        if event.get("error"):
            draft.broke(event)
        state = draft.choice(event.get("index"))
        bits = state.said(event.get("content"))
        self._count(event, bits)
        index = event.get("index")
        place = index if type(index) is int else 0
        if event.get("stop") is True:
            take_times(event, draft.timing)
            self._stopped(state, event)
            self._open.discard(place)
            draft.over = not self._open
        elif bits:
            self._open.add(place)
        return bits

    def whole(self, answer: dict[str, Any]) -> None:
        """Take an answer that was sent at once: it is the last event, with all of the content."""
        self.event(answer, "")

    def counts(self) -> dict[str, object]:
        """Tell the newest counts. `tokens_cached` is what the slot holds in the end, no part of the input."""
        told = self.draft.usage
        return {
            "input_tokens": told.get("tokens_evaluated"),
            "output_tokens": told.get("tokens_predicted"),
            "cached_tokens": told.get("cache_n"),
            "reasoning_tokens": None,
        }

    def _count(self, event: dict[str, Any], bits: int) -> None:
        """Keep the running total: a character of several tokens comes whole, with the last of them only."""
        timings, tokens, said = event.get("timings"), event.get("tokens"), event.get("tokens_predicted")
        if type(timings) is dict and "cache_n" in timings:
            self.draft.usage["cache_n"] = timings["cache_n"]
        self.draft.usage |= {
            key: event[key] for key in ("tokens_evaluated", "tokens_predicted") if key in event
        }
        if bits and said is not None:
            self.draft.total = count(said)
        elif bits and type(tokens) is list and tokens:
            self._tokens += len(tokens)
            self.draft.total = self._tokens

    def _stopped(self, state: ChoiceState, event: dict[str, Any]) -> None:
        """Keep why it ended; older servers say it by a flag."""
        flags = ("stopped_eos", "stopped_word", "stopped_limit")
        flag = next((flag.removeprefix("stopped_") for flag in flags if event.get(flag) is True), "stop")
        self.draft.finish(state, event.get("stop_type") or flag)


def encode(request: Request) -> Request:
    """Fill `path` and `body`: all blocks are one text, without a chat template. No tiers, no tools."""
    body: dict[str, Any] = {"model": request.model, "stream": True, "n_predict": request.max_tokens}
    if request.min_tokens is not None:
        body["ignore_eos"] = True
    if request.suffix:
        body |= {"input_prefix": text_of(request.blocks), "input_suffix": text_of(request.suffix)}
        return with_body(request, body, path="/infill")
    return with_body(request, body | {"prompt": text_of(request.blocks)}, path="/completion")


DIALECT = Dialect(
    name="llamacpp",
    encode=encode,
    reading=LlamacppReading,
    frames=FrameReader,
    stream_types=("text/event-stream",),
    paths=("/completion", "/infill"),
    answer_keys=("content",),
)
