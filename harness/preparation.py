"""Before a run: read the scenario, find the keys, say what it will cost, start the simulators.

Light on imports, so that the simulators start as early as can be; `run` is imported after that.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from harness.errors import ScenarioError, UsageError
from harness.machine import ports
from harness.measure.charge import tokens_usd
from harness.prices import PriceEntry, TokenPrice, entry_at, prices_of
from harness.scenario import (
    ClosedLoad,
    Kind,
    OpenLoad,
    Scenario,
    parse_scenario,
    with_overrides,
)
from harness.scenario_backend import Backend, is_loopback
from harness.scenario_text import read_text
from harness.simulator.process import SimulatorProcess, simulators
from harness.simulator.profiles import profiles
from harness.workloads import WORKLOADS, presets

SIMULATOR_LOG = "HARNESS_SIMULATOR_LOG"
"""Environment variable: a file for the simulators' log of true send times."""

SIMULATOR_KEY = "HARNESS_SIMULATOR_KEY"
"""Environment variable: the key that simulators want where it is set."""

PER_TASKS = 100
TIME_WAIT_S = 60
"""How long Linux keeps a closed connection's port."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line of `harness run` says."""

    scenario: Path
    out: Path | None = None
    measure_s: float | None = None
    tasks: int | None = None
    seed: int | None = None
    backends: list[str] = field(default_factory=list)
    yes: bool = False
    quiet: bool = False
    repeat: int = 1
    allow_inconclusive: bool = False
    prometheus_port: int | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that may start. `keys`: backend -> its key; never shown, never written."""

    options: Options
    scenario: Scenario
    keys: Mapping[str, str] = field(repr=False)
    simulators: SimulatorProcess | None


def prepare(options: Options) -> Prepared:
    """Read and check everything that can be checked without a call; raises HarnessError."""
    scenario = read_scenario(options)
    keys = read_keys(scenario)
    for line in money_guard(scenario, yes=options.yes):
        print(line, flush=True)  # noqa: T201 - the estimate stands before anything else
    for line in port_guard(scenario, ports()):
        print(line, flush=True)  # noqa: T201 - and what may spoil it
    for line in quota_guard(scenario):
        print(line, flush=True)  # noqa: T201
    wanted = [b for b in scenario.backends.values() if b.simulate is not None]
    if not wanted:
        return Prepared(options, scenario, keys, None)
    log = os.environ.get(SIMULATOR_LOG)
    started = simulators(
        [b.simulate for b in wanted if b.simulate is not None],
        log=Path(log) if log else None,
        seed=scenario.seed,
        behaviours=[b.behaviour for b in wanted],
    )
    return Prepared(options, scenario, keys, started)


def read_scenario(options: Options, text: str | None = None) -> Scenario:
    """Read the scenario with the command line's overrides; ScenarioError tells all faults at once.

    text: what the file holds, where it was read on another machine.
    """
    kinds = {name: Kind(kind.parameters, presets(name)) for name, kind in WORKLOADS.items()}
    models = {name: profile.model for name, profile in profiles().items()}
    read = read_text(options.scenario) if text is None else text
    scenario = parse_scenario(read, source=str(options.scenario), kinds=kinds, profiles=models)
    if len(scenario.workloads) > 1:
        raise ScenarioError(
            [f"{options.scenario}: workloads: a run takes one workload; there are {len(scenario.workloads)}"]
        )
    return with_overrides(
        scenario,
        tasks=options.tasks,
        measure_s=options.measure_s,
        seed=options.seed,
        backends=options.backends,
    )


def read_keys(scenario: Scenario) -> dict[str, str]:
    """Take each backend's key from the environment variable that the scenario names."""
    keys = {}
    for name, backend in scenario.backends.items():
        if backend.key_env is None:
            if backend.simulate is not None and (ours := os.environ.get(SIMULATOR_KEY)):
                keys[name] = ours  # the simulators that this run starts want it
            continue
        key = os.environ.get(backend.key_env, "").strip()
        if not key:
            raise UsageError(
                f"backends.{name}.key_env: the environment variable {backend.key_env} is not set"
            )
        if not (key.isascii() and key.isprintable()):
            raise UsageError(
                f"backends.{name}.key_env: {backend.key_env} holds what no header can carry; is it the key?"
            )
        keys[name] = key
    return keys


