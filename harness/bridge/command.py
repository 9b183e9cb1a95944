"""`harness run --workers N`: the same scenario under Locust, headless, with N processes on this machine."""

import os
import socket
import sys
from importlib.util import find_spec
from typing import NoReturn

import orjson

from harness.errors import UsageError
from harness.preparation import Options, read_scenario

OVERRIDES = "HARNESS_OVERRIDES"
"""Environment variable: JSON of what `harness run --workers` was told beside Locust's own words."""


def run_with_workers(options: Options, *, workers: int, lost_allowed: bool) -> NoReturn:
    """Become Locust's master; raises HarnessError where the scenario or the words are wrong."""
    if options.repeat > 1:
        raise UsageError("--workers and --repeat exclude each other; want one of them")
    read_scenario(options)
    file = find_spec("harness.bridge.agents")
    if file is None or file.origin is None:
        raise UsageError("this installation lacks harness/bridge; install the package again")
    words = [sys.executable, "-m", "locust", "-f", file.origin, "--headless", "--only-summary"]
    words += ["--processes", str(workers), "--scenario", str(options.scenario), *_place()]
    words += ["--out", str(options.out)] if options.out else []
    port = options.prometheus_port
    words += ["--prometheus-port", str(port)] if port is not None else []
    words += [
        word
        for word, said in (
            ("--yes", options.yes),
            ("--allow-inconclusive", options.allow_inconclusive),
            ("--allow-lost-workers", lost_allowed),
        )
        if said
    ]
    words += ["--loglevel", "WARNING"] if options.quiet else []
    told = {
        "measure_s": options.measure_s,
        "tasks": options.tasks,
        "seed": options.seed,
        "backends": options.backends,
    }
    sys.stdout.flush()
    os.execve(sys.executable, words, os.environ | {OVERRIDES: orjson.dumps(told).decode()})


def _place() -> list[str]:
    """Give master and workers a port of loopback that nobody has."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    hosts = [word for name in ("--master-bind-host", "--master-host") for word in (name, "127.0.0.1")]
    return hosts + [word for name in ("--master-bind-port", "--master-port") for word in (name, port)]
