"""A scenario file's bytes to raw TOML tables, or one sentence why that cannot be."""

import tomllib
from pathlib import Path
from typing import Any

from harness.errors import ScenarioError


def read_text(path: Path) -> str:
    """Read a whole file as UTF-8. Raises ScenarioError."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        problem = "there is no such file; want a scenario in TOML"
    except IsADirectoryError:
        problem = "this is a directory; want a scenario file"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problem = f"line {line}: this is not UTF-8; save the file as UTF-8"
    raise ScenarioError([f"{path}: {problem}"])


def toml_tables(text: str, *, source: str) -> dict[str, Any]:
    """Parse TOML; only its first fault can be told. Raises ScenarioError."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        problem = "not TOML: nested too deeply"
    except ValueError as error:
        what, _, where = str(error).partition(" (at ")
        place = f"{where.rstrip(')')}: " if where else ""
        problem = f"{place}not TOML: {what[:1].lower()}{what[1:]}"
    raise ScenarioError([f"{source}: {problem}"])
