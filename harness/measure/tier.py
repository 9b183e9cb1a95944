"""The tier that was asked for, the one that the server names, and the speed that was measured.

Money follows the tier that is named. Here it is asked whether that name can be believed. A name is
contradicted only where load cannot be the reason, or where the numbers say something worth knowing even if
it is:

1. Two speeds at once: some calls decode at half the speed of others or less, of the same backend, under the
   same name, **amid those others** (at the same time, or just before and just after), and there is no speed
   in between. Load slows all calls of a moment; long prompts of others and speculation spread speeds, and
   leave no gap.
2. No faster than a lower tier: even the fastest tenth of its calls decodes hardly faster than the median
   call of a backend of the same model and vendor's words in this run that a lower tier serves.
3. Far below what the vendor says: even the fastest tenth decodes at less than half the published speed.

Only tiers sold for speed are looked at, and only calls long enough for a speed: `TOKENS_MIN` streamed
tokens, and for a slow one `LOST_NS` more than at the fast calls' speed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.measure.calls import Calls, Floats, Mask
from harness.measure.metrics.recorded import decode_tokens_per_s, spanned_tokens
from harness.prices import tier_name
from harness.results import Finding, FindingName
from harness.tiers import any_will_do, faster, published_speed, same_tier, says_a_tier, sold_for_speed

TOKENS_MIN = 32
LOST_NS = 100e6
SLOW_MIN = 3
"""Fewer calls are no group."""
FAST_MIN = 3
GAP = 1.5
"""Neighbours in the row of speeds that are further apart than this factor end one group and begin another."""
HALF = 0.5
HARDLY_FASTER = 1.2
MOMENT_NS = 5e9
"""So near in time, calls meet the same load."""
CALLS_MIN = 10
"""Fewer calls have no fastest tenth."""
FASTEST = 0.9


@dataclass(frozen=True, slots=True)
class Serving:
    """One workload on one backend: the tier asked for, None if none was, and the measured tasks' calls.

    dialect: whose words the tiers' names are; two dialects' `fast` need not be one tier.
    """

    backend: str
    workload: str
    model: str
    dialect: str
    asked: str | None
    calls: Calls


def tier_findings(one: Serving, others: Sequence[Serving]) -> Iterator[Finding]:
    """Find what is odd about the tiers that served; `others`: the other backends of the run."""

    def found(name: FindingName, detail: str) -> Finding:
        return Finding(name, one.backend, one.workload, detail)

    ok = one.calls[one.calls.ok]
    if one.asked is not None and len(ok):
        yield from _as_asked(found, ok, one.asked)
        detail = _contradiction(one, one.asked, others)
        if detail is not None:
            yield found(FindingName.TIER_CONTRADICTED, detail)
    yield from _changes(found, one.calls)


def _as_asked(found: Callable[[FindingName, str], Finding], calls: Calls, asked: str) -> Iterator[Finding]:
    """Hold what the server names against what was asked for."""
    served = {name: n for name, n in calls.tier_served.counted().items() if says_a_tier(name)}
    silent = len(calls) - sum(served.values())
    if silent:
        detail = (
            f"asked for tier {asked}; in {silent} of {len(calls)} calls the server does not say what served"
        )
        yield found(FindingName.TIER_UNKNOWN, detail)
    if any_will_do(asked):
        return
    others = {name: n for name, n in served.items() if name and not same_tier(name, asked)}
    for up, finding in ((False, FindingName.TIER_DOWNGRADED), (True, FindingName.TIER_UPGRADED)):
        these = {name: n for name, n in others.items() if (faster(name, asked) is True) is up}
        if these:
            told = ", ".join(f"{name} in {n}" for name, n in these.items())
            yield found(finding, f"asked for tier {asked}, served by {told} of {len(calls)} calls")


def _changes(found: Callable[[FindingName, str], Finding], calls: Calls) -> Iterator[Finding]:
    """Find tasks whose calls were served by different tiers: tiers share no prompt cache."""
    calls = calls[calls.tier_served.are([name for name in calls.tier_served.names if says_a_tier(name)])]
    tiers, tasks = _canonical(calls), calls.task_id.codes
    order = np.lexsort((calls.sent_ns, tasks))
    same_task = tasks[order][1:] == tasks[order][:-1]
    changed = same_task & (tiers[order][1:] != tiers[order][:-1])
    if not changed.any():
        return
    many = len(np.unique(tasks[order][1:][changed]))
    detail = (
        f"the tier changed {int(changed.sum())} times from one call of a task to its next, in {many} of"
        f" {len(np.unique(tasks))} tasks"
    )
    later = np.arange(len(calls))[order][1:]
    shares = [_cached_share(calls, later[which]) for which in (changed, same_task & ~changed)]
    if None not in shares:
        detail += f"; then {shares[0]:.0%} of the prompt came from the cache, else {shares[1]:.0%}"
    yield found(FindingName.TIER_CHANGED, detail)


def _contradiction(one: Serving, asked: str, others: Sequence[Serving]) -> str | None:
    """Say what contradicts the name under which the calls were served; None if nothing does."""
    if not sold_for_speed(asked):
        return None
    named = _measured(one.calls, asked)
    speeds = decode_tokens_per_s(named)
    slow = _slow_beside_fast(named, speeds)
    if slow.any():
        return (
            f"{int(slow.sum())} of {len(named)} calls named {asked} decode at {_median(speeds[slow])}, while"
            f" others of the same name decode at {_median(speeds[~slow])}"
        )
    if len(named) < CALLS_MIN:
        return None
    best = float(np.quantile(speeds, FASTEST))
    than = _no_faster_than(best, one, asked, others) or _below_published(best, one.model, asked)
    fastest = f"even the fastest tenth of {len(named)} calls named {asked} decodes at {best:.0f} tokens/s"
    return f"{fastest}; {than}" if than else None


def _no_faster_than(best: float, one: Serving, asked: str, others: Sequence[Serving]) -> str | None:
    """Find a backend of the same model and the same words that a lower tier serves about as fast."""
    for other in others:
        lower = [tier for tier in other.calls.tier_served.counted() if tier and faster(asked, tier)]
        alike = other.model == one.model and _vendor(other) == _vendor(one)
        for tier in lower if alike else ():
            speeds = decode_tokens_per_s(_measured(other.calls, tier))
            if len(speeds) >= CALLS_MIN and best < HARDLY_FASTER * float(np.median(speeds)):
                return f"{other.backend}'s {tier} decodes at {_median(speeds)}"
    return None


def _vendor(one: Serving) -> str:
    """Name whose words they are: `openai` of both `openai-chat` and `openai-responses`."""
    return one.dialect.partition("-")[0]


def _below_published(best: float, model: str, asked: str) -> str | None:
    """Hold the speed against what the vendor says."""
    said = published_speed(model, asked)
    if said is None or best >= HALF * said.tokens_per_s:
        return None
    return f"the vendor says {said.tokens_per_s:g} ({said.source})"


def _measured(calls: Calls, tier: str) -> Calls:
    """Choose the calls that ended well, were served under a tier's name, and are long enough for a speed."""
    names = [name for name in calls.tier_served.counted() if name is not None and same_tier(name, tier)]
    chosen = calls[calls.ok & calls.tier_served.are(names)]
    return chosen[~np.isnan(decode_tokens_per_s(chosen)) & (spanned_tokens(chosen) >= TOKENS_MIN)]


