"""How often the printed 95 % interval holds the truth when load noise is shared: the table of docs/method.md.

    python benchmarks/coverage.py [ROUNDS]

Task times are exp(2 + load x a + 0.6 x e): e is the task's own, a is AR(1) noise that neighbours share,
with a memory of 1 / (1 - rho) tasks. "naive" resamples single tasks, as if they were independent.
"""

import sys

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from harness.measure.estimates import curve_estimates, tasks_of, units_of
from harness.records import Phase, TaskOutcome, TaskRecord

LOADS = ((0.0, 0.0), (0.9, 0.3), (0.95, 0.4))
SIZES = (80, 120, 300, 1000)
QUANTILES = (0.5, 0.9, 0.95)
OWN = 0.6


def times_s(dice: np.random.Generator, n: int, *, rho: float, load: float) -> NDArray[np.float64]:
    """Draw the times of n tasks in order."""
    shared = np.empty(n)
    shared[0] = dice.standard_normal()
    for i, shock in enumerate(dice.standard_normal(n - 1) * (1 - rho**2) ** 0.5):
        shared[i + 1] = rho * shared[i] + shock
    return np.exp(2 + load * shared + OWN * dice.standard_normal(n))


def records(times: NDArray[np.float64]) -> list[TaskRecord]:
    """Make completed tasks of these times."""
    return [
        TaskRecord(
            task_id=str(k),
            k=k,
            backend="b",
            workload="w",
            preset=None,
            session=k,
            phase=Phase.MEASURE,
            seed=1,
            scheduled_ns=k * 10**9,
            started_ns=k * 10**9,
            ended_ns=k * 10**9 + round(seconds * 1e9),
            human_ns=0,
            outcome=TaskOutcome.COMPLETED,
            reason=None,
            turns=1,
            calls=1,
            tools=[],
            breakdown={},
            breakdown_unknown=[],
            cost_usd=None,
            plan_mismatch=0,
        )
        for k, seconds in enumerate(times)
    ]


def coverage(n: int, *, rho: float, load: float, rounds: int) -> dict[float, tuple[float, float, float]]:
    """Give, by quantile: coverage, coverage of the naive interval, mean half width in percent."""
    dice = np.random.default_rng([n, round(100 * rho)])
    sigma = np.hypot(load, OWN)
    held = {q: np.zeros(3) for q in QUANTILES}
    for _ in range(rounds):
        times = times_s(dice, n, rho=rho, load=load)
        tasks = records(times)
        prepared = tasks_of(tasks, units_of(tasks, generator=dice))
        drawn = dice.choice(times, (300, n))
        for q, found in zip(QUANTILES, curve_estimates(prepared, qs=QUANTILES)[0], strict=True):
            truth = np.exp(2 + sigma * norm.ppf(q))
            naive = np.quantile(np.quantile(drawn, q, axis=1), [0.025, 0.975])
            low, high = found.low or 0.0, found.high or np.inf
            width = 50 * np.log(high / low) if np.isfinite(high) else np.nan
            held[q] += [low <= truth <= high, naive[0] <= truth <= naive[1], width]
    return {q: tuple(found / rounds) for q, found in held.items()}


def main() -> None:
    """Print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    print(f"{rounds} rounds a row")
    print("| tasks | memory, tasks | load noise | quantile | printed covers | naive covers | +- |")
    print("|---|---|---|---|---|---|---|")
    for n in SIZES:
        for rho, load in LOADS:
            for q, (ours, naive, width) in coverage(n, rho=rho, load=load, rounds=rounds).items():
                memory = round(1 / (1 - rho)) if load else 0
                print(
                    f"| {n} | {memory} | {load:g} | p{100 * q:g} | {ours:.1%} | {naive:.1%} | {width:.0f} % |"
                )


if __name__ == "__main__":
    main()
