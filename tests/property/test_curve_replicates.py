"""A resampled curve's quantile is the quantile of the curve of the resampled tasks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.measure.curve import completion_curve, redrawn, time_at, time_replicates
from harness.records import TaskOutcome

tasks = st.lists(
    st.tuples(st.integers(1, 12), st.sampled_from(TaskOutcome), st.integers(0, 3)), min_size=1, max_size=30
)


@given(tasks, st.sampled_from([0.1, 0.5, 0.9]))
def test_a_row_of_weights_is_a_curve_of_repeated_tasks(drawn, q):
    times = np.array([time for time, _, _ in drawn], dtype=np.float64)
    outcomes = [outcome for _, outcome, _ in drawn]
    weights = np.array([[weight for _, _, weight in drawn], [1] * len(drawn)], dtype=np.uint16)
    expected = []
    for row in weights:
        repeated = [outcome for outcome, weight in zip(outcomes, row, strict=True) for _ in range(weight)]
        reached = time_at(completion_curve(np.repeat(times, row), repeated), q)
        expected.append(np.inf if reached is None else reached)
    assert time_replicates(redrawn(times, outcomes, weights), [q]).tolist() == [expected]
