"""A scenario file: TOML text to a frozen `Scenario`, or every fault of it at once.

Kinds of workloads and profiles of simulated backends are handed in, so this file knows none of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, SerializeAsAny, ValidationInfo, field_validator

from harness.errors import ScenarioError
from harness.objectives import ObjectiveFor, Objectives
from harness.scenario_backend import Backend, Seconds, SomeSeconds, Text
from harness.scenario_checks import cross_checks, kind_problem, without_preset, workload_name
from harness.scenario_objectives import Compare, VerdictRule, compare_in, kept_for, objectives_in
from harness.scenario_text import read_text, toml_tables
from harness.tables import TABLE, Path, Problem, check, dotted, in_order, no_such, shown

_OWN_KEYS = ("kind", "preset", "name", "task_limit_s")  # of a workload; all others are parameters
_OPTIONS: dict[str | int, str] = {"seed": "--seed", "tasks": "--tasks", "measure_s": "--duration"}
_USERS_MAX = 100_000  # more than this machine can have connections
_TASKS_MAX = 10_000_000  # more than a run's records can be held
Tasks = Annotated[int, Field(ge=1, le=_TASKS_MAX)]


class NoParameters(BaseModel):
    """Stands in for parameters that cannot be read, so that the rest of the entry is checked too."""


class WorkloadEntry(BaseModel):
    """One `[[workloads]]` table; `parameters` is an instance of its kind's model."""

    model_config = TABLE

    kind: Text
    preset: Text | None = None
    name: Text
    task_limit_s: SomeSeconds = 600
    parameters: SerializeAsAny[BaseModel]


class ClosedLoad(BaseModel):
    """A fixed number of users, each starting its next task when the last is done."""

    model_config = TABLE

    kind: Literal["closed"]
    users: int = Field(ge=1, le=_USERS_MAX)
    ramp_s: Seconds = 0
    tasks: Tasks | None = None
    measure_s: SomeSeconds | None = None
    drain_s: Seconds = 30
    warm_up_s: Seconds = 0
    pairing: Literal["parallel", "alternate"] = "parallel"


class OpenLoad(BaseModel):
    """Tasks start on a plan, whatever became of those before; over `in_flight_max` they are dropped."""

    model_config = TABLE

    kind: Literal["open"]
    arrivals: Literal["constant", "poisson"]
    tasks_per_s: float = Field(gt=0)
    tasks: Tasks | None = None
    measure_s: SomeSeconds | None = None
    drain_s: Seconds = 30
    warm_up_s: Seconds = 0
    in_flight_max: int | None = Field(None, ge=1)
    pairing: Literal["parallel"] = "parallel"

    @field_validator("measure_s", "warm_up_s")
    @classmethod
    def _so_many(cls, seconds: float | None, info: ValidationInfo) -> float | None:
        tasks = (seconds or 0) * info.data.get("tasks_per_s", 0)
        if tasks > _TASKS_MAX:
            text = f"so long at tasks_per_s, it plans {tasks:.3g} tasks; want at most {_TASKS_MAX:,}"
            raise ValueError(text)
        return seconds

    @field_validator("pairing", mode="before")
    @classmethod
    def _no_turns(cls, pairing: object) -> object:
        if pairing == "alternate":
            raise ValueError('"alternate" needs closed load; want "parallel"')
        return pairing


