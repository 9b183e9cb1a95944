"""How a step exchanges: until when an answer is wanted, and what of a prompt the server holds already."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Protocol

from harness.clock import Clock
from harness.errors import Interrupted
from harness.values import Block, Role, Timeline, ToolCall


class Conversations(Protocol):
    """A transport that keeps a conversation's state in its connection."""

    def holds(self, conversation: str) -> bool:
        """Tell whether the conversation's connection is open."""

    def leave(self, conversation: str) -> None:
        """Close it: the conversation is over."""


async def until(cancel_ns: int | None, exchange: Awaitable[Timeline], *, clock: Clock) -> Timeline:
    """Wait for an exchange until `cancel_ns`; its Timeline says whether it was cancelled then."""
    if cancel_ns is None:
        return await exchange
    task = asyncio.current_task()
    async with asyncio.timeout((cancel_ns - clock.now_ns()) / 1e9) as scope:
        try:
            return await exchange
        except Interrupted as stop:
            if not scope.expired() or (task is not None and task.cancelling() > 1):  # by somebody else
                raise
            return replace(stop.timeline, cancelled_ns=stop.timeline.cancelled_ns or clock.now_ns())


class Held:
    """What a server holds of one conversation: the prompt of its last answer, and that answer.

    The answer is held as the server gave it. Where the plan makes the history, its own words for that answer
    are left out, and the planned results are given to the calls that the model really made.
    """

    def __init__(self) -> None:
        self._blocks: tuple[Block, ...] = ()
        self._tool_calls: tuple[ToolCall, ...] = ()
        self._response_id: str | None = None

    def answered(self, blocks: tuple[Block, ...], timeline: Timeline, *, ok: bool) -> None:
        """Keep what the newest call leaves with the server; nothing, if it did not end well."""
        self._blocks, self._tool_calls = blocks, timeline.answer.tool_calls
        self._response_id = timeline.answer.request_id if ok else None

    def rest(self, blocks: tuple[Block, ...]) -> tuple[tuple[Block, ...], str] | None:
        """Give the blocks that are new, and the id of the answer that they follow.

        None if the whole prompt must be sent: it does not go on from the last one (a summary took its place),
        or the plan's tool calls are not those that the model made.
        """
        held = len(self._blocks)
        if self._response_id is None or len(blocks) < held + 2 or _ids(blocks[:held]) != _ids(self._blocks):
            return None
        answer, new = blocks[held], blocks[held + 1 :]
        if answer.role is not Role.ASSISTANT or len(answer.tool_calls) != len(self._tool_calls):
            return None
        really = {
            planned.id: made.id for planned, made in zip(answer.tool_calls, self._tool_calls, strict=True)
        }
        return tuple(_answering(block, really) for block in new), self._response_id


def _ids(blocks: Sequence[Block]) -> list[str]:
    return [block.id for block in blocks]


def _answering(block: Block, really: dict[str, str]) -> Block:
    return (
        block if block.answers is None else replace(block, answers=really.get(block.answers, block.answers))
    )
