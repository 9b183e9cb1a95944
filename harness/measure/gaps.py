"""Gaps of all calls in little memory: how many fell into each bucket, task by task.

Tasks are enough, since they are resampled whole; a histogram a call would be three times as many numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.measure.histogram import OVERFLOW_FROM, Histogram, bucket, lower_edge

HOT = 32_000
"""So many values are put into their buckets together: few enough to stay in the processor's cache."""
VALUES_AT_ONCE = 2_000_000
TASKS_AT_ONCE = 2000
"""So many are counted together: enough that a task's calls meet, and no more than fits beside the rest."""
BEYOND = int(bucket(np.array([OVERFLOW_FROM]))[0])
"""The bucket of what fits into none."""
WIDTH = BEYOND + 1

CLUMP_US, CLUMP_SHARE = 1000, 0.5
"""Events came in clumps if more than this share of the gaps is shorter (research: c8s#140)."""
CLUMP_MEAN_US = 2000
"""And if the mean gap is longer: a stream of 750 tokens/s has short gaps by itself."""

Ints = NDArray[np.int64]


def clumped_share(pooled: Histogram) -> float | None:
    """Give the share of gaps below 1 ms where it shows that something held events back; else None."""
    edges = lower_edge(pooled.buckets)
    if not pooled.total or (edges * pooled.counts).sum() <= CLUMP_MEAN_US * pooled.total:
        return None
    share = float(pooled.counts[edges < CLUMP_US].sum()) / pooled.total
    return share if share > CLUMP_SHARE else None


def values_of(counted: Histogram) -> Ints:
    """Give values that are counted so, where only a histogram came; ValueError if it cannot be one."""
    buckets, counts = counted.buckets, counted.counts
    numbers = np.concatenate((counts, buckets, BEYOND - 1 - buckets, [counted.overflow]))
    if len(buckets) != len(counts) or (numbers < 0).any():
        raise ValueError("not a histogram")
    return np.concatenate((np.repeat(lower_edge(buckets), counts), np.full(counted.overflow, OVERFLOW_FROM)))


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of some tasks: those of task i are `buckets` and `counts` from starts[i] to the next start."""

    task_ids: Sequence[str]
    starts: Ints
    buckets: NDArray[np.uint16]
    counts: NDArray[Any]

    def of_rows(self, rows: NDArray[np.bool_]) -> tuple[NDArray[np.uint16], NDArray[Any]]:
        """Give buckets and counts of some of the tasks."""
        if rows.all():
            return self.buckets, self.counts
        entries = np.repeat(rows, np.diff(self.starts, append=len(self.buckets)))
        return self.buckets[entries], self.counts[entries]

    def up_to(self, last: int) -> Ints:
        """Count each task's values in buckets up to `last`."""
        return np.add.reduceat(np.where(self.buckets <= last, self.counts, 0), self.starts, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Placed:
    """Counted gaps, and the place of each of their tasks, -1 where it has none."""

    parts: Sequence[tuple[Counted, Ints]]

    def pooled(self) -> Histogram:
        """Pool the gaps of all tasks that have a place."""
        dense = np.zeros(WIDTH)
        for part, places in self.parts:
            buckets, counts = part.of_rows(places >= 0)
            dense += np.bincount(buckets, weights=counts, minlength=WIDTH)
        found = np.flatnonzero(dense[:BEYOND])
        return Histogram(found, dense[found].astype(np.int64), overflow=int(dense[BEYOND]))

    def per_place(self, n: int, *, up_to: int) -> Ints:
        """Count the gaps in buckets up to `up_to` at each of n places."""
        sums = np.zeros(n, dtype=np.int64)
        for part, places in self.parts:
            np.add.at(sums, places[places >= 0], part.up_to(up_to)[places >= 0])
        return sums


@dataclass(slots=True)
class Gaps:
    """Gaps in us of calls that ended well.

    What comes waits until there is enough of it to be worked on together: values in _values, as they came;
    then in _keys, as row of the task in _rows x WIDTH + bucket.
    """

    _counted: list[Counted] = field(default_factory=list)
    _rows: dict[str, int] = field(default_factory=dict)
    _values: list[tuple[int, Ints]] = field(default_factory=list)
    _keys: list[Ints] = field(default_factory=list)
    _hot: int = 0
    _waiting: int = 0

    def add(self, task_id: str, gaps_us: Ints) -> None:
        """Count the gaps of one of a task's calls."""
        if not len(gaps_us):
            return
        self._values.append((self._rows.setdefault(task_id, len(self._rows)), gaps_us))
        self._hot += len(gaps_us)
        if self._hot >= HOT:
            self._sort_in()
        if self._waiting >= VALUES_AT_ONCE or len(self._rows) >= TASKS_AT_ONCE:
            self._count()

    def at(self, place: Mapping[str, int]) -> "Placed":
        """Give what was counted of the tasks that have a place."""
        self._count()
        found = ((one, np.array([place.get(name, -1) for name in one.task_ids])) for one in self._counted)
        return Placed([(part, places) for part, places in found if (places >= 0).any()])

    def _sort_in(self) -> None:
        """Find the buckets of values."""
        if not self._values:
            return
        values = np.concatenate([one for _, one in self._values])
        values[values.view(np.uint64) >= OVERFLOW_FROM] = OVERFLOW_FROM  # negative ones too
        keys = np.repeat([row * WIDTH for row, _ in self._values], [len(one) for _, one in self._values])
        keys += bucket(values)
        self._keys.append(keys)
        self._waiting += len(keys)
        self._values, self._hot = [], 0

    def _count(self) -> None:
        """Count what waits: all values of a task that fall into one bucket become a number."""
        self._sort_in()
        if not self._keys:
            return
        dense = np.bincount(np.concatenate(self._keys))
        found = np.flatnonzero(dense)
        counts = dense[found]
        self._counted.append(
            Counted(
                task_ids=list(self._rows),
                starts=np.searchsorted(found, np.arange(len(self._rows)) * WIDTH),
                buckets=(found % WIDTH).astype(np.uint16),
                counts=counts.astype(np.min_scalar_type(int(counts.max()))),
            )
        )
        self._rows, self._keys, self._waiting = {}, [], 0
