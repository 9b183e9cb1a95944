"""How often the intervals of speed-ups hold the truth, by length of run: the table of docs/method.md.

    python benchmarks/coverage_pairs.py [ROUNDS]

Two equal backends, so the truth is 1; the world of tasks is that of `tests/generating.py`.
"""

import sys
from pathlib import Path

import numpy as np

from harness.measure.compare import compare
from harness.measure.compare_findings import Side

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests/ is not installed
from tests.generating import World, legs

WORLDS = ((40, 8, 20.0), (120, 8, 20.0), (120, 24, 20.0), (120, 8, 60.0), (400, 8, 60.0))


def coverage(world: World, rounds: int) -> tuple[float, float]:
    """Give the shares of rounds in which the intervals of speedup_p50 and ratio_total hold 1."""
    held = [0, 0]
    for seed in range(rounds):
        ours, theirs = (Side(name, "w", *legs(world, name, seed=seed)) for name in "ab")
        told, _ = compare(ours, theirs, generator=np.random.default_rng(seed), open_loop=False)
        for at, estimate in enumerate((told.speedup_p50, told.ratio_total)):
            held[at] += estimate.low is not None and estimate.low <= 1 <= estimate.high
    return held[0] / rounds, held[1] / rounds


def main() -> None:
    """Print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print("| tasks | users | memory, s | speedup_p50 | ratio_total |\n|---|---|---|---|---|")
    for tasks, users, tau_s in WORLDS:
        p50, total = coverage(World(tasks=tasks, users=users, tau_s=tau_s), rounds)
        print(f"| {tasks} | {users} | {tau_s:g} | {p50:.0%} | {total:.0%} |", flush=True)


if __name__ == "__main__":
    main()
