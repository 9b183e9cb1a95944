"""Counts of times in buckets of constant relative width: what travels between processes.

Log-linear: each power of two is cut into 128 equal buckets, so a bucket is at most 1/128 of its value
wide and its middle at most 0.4 % off. Merging is addition: exact, in any order. Values are integers
(ns or us); what is negative or does not fit is counted, never dropped.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

STEPS = 128
HEAD_BYTES = 16
_SHIFT = 7  # log2(STEPS)
_FRACTION = 52  # bits of a float64 below its exponent, which is 1023 too large
OVERFLOW_FROM = 1 << 52
"""Beyond this a float64 is no longer exact; in ns that is 52 days."""

Ints = NDArray[np.int64]


def bucket(values: Ints) -> Ints:
    """Give each value's bucket: the value itself below 256, then 128 a power of two.

    From 128 on that is the exponent of its float64 with the first seven bits behind it, less an offset.
    """
    buckets = values.astype(np.float64).view(np.int64)
    buckets >>= _FRACTION - _SHIFT
    buckets -= (1023 + _SHIFT - 1) << _SHIFT
    return np.where(values < STEPS, values, buckets)


def lower_edge(buckets: Ints) -> Ints:
    """Give the smallest value of each bucket; the inverse of `bucket` at bucket borders."""
    exponents = np.maximum((buckets >> _SHIFT) - 1, 0)
    return np.asarray((buckets - (exponents << _SHIFT)) << exponents)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Sparse counts: `buckets` rising, `counts` beside them; `overflow` values fit nowhere."""

    buckets: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    counts: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    overflow: int = 0

    @property
    def total(self) -> int:
        """Number of values, those that did not fit included."""
        return int(self.counts.sum()) + self.overflow


def histogram(values: Ints) -> Histogram:
    """Count integer values."""
    fits = values[(values >= 0) & (values < OVERFLOW_FROM)]
    buckets, counts = np.unique(bucket(fits), return_counts=True)
    return Histogram(buckets, counts.astype(np.int64), overflow=len(values) - len(fits))


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """Add histograms up; the same whatever their order."""
    parts = list(histograms)
    if not parts:
        return Histogram()
    dense = np.bincount(  # float64, exact up to 2^53 values
        np.concatenate([part.buckets for part in parts]),
        weights=np.concatenate([part.counts for part in parts]),
    )
    buckets = np.flatnonzero(dense)
    return Histogram(buckets, dense[buckets].astype(np.int64), overflow=sum(part.overflow for part in parts))


def quantile(counted: Histogram, q: float) -> float | None:
    """Give the middle of the bucket that holds the smallest value with F >= q; None where none can be told.

    Values that did not fit count as larger than all others; a quantile among them is None.
    """
    if not counted.total:
        return None
    sums = np.cumsum(counted.counts)
    at = int(np.searchsorted(sums, q * counted.total - 1e-9, side="left"))
    if at >= len(sums):
        return None
    edge = counted.buckets[at : at + 1]
    low, high = int(lower_edge(edge)[0]), int(lower_edge(edge + 1)[0])
    return (low + high - 1) / 2


def to_bytes(counted: Histogram) -> bytes:
    """Pack: number of buckets and overflow, then bucket steps and counts, as little-endian 32 and 64 bit."""
    head = np.array([len(counted.buckets), counted.overflow], dtype="<u8")
    steps = np.diff(counted.buckets, prepend=0).astype("<u4")
    return head.tobytes() + steps.tobytes() + counted.counts.astype("<u8").tobytes()


def from_bytes(data: bytes) -> Histogram:
    """Unpack what `to_bytes` packed; ValueError if it was not."""
    if len(data) < HEAD_BYTES:
        raise ValueError("too short for a histogram")
    count, overflow = (int(number) for number in np.frombuffer(data[:HEAD_BYTES], dtype="<u8"))
    if len(data) != HEAD_BYTES + 12 * count:
        raise ValueError("not a histogram: its length does not fit its number of buckets")
    steps = np.frombuffer(data[HEAD_BYTES : HEAD_BYTES + 4 * count], dtype="<u4").astype(np.int64)
    counts = np.frombuffer(data[HEAD_BYTES + 4 * count :], dtype="<u8").astype(np.int64)
    return Histogram(np.cumsum(steps), counts, overflow=overflow)
