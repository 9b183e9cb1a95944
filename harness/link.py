"""Messages between a Locust process and its engine process: one line of JSON each, over one pipe pair.

Sans-io: this file makes lines of messages and messages of lines; who writes and reads them is elsewhere.
To the engine go Begin, Go, Start, Stop, Leave and Drain; back come Ready, Refused, Began, Call, Task,
Done, Finished, GaveUp and Drained. Those which concern the run travel on to its owner as plain values, with
Gone and Settled, which the Locust process adds. The pipe's end is a message too: the other side is gone.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import orjson

from harness.measure.histogram import Histogram, from_bytes, to_bytes


@dataclass(frozen=True, slots=True)
class Begin:
    """Connect to the backends and wait for Go.

    text: of the scenario file; overrides: what the command line makes of it. urls: of the simulated
    backends, in order. index, count: which share of the plan. folder: DIR on the owner's machine; where it
    cannot be seen, events go to `own_folder`. drain_s: how long open tasks may go on at the end.
    """

    scenario: str
    text: str
    overrides: dict[str, Any]
    urls: list[str]
    run_id: str
    index: int
    count: int
    folder: str
    own_folder: str | None
    drain_s: float


@dataclass(frozen=True, slots=True)
class Go:
    """Start now: the records' axis begins at this time, the same for all engines.

    monotonic_ns: on the owner's clock, right for engines on its machine; wall_s: for the others.
    """

    monotonic_ns: int
    wall_s: float


@dataclass(frozen=True, slots=True)
class Start:
    """A user's next task, please. table: which backends it does, an index into the engine's tables."""

    user: int
    table: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Cut a user's task, if it is in one: Locust has killed the user."""

    user: int


@dataclass(frozen=True, slots=True)
class Leave:
    """A user has gone; what is left of its session is nobody's."""

    user: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Start nothing more, let open tasks end within `drain_s`, and tell the account. cut: end them now."""

    cut: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """Connected. here: whether DIR is on this machine; events: the file that events go to."""

    here: bool
    events: str
    pid: int
    host: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine cannot run; a sentence for a person, and the exit code that goes with it."""

    sentence: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class Began:
    """A task has begun; user: who does it, None in an open load."""

    task_id: str
    backend: str
    workload: str
    phase: str
    user: int | None


@dataclass(frozen=True, slots=True)
class Call:
    """A call has ended. line: as in `calls.jsonl`; gaps: its histogram in us, packed."""

    line: dict[str, Any]
    gaps: str


@dataclass(frozen=True, slots=True)
class Task:
    """A task has ended. line: as in `tasks.jsonl`."""

    line: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Done:
    """A user's task is over; more = False: there was none for it."""

    user: int
    more: bool


@dataclass(frozen=True, slots=True)
class Finished:
    """The engine has come to its end: its share is done, or its time is over."""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """A backend cannot be measured any more."""

    backend: str
    why: str


@dataclass(frozen=True, slots=True)
class Drained:
    """Everything is recorded and told: so many tasks and calls. Account and machinery as plain values."""

    tasks: int
    calls: int
    account: dict[str, Any]
    cpu_share: float
    lag_p99_ms: float | None


@dataclass(frozen=True, slots=True)
class Gone:
    """The engine has ended, and nobody had asked it to."""


@dataclass(frozen=True, slots=True)
class Settled:
    """After Drained: Locust's own last figures have been sent as well."""


Message = (
    Begin | Go | Start | Stop | Leave | Drain
    | Ready | Refused | Began | Call | Task | Done | Finished | GaveUp | Drained
    | Gone | Settled
)  # fmt: skip

KINDS: Mapping[str, type[Message]] = {kind.__name__: kind for kind in Message.__args__}


def plain(message: Message) -> dict[str, Any]:
    """Give a message as plain values, as it travels."""
    return {"is": type(message).__name__} | {
        field.name: getattr(message, field.name) for field in fields(message)
    }


def message_of(told: Mapping[str, Any]) -> Message:
    """Make a message of plain values; ValueError if they are none."""
    values = dict(told)
    try:
        return KINDS[values.pop("is")](**values)
    except (KeyError, TypeError) as fault:
        raise ValueError(f"not a message of this version: {fault}") from None


def to_line(message: Message) -> bytes:
    """Write a message as a line."""
    return orjson.dumps(plain(message), option=orjson.OPT_APPEND_NEWLINE)


class Lines:
    """Cuts what comes from a pipe into messages; a torn last line, of a process that died, is never given."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Message]:
        """Take what was read and give the messages that are whole now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [message_of(orjson.loads(line)) for line in lines]


def packed(counted: Histogram) -> str:
    """Pack a histogram for a message."""
    return b64encode(to_bytes(counted)).decode()


def unpacked(text: str) -> Histogram:
    """Unpack a histogram; ValueError if it is none."""
    return from_bytes(b64decode(text))
