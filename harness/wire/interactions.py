"""Gemini's Interactions API: typed events, steps with deltas.

Source: Gemini API documentation, "Streaming interactions", and the types of Google's Python client
(`InteractionSSEEvent`). Versions before May 2026 said `content.delta` for `step.delta`, and sent the parts of
an answer as `outputs`.
"""

from typing import Any

from harness.wire.choice import REASONING, TOOL, ChoiceState
from harness.wire.draft import Draft
from harness.wire.usage import count

_STARTS = ("step.start", "content.start")
_DELTAS = ("step.delta", "content.delta")
_ENDS = ("interaction.completed", "interaction.complete")
_RUNNING = ("in_progress", "queued", "idle")
_BROKEN = ("failed", "cancelled")


def counts_of_interaction(usage: dict[str, Any]) -> dict[str, object]:
    """Name what an interaction's `usage` tells: output and thoughts are counted apart there."""
    thoughts = usage.get("total_thought_tokens")
    return {
        "input_tokens": total(usage.get("total_input_tokens"), usage.get("total_tool_use_tokens")),
        "output_tokens": total(usage.get("total_output_tokens"), thoughts),
        "cached_tokens": usage.get("total_cached_tokens"),
        "reasoning_tokens": thoughts,
    }


def total(main: object, more: object) -> object:
    """Add counts of which the second may be left out where it is 0; what can be no count is told as it is."""
    counted, added = count(main), count(more)
    if counted is None or more is None:
        return main
    return more if added is None else counted + added


def take_event(draft: Draft, kind: object, event: dict[str, Any]) -> int:
    """Take one event whose `event_type` is `kind`; bits of what it carries."""
    if event.get("error"):
        draft.broke(event)
    interaction = event.get("interaction")
    if type(interaction) is dict:
        _about(draft, interaction)
    if kind == "interaction.status_update":
        _ended(draft, event.get("status"))
    elif kind in _ENDS:
        draft.over = True
    state, delta = draft.choices[0], event.get("delta")
    step = event.get("step") or event.get("content")
    if kind in _STARTS and type(step) is dict:
        return _begun(state, step, event.get("index"))
    if kind in _DELTAS and type(delta) is dict:
        return _delta(state, delta, event.get("index"))
    return 0


def usage_in(event: dict[str, Any]) -> object:
    """Find the usage of the whole interaction so far; `step_usage` is that of a step."""
    interaction, metadata = event.get("interaction"), event.get("metadata")
    if type(interaction) is dict and interaction.get("usage"):
        return interaction["usage"]
    if type(metadata) is dict and metadata.get("total_usage"):
        return metadata["total_usage"]
    return event.get("usage")


def take_whole(draft: Draft, interaction: dict[str, Any]) -> None:
    """Take an interaction that was sent at once."""
    _about(draft, interaction)
    steps = interaction.get("steps", interaction.get("outputs"))
    for step in steps if type(steps) is list else ():
        if type(step) is dict:
            _whole_step(draft.choices[0], step)


def _about(draft: Draft, interaction: dict[str, Any]) -> None:
    draft.named(interaction.get("id"))
    draft.served(interaction.get("service_tier"))
    if interaction.get("error"):
        draft.broke(interaction)
    _ended(draft, interaction.get("status"))


def _ended(draft: Draft, status: object) -> None:
    """Take a status that is an end."""
    if isinstance(status, str) and status not in _RUNNING:
        draft.finish(draft.choices[0], status)
        if status in _BROKEN:
            draft.broke({}, f"the interaction ended with status {status}")


def _begun(state: ChoiceState, step: dict[str, Any], index: object) -> int:
    """Take a step's start: of a function call it brings the name, of others sometimes the first piece."""
    if step.get("type") == "function_call":
        function = {"name": step.get("name"), "arguments": step.get("arguments")}
        entry = {"index": index, "id": step.get("id"), "function": function}
        return TOOL if state.tools.add([entry]) else 0
    return _whole_step(state, step)


def _whole_step(state: ChoiceState, step: dict[str, Any]) -> int:
    """Take a step with all or some of its content."""
    kind = step.get("type")
    if kind == "function_call":
        came = state.tools.add_whole(step.get("name"), step.get("id"), step.get("arguments"))
        return TOOL if came else 0
    if kind == "text":
        return state.said(step.get("text"))
    bits = 0
    parts = step.get("summary" if kind == "thought" else "content")
    for part in parts if type(parts) is list else ():
        if type(part) is dict:
            bits |= _thought(state, part) if kind == "thought" else state.said(part.get("text"))
    return bits


def _delta(state: ChoiceState, delta: dict[str, Any], index: object) -> int:
    """Take a delta by its type. Pictures, sounds and results are no output; calls of server tools are."""
    kind = delta.get("type")
    if kind == "text":
        return state.said(delta.get("text"))
    if kind == "thought_summary":
        return _thought(state, delta.get("content"))
    if kind == "arguments_delta":
        function = {"arguments": delta.get("arguments")}
        return TOOL if state.tools.add([{"index": index, "function": function}]) else 0
    if kind == "function_call":  # before May 2026
        came = state.tools.add_whole(delta.get("name"), delta.get("id"), delta.get("arguments"))
        return TOOL if came else 0
    return TOOL if isinstance(kind, str) and kind.endswith("_call") else 0


def _thought(state: ChoiceState, content: object) -> int:
    """Take a piece of a summary: Gemini streams no thought itself."""
    text = content.get("text") if type(content) is dict else None
    bits = state.think(text)
    state.summaries |= bits == REASONING
    return bits