class Scenario(BaseModel):
    """A whole run as written. Of `tasks` and `measure_s` in `load` exactly one is set.

    `objectives` are those of all tables, each for the backend and workload that it is for.
    """

    model_config = TABLE

    schema_: Literal[1] = Field(1, alias="schema")
    name: Text
    seed: int = Field(1, ge=0, le=2**32 - 1)
    backends: dict[str, Backend]
    workloads: tuple[WorkloadEntry, ...] = Field(strict=False)
    load: Annotated[ClosedLoad | OpenLoad, Field(discriminator="kind")]
    objectives: tuple[ObjectiveFor, ...] = ()
    compare: Compare | None = None
    verdict: VerdictRule = VerdictRule()
    spend_limit_usd: float | None = Field(None, gt=0)
    cache_salt: Literal["on", "off"] = "on"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of workload: the model of its parameters (`tables.TABLE`), and presets of them by name.

    A parameter cannot be called `kind`, `preset`, `name` or `task_limit_s`: these are the entry's own.
    """

    parameters: type[BaseModel]
    presets: Mapping[str, Mapping[str, object]]


def load_scenario(path: FilePath, *, kinds: Mapping[str, Kind], profiles: Mapping[str, str]) -> Scenario:
    """Read a scenario file; `profiles` maps the name of a simulated backend to its model's name.

    Raises ScenarioError with one line per fault.
    """
    return parse_scenario(read_text(path), source=str(path), kinds=kinds, profiles=profiles)


def parse_scenario(
    text: str, *, source: str, kinds: Mapping[str, Kind], profiles: Mapping[str, str]
) -> Scenario:
    """Make a scenario of TOML text; `source` is the file's name in messages.

    Raises ScenarioError with one line per fault, in the order of the file's tables:
    `FILE: workloads[0].key: what is wrong; what would be right`, counted from 0.
    """
    raw = toml_tables(text, source=source)
    entries, problems = _workloads(raw.get("workloads", []), kinds)
    filled = raw | ({"workloads": entries} if "workloads" in raw else {})
    if isinstance(raw.get("backends"), dict):
        filled["backends"] = {name: _with_model(b, profiles) for name, b in raw["backends"].items()}
    objectives, wrong = objectives_in(raw)
    compare, amiss = compare_in(raw)
    filled |= {"objectives": objectives} | ({"compare": compare} if compare else {})
    scenario, faults = check(Scenario, filled)
    problems += [*faults, *wrong, *amiss, *cross_checks(raw, profiles=profiles)]
    if scenario is None or problems:
        raise ScenarioError([_line(source, problem) for problem in in_order(problems, raw)])
    return scenario


def with_overrides(
    scenario: Scenario,
    *,
    tasks: int | None = None,
    measure_s: float | None = None,
    seed: int | None = None,
    backends: Sequence[str] = (),
) -> Scenario:
    """Apply what the command line says: `--tasks`, `--duration`, `--seed`, `--backend`; None and () keep.

    A run by tasks becomes one by time and the other way round. With fewer backends the comparison
    stays as long as the baseline and another one do; objectives of those left out go with them.
    Raises ScenarioError.
    """
    problems = [
        f"--backend: {no_such('backend', name, scenario.backends)}"
        for name in backends
        if name not in scenario.backends
    ]
    if tasks is not None and measure_s is not None:
        problems.append("--tasks and --duration exclude each other; want one of them")
    load = scenario.load.model_dump()
    if tasks is not None or measure_s is not None:
        load |= {"tasks": tasks, "measure_s": measure_s}
    same = {name: getattr(scenario, name) for name in ("name", "backends", "workloads")}
    asked, faults = check(Scenario, {**same, "load": load, "seed": scenario.seed if seed is None else seed})
    problems += [f"{_OPTIONS[fault.path[-1]]}: {fault.text}" for fault in faults]
    if asked is None or problems:
        raise ScenarioError(problems)
    kept = {
        name: backend
        for name, backend in scenario.backends.items()
        if name in (backends or scenario.backends)
    }
    changed = {"seed": asked.seed, "load": asked.load, "backends": kept}
    about = {"objectives": kept_for(scenario.objectives, kept), "compare": _compared(scenario.compare, kept)}
    return scenario.model_copy(update={**changed, **about})


def _compared(compare: Compare | None, kept: Mapping[str, Backend]) -> Compare | None:
    if compare is None or compare.baseline not in kept or len(kept) == 1:
        return None
    return compare.model_copy(update={"objectives": kept_for(compare.objectives, kept)})


def objectives_of(scenario: Scenario) -> Objectives:
    """Gather all that a scenario asks of its run."""
    compared = scenario.compare.objectives if scenario.compare else ()
    return Objectives(held=scenario.objectives, compared=compared, policy=scenario.verdict.policy)


def _line(source: str, problem: Problem) -> str:
    return f"{source}: {dotted(problem.path)}: {problem.text}"


def _with_model(backend: object, profiles: Mapping[str, str]) -> object:
    """Fill in the profile's model; it is wanted from the user only with a url."""
    if not isinstance(backend, dict) or ("url" in backend and "simulate" not in backend):
        return backend
    profile = backend.get("simulate")
    return {"model": profiles.get(profile, "?") if isinstance(profile, str) else "?"} | backend


def _workloads(tables: object, kinds: Mapping[str, Kind]) -> tuple[list[WorkloadEntry], list[Problem]]:
    if not isinstance(tables, list):
        return [], [Problem(("workloads",), f"want an array of tables, [[workloads]]; got {shown(tables)}")]
    entries, problems = [], []
    for i, table in enumerate(tables):
        at = ("workloads", i)
        if not isinstance(table, dict):
            problems.append(Problem(at, f"want a table [[workloads]]; got {shown(table)}"))
            continue
        parameters, faults = _parameters(table, at, kinds)
        own = {key: table[key] for key in _OWN_KEYS if key in table}
        own = {"name": workload_name(table) or "?", "parameters": parameters, **own}
        entry, more = check(WorkloadEntry, own, at=at)
        problems += faults + more
        if entry is not None:
            entries.append(entry)
    return entries, problems


def _parameters(
    table: Mapping[str, Any], at: Path, kinds: Mapping[str, Kind]
) -> tuple[BaseModel, list[Problem]]:
    """Lay a workload's own keys over its preset, each replacing a parameter whole."""
    name, preset = table.get("kind"), table.get("preset")
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        return NoParameters(), [kind_problem(table, kinds, at=at)]
    base = kind.presets.get(preset) if isinstance(preset, str) else None
    own = {key: value for key, value in table.items() if key not in _OWN_KEYS}
    parameters, problems = check(kind.parameters, {**(base or {}), **own}, at=at, also=_OWN_KEYS)
    if base is None:
        problems = without_preset(problems, table, presets=kind.presets, at=at)
    return NoParameters() if parameters is None else parameters, problems
