"""What must agree between the tables of a scenario: plain functions over the raw file.

They run beside the models' own checks, so that all faults are told at once; what has the wrong type
is the models' to tell and is passed over here.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harness.tables import Path, Problem, no_such, shown

Table = Mapping[str, Any]
MESSAGES = "openai-responses"
"""The dialect that has a WebSocket mode."""
UNFORCED = ("gemini", "ollama")
"""The dialects whose servers take no least length (docs/dialects.md)."""
DEPENDENT = {
    ("fallback_after", "fallback_share", "fallback_echo"): ("fallback",),
    ("fail_status", "retry_after_s"): ("fail_first", "fail_share"),
}
"""Keys of a behaviour -> the ones of which one must be there, or they change nothing."""


def cross_checks(raw: Table, *, profiles: Mapping[str, str]) -> Iterator[Problem]:
    """All faults that a single table does not show. `profiles`: name of a simulated backend -> its model."""
    backends = _table(raw, "backends")
    if backends is not None:
        yield from _backends(backends, profiles)
        yield from _price_under_limit(raw, backends)
        yield from _baseline(raw, backends)
    yield from _load(raw)
    yield from _workload_names(raw)


def _table(raw: Table, key: str) -> Table | None:
    found = raw.get(key)
    return found if isinstance(found, Mapping) else None


def _one_of(table: Table, first: str, second: str, *, at: Path) -> Iterator[Problem]:
    if first in table and second in table:
        yield Problem(at, f"{first} and {second} exclude each other; want exactly one of them")
    if first not in table and second not in table:
        absent = ((*at, first), (*at, second))
        yield Problem(at, f"neither {first} nor {second}; want exactly one of them", absent=absent)


def _backends(backends: Table, profiles: Mapping[str, str]) -> Iterator[Problem]:
    if not backends:
        yield Problem(("backends",), "there is none; want a table [backends.NAME]")
    for name, backend in backends.items():
        if isinstance(backend, Mapping):
            at = ("backends", name)
            yield from _name(name, at)
            yield from _one_of(backend, "simulate", "url", at=at)
            yield from _profiles(backend, profiles, at=at)
            yield from _either(backend, at)
            yield from _behaviour(backend, at)
            yield from _transport(backend, at)


def _profiles(backend: Table, profiles: Mapping[str, str], *, at: Path) -> Iterator[Problem]:
    """Find names of profiles that are none."""
    named = {
        (*at, "simulate"): backend.get("simulate"),
        (*at, "behaviour", "fallback"): (_table(backend, "behaviour") or {}).get("fallback"),
    }
    for path, profile in named.items():
        if isinstance(profile, str) and profile not in profiles:
            yield Problem(path, no_such("profile", profile, profiles))


def _either(backend: Table, at: Path) -> Iterator[Problem]:
    """Find keys that make sense with `url` alone, or with `simulate` alone."""
    if "simulate" in backend and "output_control" in backend:
        text = "only with url; a simulated backend gives the planned length"
        yield Problem((*at, "output_control"), text)
    if "behaviour" in backend and "simulate" not in backend:
        yield Problem((*at, "behaviour"), "only with simulate; a server at a url behaves as it does")
    dialect = backend.get("dialect")
    if backend.get("output_control") == "ignore_eos" and dialect in UNFORCED:
        yield Problem((*at, "output_control"), f"dialect = {shown(dialect)} has no way to force a length")


def _behaviour(backend: Table, at: Path) -> Iterator[Problem]:
    """Find keys of a behaviour that change nothing without another one."""
    behaviour = _table(backend, "behaviour") or {}
    for keys, needed in DEPENDENT.items():
        if not any(behaviour.get(key) for key in needed):
            text = f"only with {' or '.join(needed)}"
            yield from (Problem((*at, "behaviour", key), text) for key in keys if key in behaviour)
    if "fallback" in behaviour and behaviour["fallback"] == backend.get("simulate"):
        yield Problem((*at, "behaviour", "fallback"), "the backend's own profile; want another one")


def _transport(backend: Table, at: Path) -> Iterator[Problem]:
    """Find what does not go with a backend's transport, and a proxy that is none."""
    websocket = backend.get("transport") == "websocket"
    dialect, proxy = backend.get("dialect", "openai-chat"), backend.get("proxy")
    if websocket and dialect != MESSAGES:
        text = f'"websocket" is spoken by dialect = "{MESSAGES}" alone; got {shown(dialect)}'
        yield Problem((*at, "transport"), text)
    if backend.get("warm_connection") and not websocket:
        yield Problem((*at, "warm_connection"), 'only with transport = "websocket"')
    if "simulate" in backend and "proxy" in backend:
        yield Problem((*at, "proxy"), "only with url; a simulated backend is on this machine")
    elif isinstance(proxy, str) and not re.fullmatch(r"http://([\w.-]+|\[[\da-fA-F:.]+\]):\d{1,5}/?", proxy):
        text = "want http://HOST:PORT of an HTTP proxy, without user and password"
        yield Problem((*at, "proxy"), text)


