"""A small kind of workload, two profiles and a good scenario: what the loader's tests start from."""

from pydantic import BaseModel, Field

from harness.distributions import Distribution, Names
from harness.scenario import Kind, Scenario, parse_scenario
from harness.tables import TABLE


class Tools(BaseModel):
    model_config = TABLE

    names: Names
    failure_rate: float = Field(0.07, ge=0, le=1)


class Steps(BaseModel):
    model_config = TABLE

    output_tokens: Distribution
    think_s: Distribution
    steps_max: int = Field(200, ge=1)
    tools: Tools | None = None


CODING = {
    "output_tokens": {"quantiles": {"0.05": 89, "0.5": 216, "0.95": 1543}},
    "think_s": {"lognormal": {"median": 86, "sigma": 2.1}, "max": 3600},
}
KINDS = {"agent": Kind(Steps, {"coding": CODING}), "plain": Kind(Steps, {})}
PROFILES = {"gpt-5.6-sol-standard": "gpt-5.6-sol", "gpt-5.6-sol-ultrafast": "gpt-5.6-sol"}

GOOD = """
schema = 1
name = "standard against ultrafast"
seed = 7
[backends.standard]
simulate = "gpt-5.6-sol-standard"
[backends.fast]
simulate = "gpt-5.6-sol-ultrafast"
[[workloads]]
kind = "agent"
preset = "coding"
[load]
kind = "closed"
users = 24
tasks = 120
[compare]
baseline = "standard"
"""


def parsed(text: str = GOOD) -> Scenario:
    return parse_scenario(text, source="x.toml", kinds=KINDS, profiles=PROFILES)


def changed(old: str, new: str) -> str:
    """The good scenario with one place changed; the place must be there."""
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)
