"""How much the meter had to take at one time: streams, and output events a second."""

from dataclasses import dataclass

import numpy as np

from harness.measure.calls import Calls, Floats

SHORTEST_NS = 100_000_000
"""A stream shorter than this counts as spread over it: a burst of few events is no rate."""


@dataclass(frozen=True, slots=True)
class Load:
    """The most at any moment. streams: between their first and last output; a stream's rate is its mean."""

    streams: int
    events_per_s: float


def load_of(first_ns: Floats, last_ns: Floats, events: Floats) -> Load:
    """Find the greatest load of streams by their first and last output and their number of output events."""
    if not len(events):
        return Load(0, 0.0)
    ends_ns = np.maximum(last_ns, first_ns + SHORTEST_NS)
    rates = (events - 1) / (ends_ns - first_ns) * 1e9
    streams = _greatest(first_ns, last_ns, np.ones_like(events))
    return Load(round(streams), _greatest(first_ns, ends_ns, rates))


def calls_load(calls: Calls) -> Load:
    """Find the greatest load of a run's calls, of all its backends together."""
    out = calls[~np.isnan(calls.first_output_ns) & ~np.isnan(calls.last_output_ns)]
    return load_of(out.first_output_ns, out.last_output_ns, out.streamed_events)


def _greatest(begins: Floats, ends: Floats, weights: Floats) -> float:
    """Give the greatest sum of weights at one time; at the same moment a beginning comes before an end."""
    at = np.concatenate((begins, ends))
    order = np.argsort(at, kind="stable")
    return float(np.cumsum(np.concatenate((weights, -weights))[order]).max())
