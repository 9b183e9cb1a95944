"""95 % intervals of estimates, when what is counted is not independent.

Tasks of one run are not: a busy minute makes all of its tasks slow. So blocks of consecutive units
are resampled, not single ones (moving-block bootstrap, circular: Kunsch 1989, Ann. Statist. 17;
Politis and Romano 1992), and a few blocks tell their spread only so well, which Student's t makes up
for. A resample is a row of weights: how often each unit was drawn; a statistic is a weighted one.

Quantiles and shares get the interval of order statistics (Clopper and Pearson 1934; David and
Nagaraja, Order Statistics, 3rd ed., 7.1) for as many independent units as the resamples say there
are: bootstrap ends of a tail quantile are too narrow (docs/method.md has the coverage of both).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
BLOCK_MIN = 10
BLOCKS_MIN = 8
FEW_BLOCKS = 6
"""With fewer than 60 units blocks are shorter than 10: too few blocks tell no spread at all."""
REPLICATES = 1000
CELLS = 20_000_000
"""Largest number of weights of one block length: beyond it there are fewer replicates, at least 100."""
CELLS_AT_ONCE = 1_000_000
"""Weights that are worked on at a time: they then stay in the processor's cache."""
RUNS_MIN = 5
"""From so many runs on, whole runs are resampled."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Weights = NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Resampling:
    """Resamples of the same n units, one set a block length.

    weights[i]: (replicates, n); drawn[i]: how many blocks a row of it is made of.
    """

    weights: tuple[Weights, ...]
    drawn: tuple[int, ...]
    between_runs: bool


def needed(q: float, *, confidence: float = CONFIDENCE) -> int:
    """Give the number of units from which a two-sided interval of quantile q exists at all.

    Some value must lie above the quantile with probability 1 - q^n >= 1 - (1 - confidence) / 2, some
    below it likewise: p50 6, p90 36, p95 72, p99 368.
    """
    return ceil(log((1 - confidence) / 2) / log(max(q, 1 - q)))


def resampling(n: int, *, generator: np.random.Generator, runs: Ints | None = None) -> Resampling:
    """Make the resamples of n units in their order of time; `runs`: the run of each unit.

    Inside a run two block lengths are tried, sqrt(n) and n / 8 (at least 10 both, from 60 units on), and
    the wider interval counts: the load's memory is not known. From five runs on, runs are the blocks.
    """
    replicates = int(np.clip(CELLS // max(n, 1), 100, REPLICATES))
    if runs is not None and len(np.unique(runs)) >= RUNS_MIN:
        rows, drawn = _run_weights(runs, generator, replicates)
        return Resampling((rows,), (drawn,), between_runs=True)
    shortest = max(1, min(BLOCK_MIN, n // FEW_BLOCKS))
    lengths = sorted({max(shortest, length) for length in (round(n**0.5), n // BLOCKS_MIN)})
    weights = tuple(
        block_weights(n, block=length, generator=generator, replicates=replicates) for length in lengths
    )
    return Resampling(weights, tuple(ceil(n / length) for length in lengths), between_runs=False)


def block_weights(n: int, *, block: int, generator: np.random.Generator, replicates: int) -> Weights:
    """Draw `replicates` resamples of n units in circular blocks; (replicates, n), rows sum to n."""
    blocks = ceil(n / block)
    starts = generator.integers(0, max(n, 1), size=(replicates, blocks))
    lengths = np.full(blocks, block)
    if blocks:
        lengths[-1] = n - block * (blocks - 1)
    stops = starts + lengths
    rows = np.arange(replicates)[:, None]
    steps = np.zeros((replicates, n + 1), dtype=np.int32)  # each block raises the count where it starts
    np.add.at(steps, (rows, starts), 1)
    np.add.at(steps, (rows, np.where(stops > n, stops - n, stops)), -1)
    steps[:, 0] += (stops > n).sum(axis=1)  # those that wrap are open from the first unit on
    return np.cumsum(steps[:, :n], axis=1, dtype=np.int32).astype(np.uint16)


def _run_weights(runs: Ints, generator: np.random.Generator, replicates: int) -> tuple[Weights, int]:
    """Draw whole runs: each unit's weight is its run's."""
    names, place = np.unique(runs, return_inverse=True)
    drawn = generator.multinomial(len(names), np.full(len(names), 1 / len(names)), size=replicates)
    return drawn.astype(np.uint16)[:, place], len(names)


def share_replicates(resampled: Resampling, hits: Floats, counts: Floats) -> list[Floats]:
    """Give the shares hits / counts of each resample: for each block length (rows of `hits`, replicates).

    hits: (rows, n), counts: (n,), both per unit; integers, so that their sums are exact in any order.
    """
    found = []
    for weights in resampled.weights:
        sums = weighted_sums(weights, np.vstack((counts, hits)))
        known = sums[0] > 0
        found.append(sums[1:, known] / sums[0, known])
    return found


def weighted_sums(weights: Weights, values: Floats) -> Floats:
    """Sum up rows of values per unit by each resample's weights: (rows, n) -> (rows, replicates).

    A part of the weights at a time is made into floats: all of them would be four times as large.
    """
    parts = np.array_split(weights, ceil(weights.size / CELLS_AT_ONCE) or 1)
    return np.concatenate([values @ part.T.astype(np.float64) for part in parts], axis=1)


def effective(share: float, replicates: Sequence[Floats], *, drawn: Sequence[int], total: float) -> float:
    """Give the number of independent observations that would scatter a share as much as its resamples do.

    share (1 - share) / variance, less for few blocks by (z / t)^2; the smallest over the block lengths,
    between 1 and the `total` of observations.
    """
    from scipy.stats import norm, t  # heavy: imported where it is used

    z = norm.ppf((1 + CONFIDENCE) / 2)
    found = [total]
    for shares, blocks in zip(replicates, drawn, strict=True):
        variance = float(shares.var()) * blocks / max(1, blocks - 1) if len(shares) else 0.0
        if variance > max(0.0, share * (1 - share)) / total:
            few = (z / t.ppf((1 + CONFIDENCE) / 2, max(1, blocks - 1))) ** 2
            found.append(share * (1 - share) / variance * float(few))
    return max(1.0, min(found))


def levels(share: float, units: float) -> tuple[float, float]:
    """Give the 95 % interval of a share seen among `units` independent observations (Clopper-Pearson)."""
    from scipy.stats import beta

    tail = (1 - CONFIDENCE) / 2
    hits = share * units
    low = float(beta.ppf(tail, hits, units - hits + 1)) if hits > 0 else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, units - hits)) if hits < units else 1.0
    return low, high


def widened(point: float, replicates: Sequence[Floats], drawn: Sequence[int]) -> tuple[float, float]:
    """Give percentile ends of a positive statistic, made wider by t / z for few blocks, on a log scale.

    replicates[i]: values of the statistic over the resamples of block length i, drawn[i] blocks each;
    the widest ends count. Infinite or zero ends stay what they are.
    """
    from scipy.stats import norm, t

    tail = (1 - CONFIDENCE) / 2
    lows, highs = [point], [point]
    for values, blocks in zip(replicates, drawn, strict=True):
        known = values[~np.isnan(values)]
        if not len(known):
            continue
        low, high = np.quantile(known, [tail, 1 - tail], method="inverted_cdf")
        factor = t.ppf(1 - tail, max(1, blocks - 1)) / norm.ppf(1 - tail)
        lows.append(_stretch(point, float(low), factor))
        highs.append(_stretch(point, float(high), factor))
    return min(lows), max(highs)


def _stretch(point: float, end: float, factor: float) -> float:
    if point <= 0 or end <= 0 or not np.isfinite(end) or not np.isfinite(point):
        return end
    return float(point * (end / point) ** factor)


def weighted_quantile(values: Floats, weights: Weights, q: float) -> Floats:
    """Give, for each row of weights, the smallest value whose share of the weight reaches q.

    values: (n,); weights: (replicates, n). A row without weight gives nan.
    """
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[:, order], axis=1, dtype=np.float64)
    total = sums[:, -1]
    at = (sums < q * total[:, None] - 1e-9).sum(axis=1)
    return np.where(total > 0, values[order][np.minimum(at, len(values) - 1)], np.nan)
