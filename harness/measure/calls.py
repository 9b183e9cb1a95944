"""Calls by columns: what the numbers of a run are made of. A million records would be too large and too slow.

A number is a float64, exact up to 2^53 (in ns that is 104 days), nan where the record has None. A word is a
code into a list of all different ones.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.records import CallOutcome, CallRecord, TokenSource
from harness.values import ErrorKind, StampClock

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

TEXTS = ("task_id", "backend", "outcome", "clock", "token_source", "tier_served", "tier_asked")
ALWAYS = (
    "sent_ns",
    "done_ns",
    "shared_read_events",
    "streamed_events",
    "tokens_after_last",
    "swallowed_tokens",
    "limit_wait_ns",
)
"""Numbers that every call has."""
NUMBERS = (
    *ALWAYS,
    "first_output_ns",
    "first_answer_ns",
    "last_output_ns",
    "first_output_low_ns",
    "first_answer_low_ns",
    "last_output_low_ns",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "hidden_tokens",
    "first_event_tokens",
    "input_planned",
    "status",
)
KEYS = ("call_id", *TEXTS, "error", "attempts", *NUMBERS)
"""What is kept of a call: keys of its record."""

THROTTLED = (429, 498)
"""Statuses by which a server says that a limit is reached; 498: Groq's for its tier `flex`."""

Row = tuple[Any, ...]
"""Values of KEYS."""

_ROW: Callable[[CallRecord], Row] = attrgetter(*KEYS)
_KINDS: Mapping[str, Callable[[str], str]] = {
    "outcome": CallOutcome,
    "clock": StampClock,
    "token_source": TokenSource,
    "error_kind": ErrorKind,
}
"""Words that are one of a few."""
_OPTIONAL = ("tier", "tier_served", "error_kind", "error_message")


