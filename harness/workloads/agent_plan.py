"""Plans of agent tasks: everything that is decided before a task starts.

The plan of task k follows from (seed, workload, k) alone, so every backend gets the same task.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, Field, ValidationInfo, field_validator

from harness.arrivals import stream_seed, task_seed
from harness.distributions import Distribution, Names, bounded
from harness.tables import TABLE, no_such
from harness.workloads.step import Session

WITH_TOOLS = 2
"""A task with tools has at least two calls; scaling does not turn one into a plain answer."""

TOOL_CALL_TOKENS_MIN = 8
"""A call's name, braces and one argument; shorter ones are not JSON."""

TOKENS_MAX = 10_000_000
"""A drawn length is cut here, before scaling; more than any context window."""

TOOLS_MAX = 64
"""Tools of one step at most."""

WAIT_S_MAX = 31_536_000.0
"""A drawn time is cut at a year: what is far longer does not fit into a timer."""

CALLS_MAX = 10_000
"""Calls of a task, and tasks of a session, at most: they are planned at one go."""

TOOL_NAMES = {
    "shell": "run_shell",
    "edit": "edit_file",
    "read": "read_file",
    "plan": "update_plan",
    "web": "search_web",
}
"""Tools an agent has: category -> the name that the model knows."""

Times = Annotated[Distribution, bounded(WAIT_S_MAX)]
Tokens = Annotated[Distribution, bounded(TOKENS_MAX)]


class Compaction(BaseModel):
    """When the planned context exceeds the trigger, one extra call sums it up and most is dropped."""

    model_config = TABLE

    trigger_tokens: Tokens
    keep_share: float = Field(gt=0, lt=1)
    output_tokens: Tokens


class AgentParameters(BaseModel):
    """Every parameter of an agent preset; lengths in tokens before `length_scale`, times in seconds."""

    model_config = TABLE

    history: Literal["live", "scripted"] = "live"
    length_scale: float = Field(default=1.0, gt=0, le=1)
    calls_scale: float = Field(default=1.0, gt=0, le=1)
    calls_max: int = Field(ge=1, le=CALLS_MAX)
    tool_s_max: float = Field(gt=0, le=WAIT_S_MAX)
    session_tasks_max: int = Field(ge=1, le=CALLS_MAX)
    reasoning_share: float = Field(ge=0, lt=1)
    session_tasks: Annotated[Distribution, bounded()]
    calls: Annotated[Distribution, bounded()]
    system_tokens: Tokens
    first_input_tokens: Tokens
    user_tokens: Tokens
    output_tokens: Tokens
    tool_call_share: Annotated[Distribution, bounded(1)]
    result_tokens: Tokens
    tools_per_step: Annotated[Distribution, bounded(TOOLS_MAX)]
    tool_category: Names
    tool_s: Mapping[str, Times]
    agent_s: Times
    think_s: Times
    compaction: Compaction

    @field_validator("tool_category")
    @classmethod
    def _known(cls, category: Names) -> Names:
        _refuse_unknown(category.weights)
        return category

    @field_validator("tool_s")
    @classmethod
    def _timed(cls, tool_s: Mapping[str, Times], info: ValidationInfo) -> Mapping[str, Times]:
        """Want a time for each tool that may be drawn: the table replaces the preset's as a whole."""
        _refuse_unknown(tool_s)
        drawn = info.data["tool_category"].weights if "tool_category" in info.data else ()
        untimed = [name for name in drawn if name not in tool_s]
        if untimed:
            raise ValueError(f"no time for {', '.join(untimed)}; want one for each tool in tool_category")
        return tool_s