def _price_under_limit(raw: Table, backends: Table) -> Iterator[Problem]:
    if "spend_limit_usd" not in raw:
        return
    for name, backend in backends.items():
        if not isinstance(backend, Mapping) or "url" not in backend:
            continue
        path = ("backends", name, "price")
        if "price" not in backend:
            yield Problem(path, "missing; spend_limit_usd cannot hold without a price", absent=(path,))
        elif "usd_per_endpoint_hour" in (_table(backend, "price") or {}):
            yield Problem(path, "by the hour; spend_limit_usd adds up calls, which then have no cost")


def _baseline(raw: Table, backends: Table) -> Iterator[Problem]:
    baseline = (_table(raw, "compare") or {}).get("baseline")
    if not isinstance(baseline, str):
        return
    at = ("compare", "baseline")
    if baseline not in backends:
        yield Problem(at, no_such("backend", baseline, backends))
    elif len(backends) == 1:
        yield Problem(at, f"there is no backend beside {shown(baseline)}; want one to compare with it")


def _load(raw: Table) -> Iterator[Problem]:
    load = _table(raw, "load")
    if load is not None:
        yield from _one_of(load, "tasks", "measure_s", at=("load",))


def _workload_names(raw: Table) -> Iterator[Problem]:
    workloads = raw.get("workloads")
    if not isinstance(workloads, list):
        return
    if not workloads:
        yield Problem(("workloads",), "there is none; want a table [[workloads]]")
    first: dict[str, int] = {}
    for i, entry in enumerate(workloads):
        name = workload_name(entry) if isinstance(entry, Mapping) else None
        if name is None:
            continue
        path = ("workloads", i, "name") if "name" in entry else ("workloads", i)
        yield from _name(name, path)
        if name in first:
            text = f"the name {shown(name)} is taken by workloads[{first[name]}]; want a name of its own"
            yield Problem(path, text)
        first.setdefault(name, i)


def _name(name: str, path: Path) -> Iterator[Problem]:
    """Refuse a name that would break task ids (`backend/workload/k`), a line or a terminal."""
    if name != name.strip() or not all(letter.isalnum() or letter in "._- " for letter in name):
        yield Problem(path, f"want a name of letters, digits, spaces and . _ -; got {shown(name)}")


def kind_problem(entry: Table, kinds: Iterable[str], *, at: Path) -> Problem:
    """Say what is wrong with the kind of a workload that is none of `kinds`."""
    path = (*at, "kind")
    kind = entry.get("kind")
    if isinstance(kind, str):
        return Problem(path, no_such("kind", kind, kinds))
    want = f"want one of {', '.join(kinds)}"
    return (
        Problem(path, f"{want}; got {shown(kind)}")
        if "kind" in entry
        else Problem(path, f"missing; {want}", absent=(path,))
    )


def without_preset(
    problems: list[Problem], entry: Table, *, presets: Iterable[str], at: Path
) -> list[Problem]:
    """Tell of the preset that is not there, instead of every parameter that it would have given."""
    names, path, preset = list(presets), (*at, "preset"), entry.get("preset")
    left_out = [str(problem.path[-1]) for problem in problems if problem.absent]
    if names:
        problems = [problem for problem in problems if not problem.absent]
    if isinstance(preset, str):
        return [*problems, Problem(path, no_such("preset", preset, names))]
    if names and left_out and preset is None:
        text = f"missing; want one of {', '.join(names)}; without one, all of {', '.join(left_out)}"
        return [*problems, Problem(path, text, absent=(path,))]
    return problems


def workload_name(entry: Table) -> str | None:
    """Name of a workload: as given, else its preset, else its kind; None if that is no text."""
    name = entry.get("name", entry.get("preset", entry.get("kind")))
    return name if isinstance(name, str) else None
