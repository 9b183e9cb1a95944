"""Resampling and the intervals made of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.measure.intervals import (
    block_weights,
    effective,
    levels,
    needed,
    resampling,
    share_replicates,
    weighted_quantile,
    widened,
)


def dice(seed=1):
    return np.random.default_rng(seed)


def test_units_needed_are_those_of_order_statistics():
    # scipy: the smallest n for which quantile_test has both ends of its 95 % interval
    assert [needed(q) for q in (0.5, 0.9, 0.95, 0.99)] == [6, 36, 72, 368]
    for q, n in ((0.5, 6), (0.9, 36)):
        ends = stats.quantile_test(np.arange(n), p=q).confidence_interval(0.95)
        fewer = stats.quantile_test(np.arange(n - 1), p=q).confidence_interval(0.95)
        assert not np.isnan([ends.low, ends.high]).any()
        assert np.isnan([fewer.low, fewer.high]).any()


@given(st.integers(1, 80), st.integers(1, 30))
def test_each_resample_has_as_many_units_in_runs_of_neighbours(n, block):
    weights = block_weights(n, block=min(block, n), generator=dice(), replicates=20)
    assert weights.shape == (20, n)
    assert (weights.sum(axis=1) == n).all()


def test_every_unit_is_drawn_equally_often():
    weights = block_weights(50, block=10, generator=dice(), replicates=20_000)
    assert weights.mean(axis=0) == pytest.approx(np.ones(50), abs=0.05)


def test_the_same_seed_gives_the_same_resamples():
    a, b = (resampling(100, generator=dice(3)) for _ in range(2))
    assert all((x == y).all() for x, y in zip(a.weights, b.weights, strict=True))


def test_from_five_runs_on_runs_are_drawn_whole():
    runs = np.repeat(np.arange(5), 20)
    found = resampling(100, generator=dice(), runs=runs)
    assert found.between_runs
    assert found.drawn == (5,)
    one = found.weights[0][0].reshape(5, 20)
    assert (one == one[:, :1]).all()
    assert not resampling(80, generator=dice(), runs=np.repeat(np.arange(4), 20)).between_runs


@pytest.mark.parametrize(("hits", "n"), [(5, 10), (0, 10), (10, 10), (95, 100)])
def test_levels_are_clopper_and_pearsons(hits, n):
    exact = stats.binomtest(hits, n).proportion_ci(0.95, method="exact")
    assert levels(hits / n, n) == pytest.approx((exact.low, exact.high))


def test_independent_units_are_worth_about_their_number():
    hits = (dice().random(2000) < 0.9).astype(float)
    resampled = resampling(2000, generator=dice())
    replicates = [row for (row,) in share_replicates(resampled, hits[None, :], np.ones(2000))]
    worth = effective(hits.mean(), replicates, drawn=resampled.drawn, total=2000)
    assert 1000 < worth <= 2000


def test_units_that_come_in_clumps_are_worth_their_clumps():
    hits = np.repeat(dice().random(50) < 0.5, 40).astype(float)  # 50 clumps of 40 equal units
    resampled = resampling(2000, generator=dice())
    replicates = [row for (row,) in share_replicates(resampled, hits[None, :], np.ones(2000))]
    worth = effective(hits.mean(), replicates, drawn=resampled.drawn, total=2000)
    assert worth < 100


def test_weighted_quantile_by_hand():
    values = np.array([3.0, 1.0, 2.0])
    weights = np.array([[1, 1, 1], [0, 3, 0], [2, 0, 1], [0, 0, 0]], dtype=np.uint16)
    assert weighted_quantile(values, weights, 0.5).tolist()[:3] == [2, 1, 3]
    assert np.isnan(weighted_quantile(values, weights, 0.5)[3])


def test_ends_are_wider_for_few_blocks_and_keep_the_point_inside():
    replicates = np.exp(dice().normal(0, 0.1, 5000))
    few, many = (widened(1.0, [replicates], [drawn]) for drawn in (5, 1000))
    assert few[0] < many[0] < 1 < many[1] < few[1]
    assert many == pytest.approx((np.exp(-0.196), np.exp(0.196)), rel=0.02)
    assert widened(2.0, [np.array([3.0, 4.0])], [100])[0] == 2.0


def test_infinite_ends_stay_infinite():
    replicates = np.array([1.0] * 90 + [np.inf] * 10)
    assert widened(1.0, [replicates], [20]) == (1.0, np.inf)
