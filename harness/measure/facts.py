"""What a run knows of itself beside its records; kept in `run.json`, so that a report can be made again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.measure.calls import Calls
from harness.measure.compare_findings import BackendIdentity
from harness.measure.gaps import Gaps
from harness.objectives import Objectives
from harness.prices import Prices
from harness.records import TaskRecord
from harness.results import FindingName, Standing


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """One backend. `dropped`: planned tasks never sent; `lost`: why it was given up.

    lost_tasks: tasks that went with a worker that died.
    """

    identity: BackendIdentity
    prices: Prices
    dropped: int = 0
    lost: str | None = None
    lost_tasks: int = 0


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker that died. tasks: backend -> its tasks of which nothing is known; detail: a sentence."""

    tasks: dict[str, int]
    detail: str


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The whole run.

    baseline: the backend that others are held against, None for no comparison. asked_per_s: rate of an
    open load. measure_s: how long tasks were started in measure; run_s: until the last one had
    ended; all repeats together. caveats: (finding, detail) of plans and of how the run went.
    loop_lag_p99_ms: lateness of the engine's own pulse. lost_allowed: a run that lost workers may be valid.
    standing: the meter's certificate on the machine that measured.
    """

    title: str
    workload: str
    seed: int
    backends: Mapping[str, BackendFacts]
    baseline: str | None
    objectives: Objectives
    repeats: int
    salted: bool
    interrupted: bool
    measure_s: float
    run_s: float
    cpu_share: float
    loop_lag_p99_ms: float | None
    asked_per_s: float | None = None
    caveats: Sequence[tuple[FindingName, str]] = field(default=())
    lost_workers: Sequence[LostWorker] = field(default=())
    lost_allowed: bool = False
    standing: Standing = field(default=Standing())


@dataclass(frozen=True, slots=True)
class Records:
    """What a run has kept."""

    tasks: Sequence[TaskRecord]
    calls: Calls
    gaps: Gaps
