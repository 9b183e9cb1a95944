"""What an engine is given: one workload with its planners, how much of it, and where its records go."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.arrivals import offsets_ns, stream_seed
from harness.records import CallRecord, EventsRecord, Phase, TaskRecord
from harness.scenario import ClosedLoad, OpenLoad, Scenario
from harness.workloads import WORKLOADS, Planner, Workload


@dataclass(frozen=True, slots=True)
class Share:
    """Which part of the one plan an engine runs: sessions (or arrivals) index, index + count, ..."""

    index: int = 0
    count: int = 1

    def of(self, amount: int) -> int:
        """Give this share's part of an amount; the parts of all shares add up to it."""
        return amount // self.count + (self.index < amount % self.count)


WHOLE = Share()


@dataclass(frozen=True, slots=True)
class Job:
    """What the engine runs: one workload with its planners, and how much of it.

    guests: users come from outside (`Engine.turn`), as under Locust; the load's own number is not used.
    """

    name: str
    preset: str | None
    workload: Workload
    parameters: Any
    planner: Planner
    warm_up_planner: Planner
    task_limit_s: float
    load: ClosedLoad | OpenLoad
    seed: int
    run_id: str
    salted: bool
    repeat: int = 0
    share: Share = WHOLE
    guests: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """Where records go as they end; `began` hears a task's id, backend, workload and phase as it begins."""

    call: Callable[[CallRecord, EventsRecord], None]
    task: Callable[[TaskRecord], None]
    began: Callable[[str, str, str, Phase], None] = lambda *_: None


def job_of(
    scenario: Scenario, *, run_id: str, repeat: int = 0, share: Share = WHOLE, guests: bool = False
) -> Job:
    """Make the job of a scenario's one workload."""
    entry = scenario.workloads[0]
    workload = WORKLOADS[entry.kind]
    planner = workload.planner
    return Job(
        name=entry.name,
        preset=entry.preset,
        workload=workload,
        parameters=entry.parameters,
        planner=planner(entry.parameters, seed=scenario.seed, name=entry.name),
        warm_up_planner=planner(entry.parameters, seed=scenario.seed, name=entry.name, sequence="warm-up"),
        task_limit_s=entry.task_limit_s,
        load=scenario.load,
        seed=scenario.seed,
        run_id=run_id,
        salted=scenario.cache_salt == "on",
        repeat=repeat,
        share=share,
        guests=guests,
    )


def plan_ns(job: Job, load: OpenLoad, row: str) -> list[int]:
    """Give the starts in a job's share of an open load's plan: the same on every backend, from the seed."""
    dice = np.random.default_rng(stream_seed(job.seed, f"{job.name}/arrivals/{row}"))
    return [int(offset) for offset in offsets_ns(load, dice)[job.share.index :: job.share.count]]


def cap_of(job: Job) -> float:
    """Give a share's part of `in_flight_max`; the parts of all shares add up to it."""
    most = job.load.in_flight_max if isinstance(job.load, OpenLoad) else None
    if most is None:
        return np.inf
    return job.share.of(most)
