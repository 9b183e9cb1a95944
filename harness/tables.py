"""Tables of a TOML file to frozen models; each fault becomes a sentence at the key the user wrote.

The models are pydantic's. Its own messages speak of models and inputs, so none of them is shown: a
fault is said anew from the model's JSON schema, which knows what would have been right.
"""

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

TABLE = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)
"""Configuration of every model read from a scenario. A tuple needs `Field(strict=False)`: TOML has arrays."""

SAY = "say"
"""Error type of a pydantic custom error whose message is shown as it is."""

_SILENT = {"key_env", "url"}  # a secret may stand here by mistake: its value is never shown
_LONG = 60  # characters of a text that are shown
_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "an array",
    "object": "a table",
}
_BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}

Path = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: the path of its key and a sentence.

    `meant` is the key that an unknown one was probably meant to be. `absent` are keys whose absence is
    the fault; if one of them was only misspelt, the fault is not worth telling.
    """

    path: Path
    text: str
    meant: Path | None = None
    absent: tuple[Path, ...] = ()


def check(
    model: type[Model], table: Mapping[str, Any], *, at: Path = (), also: Iterable[str] = ()
) -> tuple[Model | None, list[Problem]]:
    """Make `model` from `table`, or tell all that is wrong with it, with paths that start with `at`.

    `also` are further keys that may stand in the same table of the file.
    """
    try:
        return model.model_validate(table), []
    except ValidationError as error:
        faults = error.errors(include_url=False)
    schema = model.model_json_schema()
    problems = []
    for fault in faults:
        if fault["type"] == "too_short" and len(fault["input"]) >= fault["ctx"]["min_length"]:
            continue  # long enough as written; pydantic counts its right items only
        problem = _problem(fault, schema, table, also)
        path = (*at, *problem.path)
        meant = (*at, *problem.meant) if problem.meant else None
        absent = tuple((*at, *key) for key in problem.absent)
        problems.append(Problem(path, problem.text, meant=meant, absent=absent))
    return None, problems


def in_order(problems: Iterable[Problem], table: Mapping[str, Any]) -> list[Problem]:
    """Sort as the keys stand in the file; keep one problem a key, none that a misspelling caused."""
    told: dict[Path, Problem] = {}
    for problem in problems:
        told.setdefault(problem.path, problem)
    meant = {problem.meant for problem in told.values()}
    kept = [problem for problem in told.values() if not meant.intersection(problem.absent)]
    return sorted(kept, key=lambda problem: _rank(problem.path, table))


def dotted(path: Path) -> str:
    """Write a path as a user would: `backends."my fast".price`, `workloads[0].kind`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        bare = part.isascii() and part.replace("-", "_").replace("_", "a").isalnum()
        text += ("." if text else "") + (part if bare else _quoted(part))
    return text


def shown(value: object) -> str:
    """Write a value as it stands in TOML, or only its kind where it is long."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        short = value if len(value) <= _LONG else value[:_LONG] + "..."
        return _quoted(short)
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, Sequence):
        return f"an array of {len(value)}"
    return str(value)


def no_such(what: str, name: str, known: Iterable[str]) -> str:
    """Say that no `what` has this name, which one is near, and which there are."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f'did you mean "{near[0]}"? ' if near else ""
    return f"no {what} {shown(name)}; {hint}{what}s: {', '.join(names) or 'none'}"


