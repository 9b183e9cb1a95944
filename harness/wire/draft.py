"""An answer while it grows: what the events of every dialect fill in."""

from typing import Any

from harness.values import CallError, ErrorKind
from harness.wire import refusal as refusals
from harness.wire.choice import ChoiceState
from harness.wire.payload import joined


class Draft:
    """What has been understood so far.

    choices: by index; a dialect without choices uses number 0. over: the end mark came. usage: the newest
    one that holds a number, in the dialect's own words. total: the running total of output tokens that the
    event in hand tells, else None. implausible: a number that cannot be true was told. timing: what the
    server says of its own times, seconds by `wire.vendors`' names. error_ends: the end mark is also where
    the server says that it failed. error_status, incomplete: see `values.Answer`.
    """

    __slots__ = (
        "choices",
        "error",
        "error_ends",
        "error_status",
        "implausible",
        "incomplete",
        "over",
        "request_id",
        "tier",
        "timing",
        "total",
        "usage",
    )

    def __init__(self) -> None:
        self.choices = {0: ChoiceState()}
        self.over = False
        self.error: CallError | None = None
        self.request_id: str | None = None
        self.tier: str | None = None
        self.usage: dict[str, Any] = {}
        self.total: int | None = None
        self.implausible = False
        self.timing: dict[str, float] = {}
        self.error_ends = False
        self.error_status: int | None = None
        self.incomplete: str | None = None

    def choice(self, index: object) -> ChoiceState:
        """Find a choice by the index that an event names; without one it is the first."""
        place = index if type(index) is int else 0
        state = self.choices.get(place)
        if state is None:
            state = self.choices[place] = ChoiceState()
        return state

    def fail(self, kind: ErrorKind, message: str) -> None:
        """Keep the first failure, it is the cause of the others."""
        self.error = self.error or CallError(kind, message)

    def finish(self, state: ChoiceState, reason: object) -> None:
        """Keep why a choice ended, as on the wire."""
        state.finish_reason = joined([str(reason)])

    def cut_short(self, reason: object) -> None:
        """Keep why an answer is incomplete."""
        if isinstance(reason, str):
            self.incomplete = joined([reason])

    def named(self, id_: object) -> None:
        """Keep the first id that the answer gives itself."""
        if self.request_id is None and isinstance(id_, str):
            self.request_id = joined([id_]) or None

    def served(self, tier: object) -> None:
        """Keep the newest word on the tier that serves."""
        if isinstance(tier, str):
            self.tier = joined([tier])

    def broke(self, event: object, otherwise: str = "") -> None:
        """Take an event that says that the server failed."""
        self.fail(ErrorKind.STREAM_ERROR, refusals.error_message(event) or otherwise)
        self.over = self.over or self.error_ends
