"""Dialect `ollama`: POST /api/chat, and /api/generate where the request has a suffix; one JSON object a line.

Source: Ollama, docs/api.md; its Python client's `_types.py`.
"""

from itertools import groupby
from typing import Any

from harness.values import Block, Request, Role
from harness.wire.choice import TOOL
from harness.wire.dialect import Dialect
from harness.wire.draft import Draft
from harness.wire.ndjson import LineReader
from harness.wire.prompt import arguments_of, text_of, tool, with_body
from harness.wire.vendors import take_times


class OllamaReading:
    """What the lines mean: a piece of the message in each; the last has `done` and all counts and times."""

    __slots__ = ("draft",)

    def __init__(self) -> None:
        self.draft = Draft()

    def event(self, event: dict[str, Any], name: str) -> int:  # noqa: ARG002 - lines have no names
        """Take one line; bits of what it carries."""
        draft = self.draft
        if event.get("error"):
            draft.broke(event)
        state = draft.choices[0]
        message = event.get("message")
        if type(message) is not dict:  # /api/generate
            message = {"content": event.get("response"), "thinking": event.get("thinking")}
        calls = message.get("tool_calls")
        bits = state.delta(message | {"reasoning": message.get("thinking"), "tool_calls": None})
        for call in calls if type(calls) is list else ():
            function = call.get("function") if type(call) is dict else None
            if type(function) is dict:
                came = state.tools.add_whole(function.get("name"), call.get("id"), function.get("arguments"))
                bits |= TOOL if came else 0
        if event.get("done") is True:
            draft.usage = event
            draft.finish(state, event.get("done_reason") or "stop")
            take_times(event, draft.timing)
            draft.over = True
        return bits

    def whole(self, answer: dict[str, Any]) -> None:
        """Take an answer that was sent at once: it is the last line, with all of the message."""
        self.event(answer, "")

    def counts(self) -> dict[str, object]:
        """Tell the counts of the last line; thinking is in `eval_count`, how much of it is not told."""
        return {
            "input_tokens": self.draft.usage.get("prompt_eval_count"),
            "output_tokens": self.draft.usage.get("eval_count"),
            "cached_tokens": None,
            "reasoning_tokens": None,
        }


def encode(request: Request) -> Request:
    """Fill `path` and `body`. There is no way to force a length, and no tier."""
    body: dict[str, Any] = {
        "model": request.model,
        "stream": True,
        "options": {"num_predict": request.max_tokens},
    }
    if request.suffix:
        body |= {"prompt": text_of(request.blocks), "suffix": text_of(request.suffix)}
        return with_body(request, body, path="/api/generate")
    body["messages"] = _messages(request.blocks)
    if request.tools:
        body["tools"] = [tool(name) for name in request.tools]
    return with_body(request, body, path="/api/chat")


def _messages(blocks: tuple[Block, ...]) -> list[dict[str, Any]]:
    """Neighbouring blocks of one role are one message, tool results stay apart and name their tool."""
    names = {call.id: call.name for block in blocks for call in block.tool_calls}
    messages: list[dict[str, Any]] = []
    for role, group in groupby(blocks, key=lambda block: block.role):
        run = list(group)
        if role is Role.TOOL:
            messages += [
                {"role": role, "tool_name": names.get(block.answers or "", ""), "content": text_of([block])}
                for block in run
            ]
            continue
        message: dict[str, Any] = {"role": role, "content": text_of(run)}
        if calls := [call for block in run for call in block.tool_calls]:
            message["tool_calls"] = [
                {"function": {"name": call.name, "arguments": arguments_of(call)}} for call in calls
            ]
        messages.append(message)
    return messages


DIALECT = Dialect(
    name="ollama",
    encode=encode,
    reading=OllamaReading,
    frames=LineReader,
    stream_types=("application/x-ndjson", "application/ndjson", "application/jsonl"),
    paths=("/api/chat", "/api/generate"),
    answer_keys=("message", "response"),
)
