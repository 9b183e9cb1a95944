"""The completion curve against counts made by hand."""

import numpy as np
import pytest

from harness.measure.curve import completion_curve, quantile, within
from harness.records import TaskOutcome
from harness.results import Reason

C, F, T, X = TaskOutcome.COMPLETED, TaskOutcome.FAILED, TaskOutcome.TIMEOUT, TaskOutcome.CUT


@pytest.mark.parametrize(
    ("times", "outcomes", "steps", "expected"),
    [
        pytest.param([1, 2, 3, 4], [C, C, C, C], [1, 2, 3, 4], [0.25, 0.5, 0.75, 1], id="all done: the ECDF"),
        pytest.param([1, 2, 3, 4], [C, F, C, C], [1, 2, 3, 4], [0.25, 0.25, 0.5, 0.75], id="a failed one"),
        # cut at 2 of 4: before, 3/4 are left; then 2 at risk share them: 3/8 each
        pytest.param([1, 2, 3, 4], [C, X, C, C], [1, 3, 4], [0.25, 0.625, 1], id="a cut one"),
        pytest.param([1, 2, 9, 9], [C, C, T, T], [1, 2], [0.25, 0.5], id="time-outs never complete"),
        # at 2 one completes and one is cut: ends come first, so 3 are at risk there
        pytest.param([1, 2, 2, 3], [C, C, X, C], [1, 2, 3], [0.25, 0.5, 1], id="a tie"),
    ],
)
def test_steps_by_hand(times, outcomes, steps, expected):
    curve = completion_curve(times, outcomes)
    assert curve.times_s.tolist() == steps
    assert curve.share == pytest.approx(np.array(expected))


def test_quantile_is_the_smallest_observed_time_that_reaches_it():
    curve = completion_curve([1, 2, 3, 4], [C, C, C, C])
    assert [quantile(curve, q).value for q in (0.25, 0.26, 0.5, 0.95)] == [1, 2, 2, 4]


def test_a_quantile_beyond_the_curve_is_not_reached_rather_than_a_survivors_number():
    curve = completion_curve([1, 2, 30, 30], [C, C, T, T])
    assert quantile(curve, 0.95).value is None
    assert quantile(curve, 0.95).reason is Reason.NOT_REACHED
    assert quantile(curve, 0.5).value == 2


def test_within_counts_time_outs_as_misses():
    curve = completion_curve([1, 2, 30, 30], [C, C, T, T])
    assert [within(curve, limit).value for limit in (0.5, 1, 10, 60)] == [0, 0.25, 0.5, 0.5]


def test_no_tasks_is_unknown():
    curve = completion_curve([], [])
    assert quantile(curve, 0.5).reason is Reason.UNKNOWN
    assert within(curve, 10).reason is Reason.UNKNOWN
