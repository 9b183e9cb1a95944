"""Plans of starts: absolute, the same wherever they are made, and cut into slices without loss."""

import binascii

import numpy as np
import pytest

from harness.arrivals import offsets_ns, ramp_offsets_ns, stream_seed, task_seed
from harness.scenario import OpenLoad

S = 1_000_000_000


def plan(arrivals, rate, *, seed=7, **length):
    load = OpenLoad(kind="open", arrivals=arrivals, tasks_per_s=rate, **length)
    return offsets_ns(load, np.random.default_rng(stream_seed(seed, "arrivals")))


@pytest.mark.parametrize(
    ("users", "ramp_s", "offsets"),
    [
        pytest.param(4, 2, [0, S // 2, S, 3 * S // 2], id="spread"),
        pytest.param(3, 0, [0, 0, 0], id="at once"),
        pytest.param(1, 5, [0], id="one"),
        pytest.param(3, 1, [0, 333_333_333, 666_666_667], id="rounded, not added up"),
    ],
)
def test_users_start_spread_over_the_ramp(users, ramp_s, offsets):
    assert ramp_offsets_ns(users, ramp_s) == offsets


@pytest.mark.parametrize(
    ("length", "offsets"),
    [
        pytest.param({"tasks": 4}, [0, 400_000_000, 800_000_000, 1_200_000_000], id="tasks"),
        pytest.param({"measure_s": 1}, [0, 400_000_000, 800_000_000], id="time"),
        pytest.param({"measure_s": 0.8}, [0, 400_000_000], id="none at the end itself"),
    ],
)
def test_constant_arrivals(length, offsets):
    made = plan("constant", 2.5, **length)
    assert made.dtype == np.int64
    assert made.tolist() == offsets


def test_a_constant_rate_does_not_drift():
    assert plan("constant", 3, tasks=300_001)[-1] == 100_000 * S


def test_poisson_gaps_are_exponential():
    gaps = np.diff(plan("poisson", 200, tasks=20_000), prepend=0) / S
    assert gaps.mean() == pytest.approx(1 / 200, rel=0.03)  # 4 standard errors
    assert gaps.std() == pytest.approx(1 / 200, rel=0.06)
    assert np.mean(gaps > 1 / 200) == pytest.approx(np.exp(-1), abs=0.014)


def test_the_rate_of_a_poisson_plan_has_its_sampling_error_and_no_less():
    rates = [1_999 / (np.ptp(plan("poisson", 200, seed=seed, tasks=2_000)) / S) for seed in range(200)]
    assert np.mean(rates) == pytest.approx(200, rel=0.01)
    assert np.std(rates) / 200 == pytest.approx(1 / np.sqrt(2_000), rel=0.2)


def test_poisson_by_time_and_by_tasks_are_one_sequence():
    by_tasks = plan("poisson", 50, tasks=8_000)
    for measure_s in (0.01, 1, 60, 100):
        expected = by_tasks[by_tasks < measure_s * S]
        assert plan("poisson", 50, measure_s=measure_s).tolist() == expected.tolist()


def test_a_plan_by_time_reaches_its_end():
    counts = [plan("poisson", 2, seed=seed, measure_s=600).size for seed in range(50)]
    assert np.mean(counts) == pytest.approx(1_200, rel=0.02)


def test_plans_differ_by_seed_only():
    assert plan("poisson", 5, tasks=9).tolist() == plan("poisson", 5, tasks=9).tolist()
    assert plan("poisson", 5, tasks=9).tolist() != plan("poisson", 5, tasks=9, seed=8).tolist()


def test_seeds_of_tasks_are_those_of_the_design():
    assert task_seed(7, "123456789", 3).entropy == [7, 0xCBF43926, 3]  # the check value of CRC-32
    assert task_seed(7, "caf\u00e9", 0).entropy == [7, binascii.crc32(b"caf\xc3\xa9"), 0]


def test_no_stream_is_a_task_or_another_stream():
    seeds = [
        task_seed(seed, name, k) for seed in (0, 1, 7) for name in ("", "a", "arrivals") for k in (0, 1, 2)
    ]
    seeds += [
        stream_seed(seed, name, k) for seed in (0, 1, 7) for name in ("", "a", "arrivals") for k in (0, 1, 2)
    ]
    states = {tuple(seed.generate_state(4)) for seed in seeds}
    assert len(states) == len(seeds)
