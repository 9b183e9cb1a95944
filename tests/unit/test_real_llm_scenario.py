"""The scenario of `make real-llm` keeps to what a small model on a CPU can do, and says that it is short."""

from pathlib import Path

import pytest

from harness.preparation import Options, read_scenario
from harness.results import FindingName
from harness.workloads.agent import caveats
from harness.workloads.agent_plan import AgentPlanner

SCENARIO = Path(__file__).parents[2] / "scenarios" / "real-llm.toml"
ADDED = 615 + 8 * 33
"""Tokens that tools and template add to a task's longest prompt, as llama-server counts them."""


@pytest.fixture(scope="module")
def planner():
    scenario = read_scenario(Options(scenario=SCENARIO))
    return AgentPlanner(scenario.workloads[0].parameters, seed=scenario.seed, name=scenario.workloads[0].name)


def test_tasks_are_short_enough_for_the_servers_slots(planner):
    steps = [planner.task(k).steps for k in range(2000)]
    assert {len(chain) for chain in steps} == {3, 4, 5}
    assert all(sum(not step.summary_tokens for step in chain) == len(chain) for chain in steps)
    assert max(step.output_tokens for chain in steps for step in chain) <= 100
    assert max(step.input_tokens for chain in steps for step in chain) + ADDED <= 1500


def test_the_answer_says_that_they_are(planner):
    assert FindingName.SHORTENED in dict(caveats(planner, range(24)))
    assert "made short" in read_scenario(Options(scenario=SCENARIO)).name
