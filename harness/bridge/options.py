"""Our words on Locust's command line and in its start form, and Locust's own where they are left out."""

import logging
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import orjson
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.runners import MasterRunner

from harness.bridge.command import OVERRIDES
from harness.errors import UsageError
from harness.preparation import Options
from harness.scenario import ClosedLoad, OpenLoad, Scenario

log = logging.getLogger(__name__)

NO_END_S = 31_536_000.0
"""A year, the longest that a scenario can ask for: a load shape ends the run itself."""

EXPECT_S = 60
"""How long the master waits for its workers, where --expect-workers-max-wait is left out."""


def add_options(parser: LocustArgumentParser) -> None:
    """Add our options to Locust's; they stand in its help and, the first two, in its start form."""
    parser.add_argument(
        "--scenario",
        metavar="FILE",
        env_var="HARNESS_SCENARIO",
        default="",
        help="The scenario, a TOML file, e.g. scenarios/demo.toml; also HARNESS_SCENARIO."
        " Locust's -u, -r and -t win over its users,"
        " ramp_s and measure_s.",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        default="",
        help="Folder for the results [default: runs/<UTC time>-<scenario>]; on a worker of another machine"
        " for its events.",
    )
    for word, text in (
        ("--yes", "Start although calls cost money."),
        ("--allow-inconclusive", "Exit 0 where the verdict is INCONCLUSIVE."),
        ("--allow-lost-workers", "A run that lost workers may be valid."),
    ):
        parser.add_argument(word, action="store_true", include_in_web_ui=False, help=text)
    parser.add_argument(
        "--prometheus-port",
        metavar="P",
        type=int,
        include_in_web_ui=False,
        help="Serve percentiles to Prometheus on this port of 127.0.0.1; 0 takes a free one.",
    )


def options_of(said: Namespace, *, scenario: Path, shaped: bool) -> Options:
    """Make the options of a run of what Locust was told."""
    told: dict[str, Any] = orjson.loads(os.environ.get(OVERRIDES, "{}"))
    told |= {"measure_s": NO_END_S, "tasks": None} if shaped else {}
    return Options(
        scenario=Path(said.scenario) if said.scenario else scenario,
        out=Path(said.out) if said.out else None,
        yes=said.yes,
        allow_inconclusive=said.allow_inconclusive,
        prometheus_port=said.prometheus_port,
        **told,
    )


def with_run_time(options: Options, scenario: Scenario, run_time_s: float | None) -> Options:
    """Let Locust's run time, which counts from the start, end the measure phase."""
    if not run_time_s:
        return options
    measure_s = run_time_s - scenario.load.warm_up_s
    if measure_s <= 0:
        raise UsageError(
            f"--run-time {run_time_s:g}s: the scenario warms up for {scenario.load.warm_up_s:g} s;"
            " give a longer run time, or a shorter warm_up_s"
        )
    return Options(**(vars_of(options) | {"measure_s": measure_s, "tasks": None}))


def vars_of(options: Options) -> dict[str, Any]:
    """Give an Options' fields."""
    return {name: getattr(options, name) for name in Options.__dataclass_fields__}


def set_defaults(environment: Environment, scenario: Scenario) -> None:
    """Set Locust's own words that were left out to the scenario's values."""
    said: Any = environment.parsed_options
    load, groups = scenario.load, groups_of(scenario)
    if isinstance(load, ClosedLoad):
        if said.num_users is None:
            said.num_users = load.users * groups
        if said.spawn_rate is None:
            said.spawn_rate = said.num_users / load.ramp_s if load.ramp_s else float(said.num_users)
    else:
        said.num_users = said.num_users or workers_of(environment)
        said.spawn_rate = said.spawn_rate or float(said.num_users)
    if not environment.stop_timeout:  # Locust's default, which would cut every task that is open at the end
        environment.stop_timeout = said.stop_timeout = load.drain_s


def shaped(environment: Environment) -> bool:
    """Tell whether a LoadTestShape rules users and the end."""
    return environment.shape_class is not None


def groups_of(scenario: Scenario) -> int:
    """Tell how many kinds of users a run has: one a backend, or one that does all by turns."""
    return 1 if scenario.load.pairing == "alternate" else len(scenario.backends)


def workers_of(environment: Environment) -> int:
    """Tell how many processes have users, or will have."""
    said: Any = environment.parsed_options
    if not isinstance(environment.runner, MasterRunner):
        return 1
    return int(environment.runner.worker_count or said.expect_workers)


def check_users(environment: Environment, scenario: Scenario, users: int) -> None:
    """Refuse numbers of users with which a part of the plan would have nobody to do it."""
    if isinstance(scenario.load, OpenLoad):
        most, workers = scenario.load.in_flight_max, workers_of(environment)
        if most is not None and most < workers:
            raise UsageError(f"load.in_flight_max: {most} cannot be shared by {workers} workers; raise it")
        return
    if shaped(environment):
        return
    groups, workers = groups_of(scenario), workers_of(environment)
    if users < groups * workers:
        raise UsageError(
            f"{users} users are too few: {workers} worker{'s' * (workers > 1)} with {groups} kinds of users"
            f" (one a backend) need at least {groups * workers}"
        )
    if users % groups:
        raise UsageError(
            f"{users} users cannot be shared evenly by {groups} backends; give a multiple of {groups}"
        )