@dataclass(frozen=True, slots=True)
class Words:
    """A column of words: codes into `names`, -1 for None."""

    codes: NDArray[np.int32]
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, which: Mask) -> "Words":
        return Words(self.codes[which], self.names)

    def are(self, wanted: Collection[str | None]) -> Mask:
        """Tell for each entry whether it is one of `wanted`."""
        return np.array([name in wanted for name in (*self.names, None)])[self.codes]

    def each(self, number: Mapping[str, int]) -> NDArray[np.int64]:
        """Give a number for each entry; KeyError where there is none for a word that is there."""
        found = np.array([number.get(name, -1) for name in self.names], dtype=np.int64)[self.codes]
        if (found < 0).any():
            raise KeyError(self.names[self.codes[np.argmin(found)]])
        return found

    def counted(self) -> dict[str | None, int]:
        """Count entries, in the order in which they first come."""
        codes, first, counts = np.unique(self.codes, return_index=True, return_counts=True)
        return {None if codes[i] < 0 else self.names[codes[i]]: int(counts[i]) for i in np.argsort(first)}


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls in the order in which they ended; names as in CallRecord.

    tier: the one to be charged, as the server named it, else as it was asked for. attempts_ns: time from
    sent to done of attempts before the last one; attempts: their number, the last one too; first_sent_ns:
    when the first of them was sent; throttled: how many met a limit of the server.
    """

    task_id: Words
    backend: Words
    outcome: Words
    clock: Words
    token_source: Words
    tier: Words
    tier_served: Words
    error_kind: Words
    error_message: Words
    sent_ns: Floats
    done_ns: Floats
    attempts_ns: Floats
    attempts: Floats
    first_sent_ns: Floats
    throttled: Floats
    limit_wait_ns: Floats
    status: Floats
    first_output_ns: Floats
    first_answer_ns: Floats
    last_output_ns: Floats
    first_output_low_ns: Floats
    first_answer_low_ns: Floats
    last_output_low_ns: Floats
    shared_read_events: Floats
    streamed_events: Floats
    tokens_after_last: Floats
    swallowed_tokens: Floats
    input_tokens: Floats
    cached_tokens: Floats
    output_tokens: Floats
    reasoning_tokens: Floats
    hidden_tokens: Floats
    first_event_tokens: Floats
    input_planned: Floats

    def __len__(self) -> int:
        return len(self.sent_ns)

    def __getitem__(self, which: Mask) -> "Calls":
        return Calls(**{one.name: getattr(self, one.name)[which] for one in fields(self)})

    @property
    def ok(self) -> Mask:
        """Which calls ended well."""
        return self.outcome.are((CallOutcome.OK,))

    def of_tasks(self, task_ids: Collection[str]) -> "Calls":
        """Give the calls of some tasks."""
        return self[self.task_id.are(task_ids)]

    def per_task(self, values: Floats) -> dict[str, float]:
        """Sum up a column for each task that has a call; nan where one of its calls has nan."""
        sums = np.bincount(self.task_id.codes, weights=values)
        return {self.task_id.names[code]: float(sums[code]) for code in np.unique(self.task_id.codes)}


def calls_of(records: Iterable[CallRecord]) -> Calls:
    """Turn records into columns."""
    gathering = Gathering()
    gathering.add([_ROW(record) for record in records])
    return gathering.calls()


class Gathering:
    """Takes calls up, many rows at a time. `call_ids` is no column, since no number is made of it."""

    def __init__(self) -> None:
        self.call_ids: list[str] = []
        self._known: dict[str, dict[str | None, int]] = {
            one.name: {None: -1} if one.name in _OPTIONAL else {}
            for one in fields(Calls)
            if one.type is Words
        }
        self._parts: dict[str, list[NDArray[Any]]] = {one.name: [] for one in fields(Calls)}

    def add(self, rows: Sequence[Row]) -> None:
        """Take rows up; ValueError or TypeError, and none is, where one of them is no call's."""
        told: dict[str, Sequence[Any]] = dict.fromkeys(KEYS, ())
        told |= zip(KEYS, zip(*rows, strict=True), strict=False)  # no rows, no columns
        told |= {
            "tier": [s or a for s, a in zip(told["tier_served"], told["tier_asked"], strict=True)],
            "error_kind": [None if error is None else error.kind for error in told["error"]],
            "error_message": [None if error is None else error.message for error in told["error"]],
        }
        told |= _of_attempts(told["attempts"], told["sent_ns"], told["status"])
        if any(None in told[name] for name in ALWAYS):
            raise ValueError("a call without its marks")
        columns = {name: self._column(name, told[name]) for name in self._parts}
        "".join(told["call_id"])  # a TypeError if one is no text
        self.call_ids.extend(told["call_id"])
        for name, column in columns.items():
            self._parts[name].append(column)

    def calls(self) -> Calls:
        """Give all that was taken up, and forget it: else it would be held twice."""
        if not self.call_ids:
            self.add([])  # no columns, rather than none
        columns: dict[str, Any] = {}
        for name in list(self._parts):
            column = np.concatenate(self._parts.pop(name))
            known = self._known.get(name)
            columns[name] = (
                column if known is None else Words(column, [word for word in known if word is not None])
            )
        return Calls(**columns)

    def _column(self, name: str, told: Sequence[Any]) -> NDArray[Any]:
        """Make numbers of numbers, codes of words."""
        known = self._known.get(name)
        if known is None:
            return np.array(told, dtype=np.float64)
        for word in dict.fromkeys(told):
            if word in known:
                continue
            if not isinstance(word, str):
                raise TypeError(f"{name} is no text")
            known[str(_KINDS.get(name, str)(word))] = len(known) - (None in known)
        return np.fromiter(map(known.__getitem__, told), dtype=np.int32, count=len(told))


def _of_attempts(
    each: Sequence[Sequence[Mapping[str, Any]]], sent_ns: Sequence[int], status: Sequence[int | None]
) -> dict[str, Sequence[Any]]:
    """Make columns of attempts; a call that lists none had one."""
    return {
        "attempts_ns": [
            _before_ns(attempts, sent) if attempts else 0
            for attempts, sent in zip(each, sent_ns, strict=True)
        ],
        "attempts": [len(attempts) or 1 for attempts in each],
        "first_sent_ns": [
            attempts[0]["sent_ns"] if attempts else sent for attempts, sent in zip(each, sent_ns, strict=True)
        ],
        "throttled": [
            sum(one.get("status") in THROTTLED for one in attempts) if attempts else last in THROTTLED
            for attempts, last in zip(each, status, strict=True)
        ],
    }


def _before_ns(attempts: Sequence[Mapping[str, Any]], sent_ns: int) -> int:
    """Sum up what attempts before the last one took."""
    return sum(int(one["done_ns"]) - int(one["sent_ns"]) for one in attempts if one["sent_ns"] < sent_ns)
