"""A candidate against the baseline: speed-ups of pairs, ratios of curves and totals, seconds saved.

Both sides of a pair are resampled together, so what slowed both at once cancels in the interval too.
"""

from collections.abc import Sequence
from itertools import chain
from math import inf

import numpy as np

from harness.measure.compare_findings import Side, queue_findings, work_findings
from harness.measure.curve import completion_curve, redrawn, time_at, time_replicates
from harness.measure.intervals import RUNS_MIN, Floats, Ints, Weights, needed, resampling, widened
from harness.measure.pairs import (
    TASK_TIME,
    Key,
    LegHeadline,
    Pairing,
    Runs,
    by_k,
    finite,
    pair,
    resampled_pairs,
    savings,
    speedup_quantile,
    task_time_s,
    unit_places,
)
from harness.records import TaskOutcome, TaskRecord
from harness.results import CompareSummary, Estimate, Finding, Reason


def compare(
    baseline: Side,
    candidate: Side,
    *,
    generator: np.random.Generator,
    open_loop: bool,
    headline: LegHeadline = TASK_TIME,
    runs: Runs = None,
) -> tuple[CompareSummary, list[Finding]]:
    """Compare one workload on two backends; the findings are about this workload and this pair.

    open_loop: the load does not wait for answers, so a queue that grows on either side voids every
    number. runs: task_id -> its run, where several are put together; from five runs on, runs are what
    is resampled and the intervals are between runs.
    """
    findings = list(work_findings(baseline, candidate, runs=runs))
    pairing = pair(baseline.tasks, candidate.tasks, headline=headline, runs=runs)
    growing = queue_findings((baseline, candidate)) if open_loop else []
    if growing:
        return _void(pairing), [*growing, *findings]
    resampled = resampled_pairs(pairing, generator=generator)
    saved = savings(baseline.tasks, candidate.tasks, runs=runs)
    saved_resampled = resampled_pairs(saved, generator=generator)
    p10, p50, p90 = (speedup_quantile(pairing, q, resampled=resampled) for q in (0.1, 0.5, 0.9))
    ratio_p50, ratio_p90 = _curve_ratios(baseline.tasks, candidate.tasks, generator=generator, runs=runs)
    summary = CompareSummary(
        pairs=len(pairing.ks),
        pairs_bounded=int(pairing.censored.sum()),
        pairs_lost=pairing.lost,
        speedup_p50=p50,
        speedup_p10=p10,
        speedup_p90=p90,
        ratio_p50=ratio_p50,
        ratio_p90=ratio_p90,
        ratio_total=_ratio_total(baseline.tasks, candidate.tasks, generator=generator, runs=runs),
        seconds_saved_p50=speedup_quantile(saved, 0.5, resampled=saved_resampled),
    )
    return summary, findings


def _void(pairing: Pairing) -> CompareSummary:
    """Count the pairs and tell no number: a queue that grows makes every later task slower."""
    n = len(pairing.ks)
    none = Estimate(value=None, n=n, reason=Reason.NOT_APPLICABLE)
    bounded = int(pairing.censored.sum())
    return CompareSummary(n, bounded, pairing.lost, none, none, none, none, none, none, none)


def _ratio_total(
    baseline: Sequence[TaskRecord],
    candidate: Sequence[TaskRecord],
    *,
    generator: np.random.Generator,
    runs: Runs,
) -> Estimate:
    """Give summed task times of baseline / candidate, over the pairs where both completed."""
    left, right = (
        [task for task in tasks if task.outcome is TaskOutcome.COMPLETED] for tasks in (baseline, candidate)
    )
    ours, theirs = by_k(left, runs), by_k(right, runs)
    keys = sorted(ours.keys() & theirs.keys())
    base = np.array([task_time_s(ours[key]) for key in keys])
    cand = np.array([task_time_s(theirs[key]) for key in keys])
    if not keys or not cand.sum():
        return Estimate(value=None, n=len(keys), reason=Reason.UNKNOWN)
    value = float(base.sum() / cand.sum())
    if len(keys) < needed(0.5):
        return Estimate(value=value, n=len(keys))
    pairing = pair(left, right, runs=runs)
    resampled = resampled_pairs(pairing, generator=generator)
    places = unit_places(pairing)
    ours_sums, theirs_sums = (np.bincount(places, weights=one).astype(np.float64) for one in (base, cand))
    ratios = [_quotient(weights @ ours_sums, weights @ theirs_sums) for weights in resampled.weights]
    low, high = widened(value, ratios, resampled.drawn)
    return Estimate(value=value, low=finite(low), high=finite(high), n=len(keys))


