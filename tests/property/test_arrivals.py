"""A plan has all its tasks and never runs backwards."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.arrivals import offsets_ns, ramp_offsets_ns
from harness.scenario import OpenLoad


@given(
    st.sampled_from(["constant", "poisson"]), st.floats(0.01, 1e5), st.integers(1, 300), st.integers(0, 2**32)
)
def test_a_plan_by_tasks_has_them_all_in_order(arrivals, rate, tasks, seed):
    load = OpenLoad(kind="open", arrivals=arrivals, tasks_per_s=rate, tasks=tasks)
    plan = offsets_ns(load, np.random.default_rng(seed))
    assert len(plan) == tasks
    assert plan[0] >= 0
    assert (np.diff(plan) >= 0).all()


@given(st.sampled_from(["constant", "poisson"]), st.floats(0.01, 100), st.floats(0.01, 50), st.integers(0, 9))
def test_a_plan_by_time_ends_before_the_end(arrivals, rate, measure_s, seed):
    load = OpenLoad(kind="open", arrivals=arrivals, tasks_per_s=rate, measure_s=measure_s)
    plan = offsets_ns(load, np.random.default_rng(seed))
    assert (plan <= measure_s * 1e9 + 1).all()
    if arrivals == "constant":
        assert abs(len(plan) - measure_s * rate) <= 1


@given(st.integers(1, 200), st.floats(0, 3600))
def test_users_start_within_the_ramp(users, ramp_s):
    offsets = ramp_offsets_ns(users, ramp_s)
    assert offsets == sorted(offsets)
    assert offsets[0] == 0
    assert offsets[-1] <= ramp_s * 1e9 + 1  # whole nanoseconds
