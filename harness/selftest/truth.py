"""What the server said of an answer, read out of its bytes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Truth:
    """One answer as the server sent it; ns on CLOCK_MONOTONIC, one entry an output event.

    sent, written: the server's clock just before an event's send, and one it read behind it. asked_ns: when
    the request had come.
    """

    sent: Times
    written: Times
    asked_ns: int


def told(body: bytes) -> Truth:
    """Read the truth out of a body of `simulator.truth_server`; each event tells of the one before."""
    events = events_of(body)
    output = sum(1 for event in events if event["choices"][0]["delta"])
    sends = np.array([event["last_ns"] for event in events[1:]], dtype=np.int64).reshape(-1, 2)[:output]
    return Truth(sends[:, 0], sends[:, 1], events[0]["asked_ns"] if events else 0)


def events_of(body: bytes) -> list[dict[str, Any]]:
    """Parse the whole events of a body, without its end mark."""
    return [orjson.loads(line[6:]) for line in body.split(b"\n\n")[:-1] if line[6:7] == b"{"]