def _slow_beside_fast(calls: Calls, speeds: Floats) -> Mask:
    """Choose the slow of two groups of speeds; none, if there is one group, or load may be the reason."""
    none = np.zeros(len(calls), dtype=bool)
    if len(calls) < SLOW_MIN + FAST_MIN:
        return none
    row = np.sort(speeds)
    at = SLOW_MIN + int(np.argmax((row[1:] / row[:-1])[SLOW_MIN - 1 : len(row) - FAST_MIN]))
    slow = speeds < row[at]
    fast_speed = float(np.median(row[at:]))
    if row[at] < GAP * row[at - 1] or np.median(row[:at]) > HALF * fast_speed:
        return none
    span = calls.last_output_ns - calls.first_output_ns
    lost = span - spanned_tokens(calls) / fast_speed * 1e9
    beside = slow & (lost >= LOST_NS) & _amid(calls, ~slow)
    return slow if beside.sum() >= max(SLOW_MIN, HALF * slow.sum()) else none


def _amid(calls: Calls, which: Mask) -> Mask:
    """Tell for each call whether one of `which` decoded at the same time, or some just before and after it.

    Where calls never overlap, just before and after is the call before and the call after.
    """
    starts, ends = np.sort(calls.first_output_ns[which]), np.sort(calls.last_output_ns[which])
    own_start, own_end = calls.first_output_ns, calls.last_output_ns
    begun, over = np.searchsorted(starts, own_end), np.searchsorted(ends, own_start)
    before = over > np.searchsorted(ends, own_start - MOMENT_NS)
    after = np.searchsorted(starts, own_end + MOMENT_NS) > begun
    order = np.argsort(own_start)
    padded = np.concatenate(([False], which[order], [False]))
    between = np.empty(len(calls), dtype=bool)
    between[order] = padded[:-2] & padded[2:]
    alone = bool((np.sort(own_start)[1:] >= np.sort(own_end)[:-1]).all())
    return (begun > over) | (before & after) | (between & alone)


def _canonical(calls: Calls) -> NDArray[np.int64]:
    """Give each call the number of its tier, the same for all names of one."""
    names = [tier_name(name) for name in calls.tier_served.names]
    numbers = np.array([names.index(name) for name in names] or [0], dtype=np.int64)
    return numbers[calls.tier_served.codes]


def _cached_share(calls: Calls, which: NDArray[np.int64]) -> float | None:
    cached, sent = calls.cached_tokens[which], calls.input_tokens[which]
    told = ~np.isnan(cached + sent)
    return float(cached[told].sum() / sent[told].sum()) if sent[told].sum() else None


def _median(speeds: Floats) -> str:
    return f"{np.median(speeds):.0f} tokens/s p50"
