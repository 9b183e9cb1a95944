"""What the records of a call still say about each of its output events."""

import numpy as np
from numpy.typing import NDArray

from harness.records import CallRecord, EventsRecord

HALF_US = 500
"""Records hold whole microseconds: a time lies at most this far below or above the one it became."""

Times = NDArray[np.int64]


def event_bounds(call: CallRecord, events: EventsRecord) -> tuple[Times, Times]:
    """Rebuild (low, high) of every output event: its bytes were complete no sooner and no later.

    Both arrays are in ns from the start of the run, one entry an event, and contain the bounds that
    were measured: they are wider by the rounding, and a low may be that of an earlier read, since reads
    that completed no output event are not recorded. An exact event's two bounds are 1 us apart.
    """
    if call.first_output_ns is None or call.first_output_low_ns is None:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing
    first_us = (call.first_output_ns + HALF_US) // 1000
    rounded = (first_us + np.cumsum(np.asarray(events.gaps_us, dtype=np.int64))) * 1000
    sizes = np.asarray(events.reads, dtype=np.int64)
    ends = np.cumsum(np.abs(sizes)) - 1
    before = rounded[np.concatenate(([0], ends[:-1]))] - HALF_US
    before[0] = call.first_output_low_ns
    low = np.repeat(before, np.abs(sizes))
    exact = ends[sizes > 0]
    low[exact] = rounded[exact] - HALF_US
    return low, rounded + HALF_US
