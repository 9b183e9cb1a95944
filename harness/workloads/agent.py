"""Workload `agent`: a task is one human request to its final answer, with tool loops inside.

What a model really answers shapes the history (`history = "live"`), never the plan.
"""

from collections.abc import Iterable
from dataclasses import replace

import orjson

from harness.results import FindingName
from harness.values import Block, Role, ToolCall
from harness.workloads.agent_plan import (
    TOOL_NAMES,
    AgentParameters,
    AgentPlan,
    AgentPlanner,
    PlannedStep,
    PlannedTool,
)
from harness.workloads.step import History, PlannedCall, Reply, Step, ToolWait

SIDE_BY_SIDE = ("read", "web")
"""Reads run in parallel, writes and shell one after the other (Copilot release, arXiv 2608.00101)."""


async def run(step: Step, plan: AgentPlan, history: History, parameters: AgentParameters) -> History:
    """Work through the plan; returns what the session's next task goes on from."""
    name = step.setting.workload
    head = (*step.salt("shared"), Block(f"{name}/system", plan.system_tokens, Role.SYSTEM))
    if not history:  # the session's first task, or nothing is left of those before, such as a time-out
        history = step.salt(plan.session_place)
        if plan.session_tokens:
            history += (Block(f"{plan.session_place}/opening", plan.session_tokens, Role.USER),)
    history += (Block(f"{plan.place}/user", plan.user_tokens, Role.USER),)
    for index, planned in enumerate(plan.steps):
        place = f"{plan.place}/{index}"
        reply = await step.call(_planned_call(planned, (*head, *history)))
        if not reply.ok:
            break
        if planned.summary_tokens:
            summary = Block(f"{place}/summary", planned.summary_tokens, Role.USER)
            history = (*step.salt(plan.session_place), summary)
            await step.agent(planned.agent_s)
            continue
        if parameters.history == "scripted":
            history += _scripted(planned, place)
            step.plan_mismatch += len(reply.tool_calls) != len(planned.tools)
        else:
            blocks, mismatches = _live(planned, reply, place)
            history += blocks
            step.plan_mismatch += mismatches
        if planned.tools:
            await step.tools(tuple(_wait(tool) for tool in planned.tools))
            await step.agent(planned.agent_s)
    return history


def _planned_call(planned: PlannedStep, blocks: tuple[Block, ...]) -> PlannedCall:
    return PlannedCall(
        blocks=blocks,
        output_tokens=planned.output_tokens,
        reasoning_tokens=planned.reasoning_tokens,
        tool_calls=tuple((TOOL_NAMES[tool.category], tool.call_tokens) for tool in planned.tools),
        tools=tuple(TOOL_NAMES.values()),
    )


def _wait(tool: PlannedTool) -> ToolWait:
    return ToolWait(TOOL_NAMES[tool.category], tool.duration_s, tool.category in SIDE_BY_SIDE)


def _scripted(planned: PlannedStep, place: str) -> History:
    """Make the planned answer and results: the same bytes on every backend."""
    calls = tuple(
        ToolCall(f"call-{place}-{i}", TOOL_NAMES[tool.category], "{}") for i, tool in enumerate(planned.tools)
    )
    visible = planned.output_tokens - planned.reasoning_tokens
    said = Block(f"{place}/answer", visible, Role.ASSISTANT, tool_calls=calls)
    results = (
        Block(f"{place}/result{i}", tool.result_tokens, Role.TOOL, answers=call.id)
        for i, (tool, call) in enumerate(zip(planned.tools, calls, strict=True))
    )
    return (said, *results)


def _live(planned: PlannedStep, reply: Reply, place: str) -> tuple[History, int]:
    """Make the history from what the model really said, and count what differs from the plan.

    Every received call gets a result of the planned size (of the last planned one where more calls
    came than planned); a planned result without a call is told as a user message.
    """
    sizes = [tool.result_tokens for tool in planned.tools]
    received = len(reply.tool_calls)
    calls = tuple(_readable(call) for call in reply.tool_calls)
    said = Block(f"{place}/answer", reply.tokens, Role.ASSISTANT, reply.text, calls)
    results = tuple(
        Block(
            f"{place}/result{i}", (sizes[min(i, len(sizes) - 1)] if sizes else 1), Role.TOOL, answers=call.id
        )
        for i, call in enumerate(reply.tool_calls)
    )
    told = tuple(Block(f"{place}/told{i}", size, Role.USER) for i, size in enumerate(sizes) if i >= received)
    return (said, *results, *told), abs(len(sizes) - received)


def _readable(call: ToolCall) -> ToolCall:
    """Give a call whose arguments are an object, as agents send it back.

    Where the limit cut it off they are broken JSON, which servers refuse in a history; the model then reads
    what it said as the text of one argument.
    """
    try:
        if type(orjson.loads(call.arguments)) is dict:
            return call
    except orjson.JSONDecodeError:
        pass
    return replace(call, arguments=orjson.dumps({"input": call.arguments}).decode())


def caveats(planner: AgentPlanner, ks: Iterable[int]) -> list[tuple[FindingName, str]]:
    """Say what the reader must know of these tasks' plans: how much tool time the cap cut off."""
    tools = [tool for k in ks for step in planner.task(k).steps for tool in step.tools]
    cut, kept = sum(tool.cut_s for tool in tools), sum(tool.duration_s for tool in tools)
    found = []
    parameters = planner.parameters
    if cut:
        share = cut / (cut + kept)
        detail = (
            f"tool times are capped at {parameters.tool_s_max:g} s: that cut off {share:.0%} of the planned"
            f" tool time, in {sum(tool.cut_s > 0 for tool in tools)} of {len(tools)} tool runs"
        )
        found.append((FindingName.TOOL_TAIL_CUT, detail))
    if parameters.length_scale != 1 or parameters.calls_scale != 1:
        detail = (
            f"lengths are scaled by {parameters.length_scale:g} and calls by {parameters.calls_scale:g}"
            f" (at most {parameters.calls_max}): the shape of a coding agent's tasks, not their size"
        )
        found.append((FindingName.SHORTENED, detail))
    return found


def estimate(planner: AgentPlanner, ks: range) -> tuple[int, int, int]:
    """Count calls, input and output tokens of the planned tasks: what a money guard must know."""
    steps = [step for k in ks for step in planner.task(k).steps]
    return len(steps), sum(s.input_tokens for s in steps), sum(s.output_tokens for s in steps)
