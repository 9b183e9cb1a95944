"""`[objectives]`, `[compare]` and `[verdict]` of a scenario: raw tables to objectives and whom they are for.

A bare `[objectives]` mixes names of metrics with names of backends, and `[compare]` a key of its own with
names of backends; so these two are read by hand, and the models get what came of it.
"""

import difflib
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field

from harness.objectives import (
    COMPARISON_EXAMPLE,
    COMPARISONS,
    METRICS,
    Objective,
    ObjectiveFor,
    Policy,
    parse_comparison,
    parse_objective,
)
from harness.scenario_checks import workload_name
from harness.tables import TABLE, Path, Problem, dotted, no_such, shown

Table = Mapping[str, Any]
Place = tuple[str, str | None]  # backend, and workload or all of them


class Compare(BaseModel):
    """Which backend the others are compared with, and what is asked of them beside it."""

    model_config = TABLE

    baseline: Annotated[str, Field(min_length=1)]
    objectives: tuple[ObjectiveFor, ...] = ()


class VerdictRule(BaseModel):
    """How objectives are decided: by the value, or by the whole interval."""

    model_config = TABLE

    policy: Policy = "point"


@dataclass(frozen=True, slots=True)
class _Level:
    """Names that tables may have at one level of `[objectives]`."""

    what: str
    names: Collection[str]


def objectives_in(raw: Table) -> tuple[tuple[ObjectiveFor, ...], list[Problem]]:
    """Read `[objectives]` of a whole raw scenario; a bare one is for every backend but the baseline."""
    if "objectives" not in raw:
        return (), []
    table = raw["objectives"]
    if not isinstance(table, Mapping):
        return (), [Problem(("objectives",), f"want a table, got {shown(table)}")]
    backends = _names_in(raw, otherwise=table)
    compare = raw.get("compare")
    baseline = compare.get("baseline") if isinstance(compare, Mapping) else None
    places = tuple((name, None) for name in backends if name != baseline)
    levels = (_Level("backend", backends), _Level("workload", _workloads(raw)))
    found, problems = _parted(_read(table, ("objectives",), places, levels))
    problems += [
        Problem(("backends", name), f"{shown(name)} is also a metric of [objectives]; want another name")
        for name in backends
        if name in METRICS and backends is not table
    ]
    return tuple(found), problems


def compare_in(raw: Table) -> tuple[dict[str, Any], list[Problem]]:
    """Read `[compare]` of a whole raw scenario; gives what its model wants, {} if it is no table."""
    table = raw.get("compare")
    if not isinstance(table, Mapping):
        return {}, []
    found, problems = _parted(_candidates(table, _names_in(raw, otherwise=table)))
    own = {key: table[key] for key in ("baseline",) if key in table}
    return {**own, "objectives": tuple(found)}, problems


def kept_for(objectives: Iterable[ObjectiveFor], backends: Container[str]) -> tuple[ObjectiveFor, ...]:
    """Leave out what is for other backends."""
    return tuple(one for one in objectives if one.backend in backends)


def _names_in(raw: Table, *, otherwise: Table) -> Table:
    """Give the backends; where there is no table of them, that is told elsewhere and any name is right."""
    backends = raw.get("backends")
    return backends if isinstance(backends, Mapping) else otherwise


def _workloads(raw: Table) -> list[str]:
    entries = raw.get("workloads")
    tables = [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    return [name for name in map(workload_name, tables) if name is not None]


def _parted(mixed: Iterator[ObjectiveFor | Problem]) -> tuple[list[ObjectiveFor], list[Problem]]:
    found: list[ObjectiveFor] = []
    problems: list[Problem] = []
    for one in mixed:
        if isinstance(one, Problem):
            problems.append(one)
        else:
            found.append(one)
    return found, problems


def _read(
    table: Table, at: Path, places: Sequence[Place], levels: Sequence[_Level]
) -> Iterator[ObjectiveFor | Problem]:
    """Read one table: metrics are for all `places`; the first of `levels` are the tables it may hold."""
    if not table:
        yield Problem(at, f"there is none; want such as task_time = {shown(METRICS['task_time'].example)}")
    below = levels[0] if levels else _Level("workload", ())
    for key, value in table.items():
        path = (*at, key)
        if key in METRICS:
            yield from _placed(_metric(key, value, path), places)
        elif key in below.names and isinstance(value, Mapping):
            within = [(key, None)] if below.what == "backend" else [(backend, key) for backend, _ in places]
            yield from _read(value, path, within, levels[1:])
        elif key in below.names:
            yield Problem(path, f"want a table [{dotted(path)}], got {shown(value)}")
        elif key in COMPARISONS:
            yield Problem(path, f"only in [compare], as CANDIDATE = {shown(COMPARISON_EXAMPLE)}")
        elif isinstance(value, Mapping) and levels:
            yield Problem(path, no_such(below.what, key, below.names))
        else:
            yield Problem(path, no_such("metric", key, METRICS))


def _metric(metric: str, value: object, at: Path) -> Iterator[Objective | Problem]:
    return _each(value, at, parse=lambda text: parse_objective(metric, text), example=METRICS[metric].example)


def _candidates(table: Table, backends: Table) -> Iterator[ObjectiveFor | Problem]:
    baseline = table.get("baseline")
    for key, value in table.items():
        path: Path = ("compare", key)
        if key == "baseline":
            continue
        if key == baseline:
            yield Problem(path, "this is the baseline; want a backend that is held against it")
        elif key in backends:
            each = _each(value, path, parse=parse_comparison, example=COMPARISON_EXAMPLE)
            yield from _placed(each, [(key, None)])
        elif baseline is None and difflib.get_close_matches(key, ["baseline"]):
            yield Problem(path, 'unknown key; did you mean "baseline"?', meant=("compare", "baseline"))
        else:
            yield Problem(path, no_such("backend", key, [name for name in backends if name != baseline]))


def _each(
    value: object, at: Path, *, parse: Callable[[str], Objective], example: str
) -> Iterator[Objective | Problem]:
    """Read one text or an array of them."""
    several = isinstance(value, list)
    texts: list[object] = value if isinstance(value, list) else [value]
    if not texts:
        yield Problem(at, f"there is none; want such as {shown(example)}")
    for i, text in enumerate(texts):
        path = (*at, i) if several else at
        if not isinstance(text, str):
            yield Problem(
                path, f"want a text such as {shown(example)}, or an array of them; got {shown(text)}"
            )
            continue
        try:
            yield parse(text)
        except ValueError as error:
            yield Problem(path, str(error))


def _placed(
    objectives: Iterator[Objective | Problem], places: Sequence[Place]
) -> Iterator[ObjectiveFor | Problem]:
    for one in objectives:
        if isinstance(one, Problem):
            yield one
        else:
            yield from (ObjectiveFor(backend, workload, one) for backend, workload in places)
