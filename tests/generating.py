"""A seeded world that makes TaskRecords with load noise, for tests of intervals and comparisons.

A task's time on a backend = the plan's work (lognormal, the same for task k on every backend) / the
backend's speed x load noise. On a log scale the noise is the sum of three parts: `shared`, the weather
of the whole run, felt by all backends at the same time; `side`, each backend's own weather; `own`,
independent from leg to leg. Weather is an AR(1) process in time with memory `tau_s`, read at the
moment a task starts.
"""

import heapq
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from scipy.signal import lfilter

from harness.measure.calls import Calls, calls_of
from harness.records import CallOutcome, CallRecord, TaskOutcome, TaskRecord
from tests.making import S, a_call, a_task

STEP_S = 2.0
STEPS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is the same for all backends; `_sd` are standard deviations of logs.

    users: of each backend, who do one task after the other from time 0 (closed loop), taking the next
    k; with `gap_s`, tasks are scheduled that far apart instead (open loop). The load ends after `tasks`
    tasks, or at `cut_s`, where what is open is cut. limit_s: tasks time out there. failed: share of
    tasks that fail, somewhere on their way. tokens: of a task of median work; a cut call has the share
    of its tokens that its time has.
    """

    tasks: int = 120
    users: int = 8
    median_s: float = 10.0
    plan_sd: float = 0.5
    own_sd: float = 0.2
    shared_sd: float = 0.2
    side_sd: float = 0.1
    tau_s: float = 20.0
    gap_s: float | None = None
    cut_s: float | None = None
    limit_s: float | None = None
    failed: float = 0.0
    tokens: float = 1000.0


def legs(world: World, backend: str, *, seed: int, speed: float = 1.0) -> tuple[list[TaskRecord], Calls]:
    """Make the tasks of one backend and their calls, one a task, in the order of k."""
    work = np.random.default_rng([seed, 0]).normal(0, world.plan_sd, world.tasks)
    dice = np.random.default_rng([seed, 2, crc32(backend.encode())])
    noise = world.shared_sd * _weather(np.random.default_rng([seed, 1]), world.tau_s)
    noise = noise + world.side_sd * _weather(dice, world.tau_s)
    own = dice.normal(0, world.own_sd, world.tasks)
    fates = dice.random(world.tasks)
    free = [0.0] * world.users
    made = []
    for k in range(world.tasks):
        start_s = k * world.gap_s if world.gap_s is not None else heapq.heappop(free)
        if world.cut_s is not None and start_s >= world.cut_s:
            break
        weather = noise[int(start_s / STEP_S) % STEPS]
        whole_s = world.median_s / speed * float(np.exp(work[k] + own[k] + weather))
        end_s, outcome = _end(world, start_s, whole_s, fates[k])
        if world.gap_s is None:
            heapq.heappush(free, end_s)
        tokens = world.tokens * float(np.exp(work[k])) * (end_s - start_s) / whole_s
        made.append(_records(backend, k, (start_s, end_s), outcome, round(tokens)))
    return [task for task, _ in made], calls_of(call for _, call in made)


def _weather(dice: np.random.Generator, tau_s: float) -> np.ndarray:
    """AR(1) of variance 1, one value every STEP_S."""
    memory = float(np.exp(-STEP_S / tau_s))
    steps = dice.normal(0, (1 - memory**2) ** 0.5, STEPS)
    steps[0] = dice.normal()
    return lfilter([1.0], [1.0, -memory], steps)


def _end(world: World, start_s: float, whole_s: float, fate: float) -> tuple[float, TaskOutcome]:
    """Whichever comes first: done, failed, its limit, the end of the run."""
    ends = [(start_s + whole_s, TaskOutcome.COMPLETED)]
    if fate < world.failed:
        ends.append((start_s + whole_s * fate / world.failed, TaskOutcome.FAILED))
    if world.limit_s is not None:
        ends.append((start_s + world.limit_s, TaskOutcome.TIMEOUT))
    if world.cut_s is not None:
        ends.append((world.cut_s, TaskOutcome.CUT))
    return min(ends, key=lambda end: end[0])


def _records(
    backend: str, k: int, span_s: tuple[float, float], outcome: TaskOutcome, tokens: int
) -> tuple[TaskRecord, CallRecord]:
    start, end = (round(at * S) for at in span_s)
    name = {"task_id": f"{backend}/w/{k}", "k": k, "backend": backend, "scheduled_ns": start}
    task = a_task(**name, session=k, started_ns=start, ended_ns=end, outcome=outcome)
    how = {TaskOutcome.COMPLETED: CallOutcome.OK, TaskOutcome.FAILED: CallOutcome.FAILED}
    call = a_call(
        **name,
        call_id=f"{backend}/w/{k}/1",
        sent_ns=start,
        headers_ns=start,
        first_output_ns=start,
        first_output_low_ns=start,
        first_answer_ns=start,
        first_answer_low_ns=start,
        last_output_ns=end,
        last_output_low_ns=end,
        done_ns=end,
        output_tokens=tokens,
        streamed_events=tokens,
        outcome=how.get(outcome, CallOutcome.CUT),
    )
    return task, call