def _quoted(text: str) -> str:
    """Quote a text as TOML does; what does not print is escaped, as a terminal might obey it."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _rank(path: Path, table: object) -> list[int]:
    """Place of a path in the file; a key that is not there comes after those of its table."""
    rank = []
    for part in path:
        if isinstance(table, Mapping) and isinstance(part, str):
            rank.append(list(table).index(part) if part in table else len(table))
            table = table.get(part)
        elif isinstance(table, list) and isinstance(part, int) and part < len(table):
            rank.append(part)
            table = table[part]
    return rank


def _problem(
    fault: Mapping[str, Any], schema: dict[str, Any], table: Mapping[str, Any], also: Iterable[str]
) -> Problem:
    loc, kind = fault["loc"], fault["type"]
    if kind == "extra_forbidden":
        return _unknown_key(loc, schema, table, also)
    path, nodes, _ = _locate(loc, schema, table)
    if kind == "missing":
        path = (*path, loc[-1])
        return Problem(path, f"missing; want {_want(nodes)}", absent=(path,))
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return _untagged((*path, fault["ctx"]["discriminator"].strip("'")), nodes, fault["input"])
    if kind in (SAY, "value_error"):
        return Problem(path, str(fault.get("ctx", {}).get("error", fault["msg"])))
    return Problem(path, _not_wanted(path, nodes, fault["input"]))


def _unknown_key(loc: Path, schema: dict[str, Any], table: Mapping[str, Any], also: Iterable[str]) -> Problem:
    parent, nodes, here = _locate(loc[:-1], schema, table)
    key = str(loc[-1])
    path = (*parent, key)
    fitting = _fitting(nodes, here)
    elsewhere = [node for node in nodes if node not in fitting and key in node.get("properties", {})]
    for node in elsewhere:
        for name, choice in node["properties"].items():
            if "const" in choice and name in here:
                return Problem(path, f"not with {name} = {shown(here[name])}, only {shown(choice['const'])}")
    known = list(dict.fromkeys(name for node in fitting for name in node.get("properties", {})))
    if not parent:
        known += also
    near = difflib.get_close_matches(key, known, n=1)
    if near:
        return Problem(path, f'unknown key; did you mean "{near[0]}"?', meant=(*parent, near[0]))
    return Problem(path, f"unknown key; known: {', '.join(known)}")


def _untagged(path: Path, nodes: list[dict[str, Any]], table: Mapping[str, Any]) -> Problem:
    choices = [node["properties"][path[-1]] for node in nodes]
    if path[-1] in table:
        return Problem(path, _not_wanted(path, choices, table[str(path[-1])]))
    return Problem(path, f"missing; want {_want(choices)}", absent=(path,))


def _not_wanted(path: Path, nodes: list[dict[str, Any]], value: object) -> str:
    if path and path[-1] in _SILENT:
        return f"want {_want(nodes)}"
    choices = [str(choice) for node in nodes for choice in _choices(node)]
    near = difflib.get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    hint = f'; did you mean "{near[0]}"?' if near else ""
    return f"want {_want(nodes)}, got {shown(value)}{hint}"


def _choices(node: Mapping[str, Any]) -> list[Any]:
    return [node["const"]] if "const" in node else list(node.get("enum", ()))


def _want(nodes: list[dict[str, Any]]) -> str:
    """Say what would be right at any of the schema's nodes."""
    wants = [shown(choice) for node in nodes for choice in _choices(node)]
    for node in nodes:
        if _choices(node):
            continue
        least = node.get("minLength") or node.get("minItems")
        words = [_WORDS.get(node.get("type", ""), "another value")]
        words += [f"of at least {least}"] if node.get("minItems") else []
        words += ["that is not empty"] if node.get("minLength") else []
        bounds = [f"{sign} {node[name]}" for name, sign in _BOUNDS.items() if name in node]
        wants.append(" ".join([*words, " and ".join(bounds)]).strip())
    return " or ".join(dict.fromkeys(wants))


def _locate(
    loc: Path, schema: dict[str, Any], table: Mapping[str, Any]
) -> tuple[Path, list[dict[str, Any]], Any]:
    """Follow pydantic's place in the schema and in the file at once.

    Some parts of it are not in the file (the branch of a union, a field that a validator made): they
    are followed in the schema, if they are there, and left out of the path.
    """
    path: Path = ()
    nodes = _branches(schema, schema)
    here: Any = table
    for part in loc:
        below = [child for node in _fitting(nodes, here) for child in _children(node, part)]
        nodes = [branch for child in below for branch in _branches(child, schema)] or nodes
        in_table = isinstance(here, Mapping) and part in here
        in_array = isinstance(here, list) and isinstance(part, int) and part < len(here)
        if in_table or in_array:
            path, here = (*path, part), here[part]
    return path, nodes, here


def _children(node: Mapping[str, Any], part: str | int) -> list[dict[str, Any]]:
    if isinstance(part, int):
        found = node.get("items")
    else:
        found = node.get("properties", {}).get(part, node.get("additionalProperties"))
    return [found] if isinstance(found, dict) else []


def _branches(node: dict[str, Any], schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All that may stand at a node: references followed, unions taken apart, null left out."""
    if "$ref" in node:
        return _branches(schema["$defs"][node["$ref"].rpartition("/")[2]], schema)
    several = node.get("anyOf") or node.get("oneOf") or node.get("allOf")
    if several:
        return [branch for one in several for branch in _branches(one, schema)]
    return [] if node.get("type") == "null" else [node]


def _fitting(nodes: list[dict[str, Any]], table: object) -> list[dict[str, Any]]:
    """Those branches of a union that a table was meant to be: same fixed keys, then all needed keys."""
    if len(nodes) == 1 or not isinstance(table, Mapping):
        return nodes
    fixed = [
        node
        for node in nodes
        if all(
            table.get(name, choice["const"]) == choice["const"]
            for name, choice in node.get("properties", {}).items()
            if "const" in choice and name in node.get("required", ())
        )
    ]
    return [node for node in fixed if set(node.get("required", ())) <= set(table)] or fixed or nodes
