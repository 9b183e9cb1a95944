"""What one virtual user does, one file a kind; reaches the outside only through `step`.

The registry: a kind is its parameter model, its planner, its coroutine and its caveats.
"""

import tomllib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from pydantic import BaseModel

from harness.results import FindingName
from harness.workloads import agent, agent_plan
from harness.workloads.step import History, Session, Step


class Planner(Protocol):
    """Plans of one workload, each from (seed, workload, k) alone."""

    def session(self, index: int) -> Session:
        """Give the index-th session."""

    def task(self, k: int) -> Any:  # noqa: ANN401 - a plan's type is its workload's own business
        """Give task k's plan."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of workload: a line of the registry.

    `estimate(planner, ks)` gives calls, input and output tokens; `caveats` what a reader must know.
    """

    parameters: type[BaseModel]
    planner: Callable[..., Any]
    run: Callable[[Step, Any, History, Any], Awaitable[History]]
    caveats: Callable[[Any, Iterable[int]], list[tuple[FindingName, str]]]
    estimate: Callable[[Any, range], tuple[int, int, int]]


WORKLOADS: Mapping[str, Workload] = {
    "agent": Workload(
        parameters=agent_plan.AgentParameters,
        planner=agent_plan.AgentPlanner,
        run=agent.run,
        caveats=agent.caveats,
        estimate=agent.estimate,
    ),
}


@cache
def presets(kind: str) -> Mapping[str, Mapping[str, Any]]:
    """Read a kind's presets; `like` takes another preset's values where it has none of its own."""
    tables = tomllib.loads((files("harness") / "data" / "presets.toml").read_text())[kind]
    return {
        name: {
            key: value
            for key, value in {**tables.get(table.get("like"), {}), **table}.items()
            if key != "like"
        }
        for name, table in tables.items()
    }
