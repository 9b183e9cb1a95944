"""What engines know of themselves at their end, and what the run as a whole then knows: its facts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import orjson

from harness.measure.compare_findings import BackendIdentity
from harness.measure.facts import BackendFacts, LostWorker, RunFacts
from harness.prices import prices_of
from harness.results import FindingName, Standing
from harness.scenario import OpenLoad, Scenario, objectives_of
from harness.scenario_backend import Backend
from harness.simulator.profiles import profiles
from harness.workloads import WORKLOADS


@dataclass(frozen=True, slots=True)
class LaneAccount:
    """One backend. `dropped`: planned tasks that were never sent; `lost`: why it was given up."""

    dropped: int
    lost: str | None


@dataclass(frozen=True, slots=True)
class Account:
    """One engine, in plain values: an account travels between processes.

    phases: mark -> ns from the start of the run. planned: measured tasks that have a plan, by number.
    """

    phases: dict[str, int]
    lanes: dict[str, LaneAccount]
    planned: list[int]
    interrupted: bool


@dataclass(frozen=True, slots=True)
class Machinery:
    """How the meter fared: processor time / elapsed time (1 = a core), lateness of the loop; dead workers.

    standing: what was proved of it before the run.
    """

    cpu_share: float
    loop_lag_p99_ms: float | None
    lost_workers: Sequence[LostWorker] = ()
    lost_allowed: bool = False
    standing: Standing = field(default=Standing())


def merged(accounts: Sequence[Account]) -> Account:
    """Make one account of engines that ran side by side: a phase ends when the last of them ended it."""
    marks = {mark for account in accounts for mark in account.phases}
    names = accounts[0].lanes
    return Account(
        phases={
            mark: max(one.phases[mark] for one in accounts if mark in one.phases) for mark in sorted(marks)
        },
        lanes={name: _merged_lane([account.lanes[name] for account in accounts]) for name in names},
        planned=sorted(set[int]().union(*(account.planned for account in accounts))),
        interrupted=any(account.interrupted for account in accounts),
    )


def _merged_lane(lanes: Sequence[LaneAccount]) -> LaneAccount:
    return LaneAccount(
        dropped=sum(lane.dropped for lane in lanes),
        lost=next((lane.lost for lane in lanes if lane.lost is not None), None),
    )


def run_facts(
    scenario: Scenario,
    accounts: Sequence[Account],
    machinery: Machinery,
    *,
    never_run: int = 0,
    caveats: Iterable[tuple[FindingName, str]] = (),
) -> RunFacts:
    """Gather what the run knows beside its records.

    accounts: one a repeat; never_run: tasks a backend of repeats that did not begin.
    """
    entry = scenario.workloads[0]
    workload = WORKLOADS[entry.kind]
    planner = workload.planner(entry.parameters, seed=scenario.seed, name=entry.name)
    planned = sorted(set[int]().union(*(account.planned for account in accounts)))
    return RunFacts(
        title=scenario.name,
        workload=entry.name,
        seed=scenario.seed,
        backends={
            name: _backend(scenario, name, accounts, machinery, never_run) for name in scenario.backends
        },
        baseline=scenario.compare.baseline if scenario.compare else None,
        objectives=objectives_of(scenario),
        repeats=len(accounts),
        salted=scenario.cache_salt == "on",
        interrupted=any(account.interrupted for account in accounts),
        measure_s=sum(_lasted_s(account, "drain") for account in accounts),
        run_s=sum(_lasted_s(account, "end") for account in accounts),
        cpu_share=machinery.cpu_share,
        loop_lag_p99_ms=machinery.loop_lag_p99_ms,
        asked_per_s=scenario.load.tasks_per_s if isinstance(scenario.load, OpenLoad) else None,
        caveats=[*workload.caveats(planner, planned), *caveats],
        lost_workers=list(machinery.lost_workers),
        lost_allowed=machinery.lost_allowed,
        standing=machinery.standing,
    )


def _lasted_s(account: Account, mark: str) -> float:
    """Time from the start of measure to a mark, or to the end if the run never came to it."""
    until = account.phases.get(mark, account.phases["end"])
    return max(0.0, (until - account.phases["measure"]) / 1e9)


def _backend(
    scenario: Scenario, name: str, accounts: Sequence[Account], machinery: Machinery, never_run: int
) -> BackendFacts:
    backend = scenario.backends[name]
    lane = _merged_lane([account.lanes[name] for account in accounts])
    return BackendFacts(
        identity=identity(name, backend),
        prices=prices_of(backend.model, backend.price),
        dropped=lane.dropped + never_run,
        lost=lane.lost,
        lost_tasks=sum(worker.tasks.get(name, 0) for worker in machinery.lost_workers),
    )


def identity(name: str, backend: Backend) -> BackendIdentity:
    """Describe a backend as far as a comparison must not mix it with its tier; holds no key."""
    profile = profiles().get(backend.simulate or "")
    return BackendIdentity(
        backend=name,
        host="simulated" if profile else urlsplit(backend.url or "").netloc,
        model=backend.model,
        dialect=backend.dialect,
        transport=backend.transport,
        tier=backend.service_tier,
        key_name=backend.key_env,
        simulated=profile is not None,
        output_control="x_plan" if profile else backend.output_control,
        body=orjson.dumps(backend.extra_body, option=orjson.OPT_SORT_KEYS).decode(),
        route=str(profile.route) if profile else None,
        quota=", ".join(
            f"{amount:,} {what}/min"
            for what, amount in (
                ("requests", backend.quota.requests_per_min),
                ("tokens", backend.quota.tokens_per_min),
            )
            if amount is not None
        ),
        retry=backend.retry,
    )
