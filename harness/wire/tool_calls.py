"""Whole tool calls out of the fragments that chat-shaped streams carry."""

from typing import Any

import orjson

from harness.values import ToolCall
from harness.wire.payload import dumped, joined


class _Fragments:
    """One call while it grows."""

    __slots__ = ("arguments", "id", "name", "place")

    def __init__(self, place: int) -> None:
        self.place = place
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


class ToolCalls:
    """The tool calls of one choice, in the order of their indices, else in the order they began in.

    Servers differ: fragments come with an index, without one, or all with index 0; id and name once
    or in every fragment; the old `function_call` instead, or as a double of `tool_calls`.
    """

    __slots__ = ("_by_index", "_calls", "_current", "_old")

    def __init__(self) -> None:
        self._calls: list[_Fragments] = []
        self._by_index: dict[int, _Fragments] = {}
        self._current: _Fragments | None = None
        self._old: _Fragments | None = None

    def add(self, entries: list[Any]) -> bool:
        """Take the `tool_calls` of one delta; True if it brought a part of a name or of arguments."""
        brought = False
        for entry in entries:
            if type(entry) is not dict:
                continue
            function, id_ = _function(entry), _text(entry.get("id"))
            if function or id_:
                call = self._find(entry.get("index"), id_, _text(function.get("name")))
                brought |= _grow(call, id_, function)
        return brought

    def add_old(self, function: dict[str, Any]) -> bool:
        """Take a delta's `function_call`; it says nothing new once `tool_calls` came."""
        if self._calls:
            return False
        self._old = self._old or _Fragments(0)
        return _grow(self._old, "", function)

    def add_whole(self, name: object, id_: object, arguments: object) -> bool:
        """Take a call that came in one piece, of its own whatever the others are called."""
        self._current = call = self._begin(None)
        call.id, call.name = _text(id_), _text(name)
        if type(arguments) is dict:
            arguments = dumped(arguments)
        call.arguments = [_text(arguments)]
        return bool(call.name or call.arguments[0])

    def whole(self) -> tuple[ToolCall, ...]:
        """Return what was called, as far as it came."""
        calls = sorted(self._calls, key=lambda call: call.place) or ([self._old] if self._old else [])
        return tuple(ToolCall(joined([c.id]), joined([c.name]), joined(c.arguments)) for c in calls)

    def _find(self, index: object, id_: str, name: str) -> _Fragments:
        """Find the call that a fragment belongs to; a new one if it begins one."""
        if type(index) is int:
            known = self._by_index.get(index)
            if known is None or (name and id_ and known.id and id_ != known.id):
                known = self._by_index[index] = self._begin(index)
            self._current = known
            return known
        current = self._current
        if id_:
            current = next((call for call in self._calls if call.id == id_), None)
        elif current and name and (name != current.name or _is_json("".join(current.arguments))):
            current = None
        self._current = current or self._begin(None)
        return self._current

    def _begin(self, index: int | None) -> _Fragments:
        call = _Fragments(len(self._calls) if index is None else index)
        self._calls.append(call)
        return call


def _function(entry: dict[str, Any]) -> dict[str, Any]:
    """Find what a fragment says of its call; custom tools of OpenAI's have an `input` of free text."""
    function, custom = entry.get("function"), entry.get("custom")
    if type(function) is dict:
        return function
    return custom | {"arguments": custom.get("input")} if type(custom) is dict else {}


def _grow(call: _Fragments, id_: str, function: dict[str, Any]) -> bool:
    """Add a fragment; a name that is repeated whole is not a further piece of it."""
    call.id = call.id or id_
    name = _text(function.get("name"))
    if name and name != call.name:
        call.name += name
    arguments = function.get("arguments")
    if type(arguments) is dict and arguments:
        arguments = dumped(arguments)
    if type(arguments) is str and arguments:
        call.arguments.append(arguments)
        return True
    return bool(name)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True
