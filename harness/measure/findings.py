"""What a reader must know of a run, and what to do about it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from harness.measure.calls import THROTTLED, Calls
from harness.measure.gaps import Placed, clumped_share
from harness.measure.metrics.call import EVENTS_PER_TOKEN_MIN
from harness.measure.metrics.recorded import events_per_token, streamed_tokens
from harness.measure.metrics.registry import METRICS
from harness.measure.metrics.task import task_time_ns
from harness.records import TaskOutcome, TaskRecord, TokenSource
from harness.results import Finding, FindingName
from harness.values import ErrorKind, StampClock

ADVICE: Mapping[FindingName, str] = {
    FindingName.SIMULATED: "measure the real backends with `url` before you buy",
    FindingName.SHORTENED: "take the preset `coding` for real sizes",
    FindingName.UNCERTIFIED: "`harness selftest` measures in a minute how good its stamps are",
    FindingName.BEYOND_CERTIFICATE: "fewer users, or a machine that proves more",
    FindingName.CACHE_SALT_OFF: "earlier runs and other backends may have warmed the caches",
    FindingName.COLD_START: "set `warm_up_s`: the first wave meets an empty server",
    FindingName.WARM_UP: "their first wave met an empty server",
    FindingName.TOOL_TAIL_CUT: "raise `tool_s_max` to see what slow tools do to the speed-up",
    FindingName.LOOP_STAMPS: (
        "no kernel stamps: another system, or HARNESS_ITER_ANY; read TTFT and gaps as upper bounds"
    ),
    FindingName.SHARED_READS: "several events came in one read: single gaps are bounds, not measurements",
    FindingName.PLAN_MISMATCH: "the model did not call tools as planned: compare token counts first",
    FindingName.NO_USAGE: "ask the server for usage; without it TPOT and cost are unknown",
    FindingName.FAILED_CALLS: "see `error` in calls.jsonl",
    FindingName.CUT_TASKS: "they are censored, not lost; a longer `drain_s` lets them end",
    FindingName.TIMED_OUT: "they are censored there; see where their time went, or raise `task_limit_s`",
    FindingName.UNSENT_TASKS: "numbers are of the tasks that were started",
    FindingName.SPEND_LIMIT: "numbers are of what was done until then; raise `spend_limit_usd` for more",
    FindingName.WORKER_LOST: "its users and its part of the plan were gone; --allow-lost-workers accepts it",
    FindingName.REMOTE_EVENTS: "copy these files into DIR, so that a report has every event",
    FindingName.CONFOUNDED: "the speed-up is of all that differs, not of the tier alone",
    FindingName.SHARED_QUOTA: 'give each backend its own key, or compare with `pairing = "alternate"`',
    FindingName.UNEQUAL_LOAD: "the ratios are of the load: what each task gains or loses by it",
    FindingName.UNEQUAL_WORK: "force the output length, or read decode tokens/s beside the speed-up",
    FindingName.UNEQUAL_CACHE: "one side reads more from its cache: compare TTFT and cost with care",
    FindingName.GROWING_QUEUE: "lower the rate, or warm up until the load is steady",
    FindingName.TAIL: "run by `measure_s` to have the same load to the end",
    FindingName.ASSUMED_PRICE: "set `price` on the backend when you know what it charges you",
    FindingName.COST_UNKNOWN: "see Money in docs/records.md for what is charged and what cannot be",
    FindingName.COUNT_MISMATCH: (
        "gaps are of events, not of tokens; TPOT is right only where running totals come (docs/scenarios.md)"
    ),
    FindingName.SWALLOWED_TOKENS: (
        "the server's parser of tool calls holds tokens back: TPOT of these calls is too small unless running"
        " totals come (docs/scenarios.md)"
    ),
    FindingName.WIDE_BOUNDS: "read these as upper bounds: events came in reads with others",
    FindingName.CLIENT_LIMITED: "fewer users, or more machine: gaps that share a read are wide bounds",
    FindingName.THROTTLED: (
        "lower the load, or set `quota` below what the server allows (`limits_told` in calls.jsonl); `retry ="
        ' "sdk"` asks again, as agents do'
    ),
    FindingName.WAITED_FOR_LIMITS: (
        "these times are of this quota and these failures: while a task waits, no tier is faster"
    ),
    FindingName.TIER_DOWNGRADED: "numbers mix tiers: split calls.jsonl by `tier_served`; money follows it",
    FindingName.TIER_UPGRADED: "numbers mix tiers, and the faster one is charged",
    FindingName.TIER_CHANGED: "tiers share no prompt cache: after a change the prompt is read anew",
    FindingName.TIER_CONTRADICTED: "the tier's name and its speed do not fit: ask the vendor what served",
    FindingName.TIER_UNKNOWN: "money follows the tier that was asked for, which may not have served",
    FindingName.COALESCED: "something on the way (a proxy?) holds events back: gaps are not quoted",
    FindingName.CLIENT_RESOURCE: "they say nothing of the server: give this machine more, or ask for less",
    FindingName.INTERRUPTED: "the run was stopped; numbers are of what was done until then",
}

WAITED_SHARE = 0.005
"""Share of the task time in limits from which it is told; below, it is lost in a rounded table."""

WIDE_SHARE = 0.1
"""A quantile whose bounds are further apart than this share of it is marked."""

SHARED_READS_LIMIT = 0.1
"""Share of events in shared reads from which single gaps are no longer told without a word."""


def call_findings(backend: str, workload: str, calls: Calls) -> Iterable[Finding]:
    """Find what the calls of one workload on one backend show."""

    def found(name: FindingName, detail: str) -> Finding:
        return Finding(name, backend, workload, detail)

    failed = calls[~calls.error_kind.are((None,))]
    if len(failed):
        kinds = ", ".join(f"{kind} {n}" for kind, n in Counter(failed.error_kind.counted()).most_common())
        said = Counter(failed.error_message.counted()).most_common(1)[0][0]
        detail = f"{len(failed)} of {len(calls)} calls failed: {kinds}; most often: {said}"
        yield found(FindingName.FAILED_CALLS, detail)
    yield from _throttled(found, calls)
    short = int(calls.error_kind.are((ErrorKind.CLIENT_RESOURCE,)).sum())
    if short:
        detail = f"this machine ran out of sockets, files or memory in {short} of {len(calls)} calls"
        yield found(FindingName.CLIENT_RESOURCE, detail)
    loop = int((calls.clock.are((StampClock.LOOP,)) & (calls.streamed_events > 0)).sum())
    if loop:
        yield found(FindingName.LOOP_STAMPS, f"{loop} of {len(calls)} calls have no kernel stamps throughout")
    events, shared = calls.streamed_events.sum(), calls.shared_read_events.sum()
    if events and shared / events > SHARED_READS_LIMIT:
        detail = f"{shared / events:.0%} of output events share their read with another"
        yield found(FindingName.SHARED_READS, detail)
    ok = calls[calls.ok]
    silent = int(ok.token_source.are((TokenSource.COUNTED, TokenSource.UNKNOWN)).sum())
    if silent:
        yield found(FindingName.NO_USAGE, f"{silent} of {len(ok)} calls came without token counts")
    yield from _count_mismatch(found, ok)
    swallowed = ok[ok.swallowed_tokens > 0]
    if len(swallowed):
        held, told = swallowed.swallowed_tokens.sum(), np.nansum(swallowed.output_tokens)
        detail = (
            f"in {len(swallowed)} of {len(ok)} calls {held:.0f} of {told:.0f} output tokens came in no event:"
            " tool calls passed unseen"
        )
        yield found(FindingName.SWALLOWED_TOKENS, detail)
    yield from _wide_bounds(found, ok)


def _throttled(found: Callable[[FindingName, str], Finding], calls: Calls) -> Iterable[Finding]:
    """Tell how often the server refused for its limits, and what became of these calls."""
    met = calls[calls.throttled > 0]
    if len(met):
        lost = int(np.isin(met.status, THROTTLED).sum())
        detail = (
            f"the server's limits refused {met.throttled.sum():.0f} of {calls.attempts.sum():.0f} attempts"
            f" (429), in {len(met)} of {len(calls)} calls, of which {lost} failed by it"
        )
        yield found(FindingName.THROTTLED, detail)


def _count_mismatch(found: Callable[[FindingName, str], Finding], calls: Calls) -> Iterable[Finding]:
    """Tell when the server counts other numbers of tokens than events came."""
    ratios = events_per_token(calls)
    off = calls[(ratios < EVENTS_PER_TOKEN_MIN) | (ratios > 1 / EVENTS_PER_TOKEN_MIN)]
    if len(off):
        told, came = np.nansum(streamed_tokens(calls)), calls.streamed_events.sum()
        running = int(off.token_source.are((TokenSource.EVENTS,)).sum())
        known = int((~np.isnan(ratios)).sum())
        detail = (
            f"in {len(off)} of {known} calls usage and events differ: {told:.0f} streamed tokens, {came:.0f}"
            f" output events ({came / told:.2f} events a token); running totals came in {running} of them"
        )
        yield found(FindingName.COUNT_MISMATCH, detail)


def _wide_bounds(found: Callable[[FindingName, str], Finding], calls: Calls) -> Iterable[Finding]:
    """Mark quantiles whose bounds are further apart than a tenth of them."""
    wide = []
    for metric in METRICS.values():
        if metric.low is None or metric.value is None:
            continue
        lows, highs = (of(calls) * metric.scale for of in (metric.low, metric.value))
        lows, highs = lows[~np.isnan(lows)], highs[~np.isnan(highs)]
        for q in (0.5, 0.9, 0.95, 0.99) if len(highs) and len(lows) == len(highs) else ():
            low, high = (float(np.quantile(ends, q, method="inverted_cdf")) for ends in (lows, highs))
            if high - low > WIDE_SHARE * high:
                wide.append(f"{metric.name} p{100 * q:g} {low:.3g} to {high:.3g}")
    if wide:
        yield found(FindingName.WIDE_BOUNDS, f"bounds are wider than a tenth: {', '.join(wide)}")


def gap_findings(backend: str, workload: str, gaps: Placed) -> Iterable[Finding]:
    """Tell when events came in clumps."""
    share = clumped_share(gaps.pooled())
    if share is not None:
        detail = f"{share:.0%} of gaps are shorter than 1 ms, though events came slower on the whole"
        yield Finding(FindingName.COALESCED, backend, workload, detail)


def task_findings(backend: str, workload: str, tasks: Sequence[TaskRecord]) -> Iterable[Finding]:
    """Find what the tasks of one workload on one backend show."""
    cut = sum(task.outcome is TaskOutcome.CUT for task in tasks)
    if cut:
        detail = f"{cut} of {len(tasks)} tasks were cut by the end of the run"
        yield Finding(FindingName.CUT_TASKS, backend, workload, detail)
    timed_out = [task.reason for task in tasks if task.outcome is TaskOutcome.TIMEOUT]
    if timed_out:
        detail = f"{len(timed_out)} of {len(tasks)} tasks {timed_out[0]}"
        yield Finding(FindingName.TIMED_OUT, backend, workload, detail)
    waited = _waited(tasks)
    if waited is not None:
        yield Finding(FindingName.WAITED_FOR_LIMITS, backend, workload, waited)
    mismatch = sum(task.plan_mismatch for task in tasks)
    if mismatch:
        detail = f"{mismatch} planned tool results met no call, or calls no plan"
        yield Finding(FindingName.PLAN_MISMATCH, backend, workload, detail)


def _waited(tasks: Sequence[TaskRecord]) -> str | None:
    """Say what share of the time of all tasks limits took, of those too that failed or were cut by them."""
    total = sum(task_time_ns(task) for task in tasks)
    limit, retry = (
        sum(task.breakdown.get(part, 0.0) * task_time_ns(task) for task in tasks) / total if total else 0.0
        for part in ("limit", "retry")
    )
    if limit + retry <= WAITED_SHARE:
        return None
    parts = [f"{limit:.1%} waiting for the own `quota`"] * (limit > 0)
    parts += [f"{retry:.1%} in attempts that failed and the waits after them"] * (retry > 0)
    return (
        f"{limit + retry:.1%} of the task time, that of failed and cut tasks too, was lost:"
        f" {', '.join(parts)}"
    )


def run_findings(
    caveats: Sequence[tuple[FindingName, str]],
    *,
    simulated: bool,
    salted: bool,
    interrupted: bool,
    warm: Mapping[str, int],
) -> list[tuple[FindingName, str]]:
    """Find what concerns the run as a whole; `warm`: backend -> its tasks that warmed up."""
    found = list(caveats)
    if simulated:
        found.insert(
            0, (FindingName.SIMULATED, "these backends are simulated from a model of their hardware")
        )
    if not salted:
        found.append((FindingName.CACHE_SALT_OFF, "prompts carry no salt of this run"))
    if interrupted:
        found.append((FindingName.INTERRUPTED, "somebody stopped this run"))
    if any(warm.values()):
        told = ", ".join(f"{name} {n}" for name, n in warm.items())
        found.append((FindingName.WARM_UP, f"warm-up: {told} tasks, left out"))
    else:
        found.append((FindingName.COLD_START, "no warm-up: the first wave of tasks is in the numbers"))
    return found


def unsent_finding(
    backend: str,
    workload: str,
    dropped: int,
    planned: int,
    *,
    rate: tuple[float, float] | None,
    why: str,
) -> Finding:
    """Say what was never started, and why. rate: tasks/s asked for and achieved, of an open load."""
    asked = ""
    if rate is not None:
        asked = f"the asked rate was not reached: asked {rate[0]:g} tasks/s, achieved {rate[1]:.3g}: "
    detail = f"not complete: {asked}{dropped} of {planned} planned tasks were never started: {why}"
    return Finding(FindingName.UNSENT_TASKS, backend, workload, detail)
