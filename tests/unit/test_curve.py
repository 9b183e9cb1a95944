"""The completion curve against counts made by hand, and against another implementation."""

import warnings

import numpy as np
import pytest

from harness.measure import curve as curves
from harness.measure.curve import (
    completion_curve,
    redrawn,
    share_at,
    share_replicates,
    time_at,
    time_replicates,
)
from harness.records import TaskOutcome

C, F, T, X = TaskOutcome.COMPLETED, TaskOutcome.FAILED, TaskOutcome.TIMEOUT, TaskOutcome.CUT
A = TaskOutcome.ABANDONED


@pytest.mark.parametrize(
    ("times", "outcomes", "steps", "expected"),
    [
        pytest.param([1, 2, 3, 4], [C, C, C, C], [1, 2, 3, 4], [0.25, 0.5, 0.75, 1], id="all done: the ECDF"),
        pytest.param([1, 2, 3, 4], [C, F, C, C], [1, 2, 3, 4], [0.25, 0.25, 0.5, 0.75], id="a failed one"),
        pytest.param(
            [1, 2, 3, 4], [C, A, C, C], [1, 2, 3, 4], [0.25, 0.25, 0.5, 0.75], id="an abandoned one"
        ),
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
    assert [time_at(curve, q) for q in (0.25, 0.26, 0.5, 0.95)] == [1, 2, 2, 4]


def test_a_quantile_beyond_the_curve_is_not_reached_rather_than_a_survivors_number():
    curve = completion_curve([1, 2, 30, 30], [C, C, T, T])
    assert time_at(curve, 0.95) is None
    assert time_at(curve, 0.5) == 2


def test_within_counts_time_outs_as_misses():
    curve = completion_curve([1, 2, 30, 30], [C, C, T, T])
    assert [share_at(curve, limit) for limit in (0.5, 1, 10, 60)] == [0, 0.25, 0.5, 0.5]


def test_no_tasks_reach_nothing():
    curve = completion_curve([], [])
    assert time_at(curve, 0.5) is None
    assert share_at(curve, 10) == 0


def some_tasks(seed, *, n=300, ties=False):
    dice = np.random.default_rng(seed)
    times = dice.lognormal(2, 0.8, n)
    if ties:
        times = np.ceil(times)
    outcomes = dice.choice([C, C, C, F, X, T], n).tolist()
    return times, [TaskOutcome(one) for one in outcomes]


@pytest.mark.parametrize("seed", range(5))
def test_lifelines_finds_the_same_curve(seed):
    from lifelines import AalenJohansenFitter

    times, outcomes = some_tasks(seed)
    kinds = np.array([1 if one is C else 2 if one is F else 0 for one in outcomes])
    fitter = AalenJohansenFitter(calculate_variance=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitter.fit(times, kinds, event_of_interest=1)
    curve = completion_curve(times, outcomes)
    theirs = fitter.cumulative_density_
    for at in np.quantile(times, [0.05, 0.3, 0.5, 0.8, 0.99]):
        assert share_at(curve, at) == pytest.approx(theirs[theirs.index <= at].iloc[-1, 0], abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_without_censoring_it_is_the_share_of_all_tasks(seed):
    times, outcomes = some_tasks(seed)
    ended = [one if one in (C, F) else C for one in outcomes]
    curve = completion_curve(times, ended)
    for at in np.quantile(times, [0.1, 0.5, 0.9]):
        done = sum(t <= at and one is C for t, one in zip(times, ended, strict=True))
        assert share_at(curve, at) == pytest.approx(done / len(times))


@pytest.mark.parametrize("cells", [1, 150, 100_000])
def test_units_are_drawn_with_all_their_tasks_however_many_resamples_at_a_time(monkeypatch, cells):
    monkeypatch.setattr(curves, "CELLS", cells)
    times, outcomes = some_tasks(4, n=60, ties=True)
    dice = np.random.default_rng(1)
    units, places = dice.integers(0, 3, (7, 20)).astype(np.uint16), dice.integers(0, 20, 60)
    units[3] = 0  # a resample that drew nothing: no share, and no time that is reached
    one, other = redrawn(times, outcomes, units, places), redrawn(times, outcomes, units[:, places])
    for replicates, asked, n in (
        (share_replicates, np.quantile(times, [0.1, 0.9]), 6),
        (time_replicates, [0.5], 7),
    ):
        found = replicates(one, asked)
        assert found.shape == (len(asked), n)
        assert (found == replicates(other, asked)).all()
    assert time_replicates(one, [0.5])[0, 3] == np.inf


@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
@pytest.mark.parametrize("seed", range(3))
def test_a_weighted_curve_is_the_curve_of_repeated_tasks(seed, ties):
    times, outcomes = some_tasks(seed, n=60, ties=ties)
    weights = np.random.default_rng(seed).integers(0, 4, (5, 60)).astype(np.uint16)
    moments = np.quantile(times, [0.3, 0.6, 0.9])
    shares = share_replicates(redrawn(times, outcomes, weights), moments)
    for at, found in zip(moments, shares, strict=True):
        for row, share in zip(weights, found, strict=True):
            repeated = [one for one, n in zip(outcomes, row, strict=True) for _ in range(n)]
            assert share == pytest.approx(share_at(completion_curve(np.repeat(times, row), repeated), at))