def money_guard(scenario: Scenario, *, yes: bool) -> list[str]:
    """Say what calls to backends that are not on this machine will cost; refuse to start unasked.

    A spend limit is consent only where the price is known: without one only `--yes` starts the run.
    """
    paid = {name: b for name, b in scenario.backends.items() if not is_loopback(b)}
    if not paid:
        return []
    lines = [_estimate(name, backend, scenario) for name, backend in paid.items()]
    unpriced = [name for name, backend in paid.items() if backend.price is None]
    unknown = [name for name, backend in paid.items() if _charged(backend) is None]
    if yes or (scenario.spend_limit_usd is not None and not unpriced):
        return lines
    ask = f"give --yes to start it{'' if unpriced else ', or set spend_limit_usd'}"
    why = f"the price of {', '.join(unknown)} is not known" if unknown else "this costs money"
    raise UsageError("\n".join([*lines, f"{why}: {ask}"]))


def port_guard(scenario: Scenario, there_are: int | None) -> list[str]:
    """Warn of backends that need more outgoing ports than `there_are`: a closed connection keeps its port.

    Only what the plan tells: the rate of an open load's new connections, or users at once.
    """
    load, lines = scenario.load, []
    for name, backend in scenario.backends.items() if there_are is not None else ():
        if isinstance(load, ClosedLoad):
            wanted = float(load.users)
        elif backend.transport == "new-connection":
            calls, _, _ = _planned(scenario, PER_TASKS)
            wanted = load.tasks_per_s * calls / PER_TASKS * TIME_WAIT_S
        else:
            continue
        if there_are is not None and wanted > there_are:
            lines.append(
                f"{name}: {wanted:,.0f} ports are wanted at once, and this machine has {there_are:,}"
                " (net.ipv4.ip_local_port_range): calls beyond them fail, and make the run INVALID"
            )
    return lines


def quota_guard(scenario: Scenario) -> list[str]:
    """Warn of backends whose quota of tokens is less than a call takes: each waits for more than a minute."""
    capped = {name: b.quota.tokens_per_min for name, b in scenario.backends.items()}
    lines = []
    for name, cap in capped.items():
        if cap is not None:
            calls, tokens_in, tokens_out = _planned(scenario, PER_TASKS)
            tokens = (tokens_in + tokens_out) / calls
            if tokens > cap:
                lines.append(
                    f"{name}: a call takes {tokens:,.0f} tokens on average, quota.tokens_per_min is {cap:,}:"
                    f" each will wait for {tokens / cap:,.0f} minutes or more"
                )
    return lines


def _planned(scenario: Scenario, tasks: int) -> tuple[int, int, int]:
    """Count the calls, input and output tokens of the first tasks."""
    entry = scenario.workloads[0]
    kind = WORKLOADS[entry.kind]
    planner = kind.planner(entry.parameters, seed=scenario.seed, name=entry.name)
    return kind.estimate(planner, range(tasks))


def _estimate(name: str, backend: Backend, scenario: Scenario) -> str:
    """One backend's calls, tokens and USD by the plan; of a closed run by time, for each 100 tasks."""
    load = scenario.load
    tasks = load.tasks
    if tasks is None and isinstance(load, OpenLoad) and load.measure_s is not None:
        tasks = ceil(load.tasks_per_s * load.measure_s)
    calls, tokens_in, tokens_out = _planned(scenario, tasks or PER_TASKS)
    usd = "USD unknown"
    charged = _charged(backend)
    if charged is not None and isinstance(charged.price, TokenPrice):
        sum_usd = tokens_usd(charged.price, input_tokens=tokens_in, cached_tokens=0, output_tokens=tokens_out)
        usd = f"about USD {sum_usd:,.2f} by its {charged.mark} price if nothing is cached"
    of = f"{tasks} tasks" if tasks else f"each {PER_TASKS} tasks (the run goes by time)"
    return (
        f"{name} is not on this machine: {of} and the warm-up before them; the tasks make {calls:,} calls"
        f" with {tokens_in:,} input and {tokens_out:,} output tokens, {usd}"
    )


def _charged(backend: Backend) -> PriceEntry | None:
    """Price at the tier that is asked for: the scenario's own, else the list's."""
    return entry_at(prices_of(backend.model, backend.price), backend.service_tier)