def _curve_ratios(
    baseline: Sequence[TaskRecord],
    candidate: Sequence[TaskRecord],
    *,
    generator: np.random.Generator,
    runs: Runs,
) -> tuple[Estimate, Estimate]:
    """Give p50 and p90 of the completion curves, baseline / candidate, over all tasks of both sides."""
    sessions = [
        [(runs[task.task_id] if runs else 0, task.session) for task in tasks]
        for tasks in (baseline, candidate)
    ]
    drawn = _draw_sides(*sessions, generator=generator)
    times = [np.array([task_time_s(task) for task in tasks]) for tasks in (baseline, candidate)]
    outcomes = [[task.outcome for task in tasks] for tasks in (baseline, candidate)]
    curves = [completion_curve(*side) for side in zip(times, outcomes, strict=True)]
    n = min(curve.n for curve in curves)
    qs = [q for q in (0.5, 0.9) if n >= needed(q)]
    resampled = [
        [
            time_replicates(redrawn(times[side], outcomes[side], weights, places), qs)
            for side, places in enumerate(both)
        ]
        for weights, both, _ in (drawn if qs else ())
    ]

    def ratio(q: float) -> Estimate:
        if q not in qs:
            return Estimate(value=None, n=n, reason=Reason.TOO_FEW, needed=needed(q))
        ours, theirs = (time_at(curve, q) for curve in curves)
        if ours is None or theirs is None:
            return _unreached(ours, theirs, last=[float(one.max()) for one in times], n=n)
        point = float(_quotient(ours, theirs))
        if not np.isfinite(point):
            return Estimate(value=None, n=n, reason=Reason.UNKNOWN)
        replicates = [_quotient(left[qs.index(q)], right[qs.index(q)]) for left, right in resampled]
        # where a resample reaches q on neither side, its ratio may be anything
        ends = [np.nan_to_num(one, nan=end, posinf=inf) for one in replicates for end in (0.0, inf)]
        low, high = widened(point, ends, [blocks for _, _, blocks in drawn for _ in (0, 1)])
        return Estimate(value=point, low=finite(low), high=finite(high), n=n)

    return ratio(0.5), ratio(0.9)


def _draw_sides(
    ours: Sequence[Key], theirs: Sequence[Key], *, generator: np.random.Generator
) -> list[tuple[Weights, tuple[Ints, Ints], int]]:
    """Draw sessions for both sides at once: (weights, place of our and their tasks, blocks) a block length.

    ours, theirs: the session of each task. A session that both sides have is drawn for both; those of
    one side (a faster backend starts more in the same time) are drawn apart, so that each side keeps
    its number. Blocks: of the side that has fewer. Whole runs are drawn for both sides anyway.
    """
    left, right = set(ours), set(theirs)
    strata = [sorted(one) for one in (left & right, left - right, right - left) if one]
    if len({run for run, _ in left | right}) >= RUNS_MIN:
        strata = [sorted(left | right)]
    parts = [
        resampling(len(names), generator=generator, runs=np.array([run for run, _ in names]))
        for names in strata
    ]
    place = {name: i for i, name in enumerate(chain.from_iterable(strata))}
    ours_at, theirs_at = (np.array([place[name] for name in side], dtype=np.int64) for side in (ours, theirs))
    rows = min((len(part.weights[0]) for part in parts), default=0)
    drawn = []
    for i in range(max((len(part.weights) for part in parts), default=0)):
        at = [min(i, len(part.weights) - 1) for part in parts]
        columns = np.concatenate([p.weights[j][:rows] for p, j in zip(parts, at, strict=True)], axis=1)
        blocks = [
            sum(
                p.drawn[j]
                for p, j, names in zip(parts, at, strata, strict=True)
                if not side.isdisjoint(names)
            )
            for side in (left, right)
        ]
        drawn.append((columns, (ours_at, theirs_at), min(blocks)))
    return drawn


def _unreached(ours: float | None, theirs: float | None, *, last: Sequence[float], n: int) -> Estimate:
    """Bound a ratio of quantiles of which one was not reached: that one lies beyond the last time seen.

    last: the longest time that anything was watched on either side. Neither reached: nothing is known.
    """
    low = last[0] / theirs if ours is None and theirs else None
    high = ours / last[1] if theirs is None and ours is not None and last[1] else None
    return Estimate(None, low=low, high=high, n=n, reason=Reason.NOT_REACHED)


def _quotient(over: Floats | float, under: Floats | float) -> Floats:
    """Divide, with inf where only `under` is 0 and nan for 0 / 0 and inf / inf."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(over, under)
