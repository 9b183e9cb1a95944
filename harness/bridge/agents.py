"""The locustfile of `harness run --workers`: one kind of user for each backend, and nothing else."""

from pathlib import Path

from harness.bridge.plug import plug_in
from harness.bridge.users import AgentUser

plug_in(scenario=Path("scenarios/demo.toml"))


class Agent(AgentUser):
    """Does one task after the other."""

    abstract = False
