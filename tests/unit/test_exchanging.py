"""What of a prompt a server holds, and how a step's wait ends."""

import asyncio
from dataclasses import replace

import pytest

from harness.clock import MachineClock
from harness.errors import Interrupted
from harness.values import Answer, Block, Role, Timeline, ToolCall
from harness.workloads.exchanging import Held, until

SYSTEM = Block("system", 9, Role.SYSTEM)
USER = Block("user", 5, Role.USER)
PLANNED = (ToolCall("plan-0", "read", "{}"), ToolCall("plan-1", "web", "{}"))
MADE = (ToolCall("made-a", "read", '{"x":1}'), ToolCall("made-b", "web", "{}"))
SAID = Block("said", 7, Role.ASSISTANT, tool_calls=PLANNED)
RESULTS = tuple(Block(f"result-{i}", 3, Role.TOOL, answers=f"plan-{i}") for i in range(2))


def answered(tool_calls=MADE, *, request_id="r-1", ok=True):
    held = Held()
    answer = Answer(tool_calls=tool_calls, request_id=request_id)
    held.answered((SYSTEM, USER), Timeline(sent_ns=0, done_ns=1, answer=answer), ok=ok)
    return held


def test_only_what_is_new_is_sent_and_results_go_to_the_calls_that_were_made():
    new, follows = answered().rest((SYSTEM, USER, SAID, *RESULTS))
    assert follows == "r-1"
    assert [block.id for block in new] == ["result-0", "result-1"]
    assert [block.answers for block in new] == ["made-a", "made-b"]


def test_a_live_answer_keeps_the_ids_it_has():
    said = replace(SAID, tool_calls=MADE)
    results = tuple(replace(one, answers=made.id) for one, made in zip(RESULTS, MADE, strict=True))
    new, _ = answered().rest((SYSTEM, USER, said, *results))
    assert [block.answers for block in new] == ["made-a", "made-b"]


@pytest.mark.parametrize(
    ("held", "blocks"),
    [
        pytest.param(Held(), (SYSTEM, USER), id="nothing was answered"),
        pytest.param(answered(ok=False), (SYSTEM, USER, SAID, *RESULTS), id="the answer failed"),
        pytest.param(answered(request_id=None), (SYSTEM, USER, SAID, *RESULTS), id="it has no id"),
        pytest.param(answered(MADE[:1]), (SYSTEM, USER, SAID, *RESULTS), id="other calls than planned"),
        pytest.param(answered(), (SYSTEM, Block("summary", 4, Role.USER)), id="a summary"),
        pytest.param(answered(), (SYSTEM, Block("other", 5, Role.USER), SAID, *RESULTS), id="another prompt"),
        pytest.param(answered(), (SYSTEM, USER, SAID), id="nothing new"),
        pytest.param(answered(()), (SYSTEM, USER, USER, USER), id="no answer in it"),
    ],
)
def test_else_the_whole_prompt_is_sent(held, blocks):
    assert held.rest(blocks) is None


async def waiting():
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        raise Interrupted(Timeline(sent_ns=1, done_ns=2)) from None


def test_an_exchange_is_cancelled_at_its_time_and_says_so():
    clock = MachineClock()

    async def main():
        at_ns = clock.now_ns() + 20_000_000
        return at_ns, await until(at_ns, waiting(), clock=clock)

    at_ns, timeline = asyncio.run(main())
    assert timeline.cancelled_ns >= at_ns


@pytest.mark.parametrize("cancel_s", [None, 50.0])
def test_whoever_else_cancels_is_obeyed(cancel_s):
    clock = MachineClock()

    async def main():
        at_ns = None if cancel_s is None else clock.now_ns() + round(cancel_s * 1e9)
        task = asyncio.ensure_future(until(at_ns, waiting(), clock=clock))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return task.cancelled()

    assert asyncio.run(main())
