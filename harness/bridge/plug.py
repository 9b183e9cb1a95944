"""Puts the harness into Locust: a locustfile calls `plug_in`, the rest happens at Locust's events."""

import functools
import sys
from pathlib import Path
from typing import Any

from locust import argument_parser, events
from locust.env import Environment
from locust.runners import WorkerRunner
from locust.web import WebUI

from harness.bridge.options import add_options
from harness.bridge.owner_side import OwnerSide
from harness.bridge.worker_side import WorkerSide
from harness.errors import HarnessError


def plug_in(*, scenario: Path) -> None:
    """Add our options and hooks to Locust. scenario: the file that is taken where none is given."""
    # Locust 2.47 builds its whole parser once for every option of each "spawn" message: 70 ms (measured).
    argument_parser.default_args_dict = functools.cache(argument_parser.default_args_dict)
    events.init_command_line_parser.add_listener(lambda parser, **_: add_options(parser))
    events.init.add_listener(functools.partial(_init, scenario=scenario))


def _init(environment: Environment, *, scenario: Path, web_ui: WebUI | None = None, **_: Any) -> None:  # noqa: ANN401
    """Take this process's side; what a person can mend ends it with a sentence."""
    if isinstance(environment.runner, WorkerRunner):
        WorkerSide(environment, environment.runner)
        return
    try:
        OwnerSide(environment, scenario, web_ui)
    except HarnessError as problem:
        print(problem, file=sys.stderr)  # noqa: T201 - one sentence, as `harness run` gives it
        sys.exit(problem.exit_code)
