"""Tool calls out of the items of a Responses stream, which name them in several ways."""

from typing import Any

from harness.wire.choice import TOOL
from harness.wire.tool_calls import ToolCalls

ASKING = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "computer_call": "action",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
}
"""Items that ask the client to run a tool, and the key that says with what. Other tools the server runs."""


class _Call:
    """What is known of a tool call: its id, and what of it has come."""

    __slots__ = ("argued", "id", "named")

    def __init__(self, id_: object) -> None:
        self.id = id_
        self.named = self.argued = False


class ItemCalls:
    """Finds the call that an event is about, and keeps what of it is new."""

    __slots__ = ("_calls", "_places", "_tools")

    def __init__(self, tools: ToolCalls) -> None:
        self._tools = tools
        self._calls: list[_Call] = []
        self._places: dict[str | int, int] = {}  # by item's id, by call's id, by output index

    def __len__(self) -> int:
        return len(self._calls)

    def item(self, event: dict[str, Any], item: dict[str, Any]) -> int:
        """Take an item that begins or is whole, of a type in ASKING, less what came of it before."""
        kind = item["type"]
        place = self._place(event, item.get("id"), item.get("call_id") or item.get("id"))
        call, said = self._calls[place], item.get(ASKING[kind])
        name = item.get("name") or (kind if said else None)  # calls of the vendor's own tools have no name
        return self._grow(place, name=None if call.named else name, arguments=None if call.argued else said)

    def piece(self, event: dict[str, Any]) -> int:
        """Take a piece of a call's arguments."""
        delta = event.get("delta")
        if type(delta) is not str or not delta:
            return 0
        return self._grow(self._place(event, event.get("item_id")), arguments=delta)

    def done(self, event: dict[str, Any]) -> int:
        """Take the whole arguments of a call."""
        place = self._place(event, event.get("item_id"))
        if self._calls[place].argued:
            return 0
        return self._grow(place, arguments=event.get("arguments") or event.get("input"))

    def _grow(self, place: int, *, name: object = None, arguments: object = None) -> int:
        call = self._calls[place]
        call.named |= bool(name)
        call.argued |= bool(arguments)
        function = {"name": name, "arguments": arguments}
        return TOOL if self._tools.add([{"index": place, "id": call.id, "function": function}]) else 0

    def _place(self, event: dict[str, Any], item_id: object, call_id: object = None) -> int:
        """Find a call, by its item's id, its own, or its output index; else begin one.

        Servers leave some of these out, or give all items one index. What names nothing goes to the newest
        call.
        """
        index = event.get("output_index")
        ids = [key for key in (item_id, call_id) if type(key) is str]
        place = next((self._places[key] for key in ids if key in self._places), None)
        if place is None and type(index) is int:
            place = self._places.get(index)
            if place is not None and call_id and self._calls[place].id not in (None, call_id):
                place = None  # another call at the same index
        elif place is None and call_id is None and self._calls:
            place = len(self._calls) - 1
        if place is None:
            place = len(self._calls)
            self._calls.append(_Call(call_id))
        self._calls[place].id = self._calls[place].id or call_id
        self._places.update(dict.fromkeys(ids, place))
        if type(index) is int:
            self._places[index] = place
        return place
