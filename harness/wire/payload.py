"""JSON objects out of payloads, as servers really send them."""

import json
from typing import Any

import orjson


def parse(payload: bytes) -> dict[str, Any] | None:
    """Read a JSON object; None if it is anything else."""
    try:
        event = orjson.loads(payload)
    except ValueError:
        event = _lenient(payload)
    return event if type(event) is dict else None


def dumped(value: object) -> str:
    """Write what `parse` has read as JSON again."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # what only the lenient reader takes
        return json.dumps(value)


def joined(pieces: list[str]) -> str:
    """Make one text of the pieces, and one character of halves that came in two events."""
    text = "".join(pieces)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _lenient(payload: bytes) -> object:
    """Read what orjson refuses and official SDKs take: NaN, and half of a character in an escape."""
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return None
