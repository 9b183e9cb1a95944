"""When task k starts: plans of absolute offsets from the start of the measure phase, in nanoseconds.

A plan is made once from the scenario and the seed and is the same for every backend. Nothing here waits:
pacing against absolute times is the engine's.

Seeds stand here too, because what a task is and when it starts must come from the same place on every
backend and worker: `task_seed` for everything inside task k, `stream_seed` for what is drawn beside
the tasks.
"""

from zlib import crc32

import numpy as np
from numpy.random import Generator, SeedSequence
from numpy.typing import NDArray

from harness.scenario import OpenLoad


def task_seed(seed: int, workload: str, k: int) -> SeedSequence:
    """Seed of task k: the same on every backend, worker and machine. `workload` is the entry's name."""
    return SeedSequence([seed, crc32(workload.encode()), k])


def stream_seed(seed: int, stream: str, k: int = 0) -> SeedSequence:
    """Seed of what is drawn beside the measured tasks, such as "arrivals"; one stream per name and k.

    A spawn key is mixed in behind the padded entropy, so no stream is ever a task's.
    """
    return SeedSequence([seed], spawn_key=(crc32(stream.encode()), k))


def ramp_offsets_ns(users: int, ramp_s: float) -> list[int]:
    """Start of each user of a closed load: user i at i / users of the ramp."""
    return [round(user * ramp_s * 1e9 / users) for user in range(users)]


def offsets_ns(load: OpenLoad, generator: Generator) -> NDArray[np.int64]:
    """Start of each task of an open load: `tasks` of them, or all before `measure_s`.

    Constant: task k at k / rate, the first at 0. Poisson: sums of exponential gaps, also before the
    first task. Gaps are never rescaled to hit the rate, as that would not be Poisson any more: the
    rate of a plan of n tasks differs from the asked one by about 1 / sqrt(n) (2.2 % for n = 2,000), so
    what a run achieved is to be held against its plan. Runs by tasks and by time share one sequence.
    """
    rate = load.tasks_per_s
    if load.arrivals == "constant":
        tasks = load.tasks or int(np.ceil((load.measure_s or 0) * rate))
        starts = np.arange(tasks) / rate
    else:
        starts = _poisson_s(load, generator)
    if load.measure_s is not None:
        starts = starts[starts < load.measure_s]
    return np.rint(starts * 1e9).astype(np.int64)


def _poisson_s(load: OpenLoad, generator: Generator) -> NDArray[np.float64]:
    """Sum gaps; how many are drawn at a time does not change them."""
    if load.tasks is not None:
        return np.cumsum(generator.standard_exponential(load.tasks)) / load.tasks_per_s
    expected = (load.measure_s or 0) * load.tasks_per_s
    gaps = np.zeros(0)
    while not gaps.size or np.cumsum(gaps)[-1] <= expected:
        gaps = np.append(gaps, generator.standard_exponential(1024 + int(expected)))
    return np.cumsum(gaps) / load.tasks_per_s