@dataclass(frozen=True, slots=True)
class PlannedTool:
    """One tool execution: its time after the cap, what the cap took off, and its result's length."""

    category: str
    duration_s: float
    cut_s: float
    call_tokens: int
    result_tokens: int


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One model call and the tools after it; with `summary_tokens` it sums up the history instead."""

    input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    tools: tuple[PlannedTool, ...]
    agent_s: float
    summary_tokens: int = 0  # > 0: the call sums up, and this much is left after the shared prefix


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """One task. `place` names its blocks; `context_tokens` is the history's planned length after it.

    `session_tokens`: what its session opened with, the same in each of its tasks.
    """

    k: int
    place: str
    session_place: str
    session: int
    system_tokens: int
    session_tokens: int
    user_tokens: int
    steps: tuple[PlannedStep, ...]
    think_s: float
    context_tokens: int


class AgentPlanner:
    """Plans of one workload. Sessions are laid over k in order; their lengths come from the seed.

    `sequence` makes another row of tasks of the same workload (warm-up): only the shared prefix is
    the same.
    """

    def __init__(self, parameters: AgentParameters, *, seed: int, name: str, sequence: str = "") -> None:
        self.parameters = parameters
        self._seed = seed
        self._name = f"{name}/{sequence}" if sequence else name
        self._lengths = np.random.default_rng(stream_seed(seed, f"{self._name}/sessions"))
        self._starts = [0]
        system = parameters.system_tokens.sample(np.random.default_rng(stream_seed(seed, f"{name}/system")))
        self._system_tokens = self._scaled(system)
        self.task = lru_cache(maxsize=4096)(self._task)

    def session(self, index: int) -> Session:
        """Give the index-th session: its first k and how many tasks it has."""
        while len(self._starts) < index + 2:
            drawn = self.parameters.session_tasks.sample(self._lengths)
            length = max(1, round(min(drawn, self.parameters.session_tasks_max)))
            self._starts.append(self._starts[-1] + length)
        first = self._starts[index]
        return Session(index=index, first_k=first, length=self._starts[index + 1] - first)

    def _session_of(self, k: int) -> Session:
        while self._starts[-1] <= k:
            self.session(len(self._starts) - 1)
        return self.session(int(np.searchsorted(self._starts, k, side="right")) - 1)

    def _task(self, k: int) -> AgentPlan:
        parameters, session = self.parameters, self._session_of(k)
        first = k == session.first_k
        dice = np.random.default_rng(task_seed(self._seed, self._name, k))
        user = max(1, self._scaled(parameters.user_tokens.sample(dice)))
        opening = self._scaled(parameters.first_input_tokens.sample(dice)) - self._system_tokens - user
        opening = max(0, opening) if first else 0
        context = self._system_tokens + opening
        if not first:
            before = self.task(k - 1)
            opening, context = before.session_tokens, before.context_tokens
        steps, context = self._steps(dice, context + user)
        return AgentPlan(
            k=k,
            place=f"{self._name}/{k}",
            session_place=f"{self._name}/session-{session.index}",
            session=session.index,
            system_tokens=self._system_tokens,
            session_tokens=opening,
            user_tokens=user,
            steps=steps,
            think_s=min(WAIT_S_MAX, parameters.think_s.sample(dice)),
            context_tokens=context,
        )

    def _steps(self, dice: np.random.Generator, context: int) -> tuple[tuple[PlannedStep, ...], int]:
        """Draw the chain of calls; the last one has no tools. Also give the context after it."""
        parameters = self.parameters
        drawn = round(min(parameters.calls.sample(dice), CALLS_MAX / parameters.calls_scale))
        scaled = max(WITH_TOOLS, round(drawn * parameters.calls_scale)) if drawn >= WITH_TOOLS else 1
        calls = min(parameters.calls_max, scaled)
        trigger = self._scaled(parameters.compaction.trigger_tokens.sample(dice))
        steps: list[PlannedStep] = []
        for index in range(calls):
            if context > trigger:
                summing = self._compaction(dice, context)
                steps.append(summing)
                context = self._system_tokens + summing.summary_tokens
            step = self._step(dice, context, last=index == calls - 1)
            steps.append(step)
            context += step.output_tokens - step.reasoning_tokens
            context += sum(tool.result_tokens for tool in step.tools)
        return tuple(steps), context

    def _step(self, dice: np.random.Generator, context: int, *, last: bool) -> PlannedStep:
        parameters = self.parameters
        output = max(2, self._scaled(parameters.output_tokens.sample(dice)))
        reasoning = min(output - 1, round(output * parameters.reasoning_share))
        tools = () if last else self._tools(dice, output - reasoning)
        needed = sum(tool.call_tokens for tool in tools)
        return PlannedStep(
            input_tokens=context,
            output_tokens=max(output, reasoning + needed),
            reasoning_tokens=reasoning,
            tools=tools,
            agent_s=min(WAIT_S_MAX, parameters.agent_s.sample(dice)),
        )

    def _tools(self, dice: np.random.Generator, visible: int) -> tuple[PlannedTool, ...]:
        parameters = self.parameters
        count = round(min(TOOLS_MAX, parameters.tools_per_step.sample(dice)))
        share = min(1.0, parameters.tool_call_share.sample(dice))
        results = self._scaled(parameters.result_tokens.sample(dice))
        tools = []
        for _ in range(count):
            category = parameters.tool_category.pick(dice)
            real_s = min(WAIT_S_MAX, parameters.tool_s[category].sample(dice))
            duration_s = min(real_s, parameters.tool_s_max)
            tools.append(
                PlannedTool(
                    category=category,
                    duration_s=duration_s,
                    cut_s=real_s - duration_s,
                    call_tokens=max(TOOL_CALL_TOKENS_MIN, round(visible * share / count)),
                    result_tokens=max(1, results // count),
                )
            )
        return tuple(tools)

    def _compaction(self, dice: np.random.Generator, context: int) -> PlannedStep:
        compaction = self.parameters.compaction
        output = max(2, self._scaled(compaction.output_tokens.sample(dice)))
        kept = round(context * compaction.keep_share) - self._system_tokens
        agent_s = min(WAIT_S_MAX, self.parameters.agent_s.sample(dice))
        return PlannedStep(context, output, 0, (), agent_s, summary_tokens=max(output, kept))

    def _scaled(self, tokens: float) -> int:
        return round(min(tokens, TOKENS_MAX) * self.parameters.length_scale)


def _refuse_unknown(tools: Iterable[str]) -> None:
    for name in tools:
        if name not in TOOL_NAMES:
            raise ValueError(no_such("tool", name, TOOL_NAMES))
