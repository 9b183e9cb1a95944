"""Agent tasks under Locust: one kind of user for each backend of a scenario.

    locust -f locustfiles/agents.py                                   # web interface on port 8089
    locust -f locustfiles/agents.py --headless -u 8 -r 8 -t 20s       # in CI; exit code by the verdict
    locust -f locustfiles/agents.py --headless --processes 2 --scenario my.toml --out runs/first

Left out, -u, -r and -t are the scenario's users (of all backends together), ramp_s and measure_s or tasks.
Copy this file to change what Locust knows of users: weights, tags, wait_time, a LoadTestShape beside them.
"""

from pathlib import Path

from locust import constant

from harness.bridge.plug import plug_in
from harness.bridge.users import AgentUser

plug_in(scenario=Path(__file__).parent.parent / "scenarios" / "demo.toml")


class Agent(AgentUser):
    """Does one task after the other; the scenario says what a task is, and what it thinks between them."""

    abstract = False
    wait_time = constant(0)
