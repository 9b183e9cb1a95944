"""Distributions are read from plain tables and draw what they state."""

import subprocess
import sys
from typing import Annotated

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from harness.distributions import Distribution, Names, Quantiles, bounded

OUTPUT = {"0.05": 89, "0.25": 137, "0.5": 216, "0.75": 429, "0.9": 899, "0.95": 1543, "0.99": 3663}
TURN = {
    "mixture": [
        {"weight": 0.4, "value": 1},
        {"weight": 0.6, "lognormal": {"median": 6.7, "sigma": 1.15}, "min": 2, "max": 250},
    ]
}


def read(table):
    return TypeAdapter(Distribution).validate_python(table)


def draws(table, n=20_000, seed=5):
    distribution, generator = read(table), np.random.default_rng(seed)
    return np.array([distribution.sample(generator) for _ in range(n)])


@pytest.mark.parametrize(
    ("table", "stated"),
    [
        pytest.param({"quantiles": OUTPUT}, {float(q): v for q, v in OUTPUT.items()}, id="points"),
        pytest.param(
            {"lognormal": {"median": 86, "sigma": 2.1}},
            {0.5: 86, 0.8413447: 86 * np.exp(2.1), 0.1586553: 86 / np.exp(2.1)},
            id="lognormal",
        ),
        pytest.param(
            TURN, {0.2: 1, 0.39: 1, 0.7: 6.7, 0.4 + 0.6 * 0.8413447: 6.7 * np.exp(1.15)}, id="mixture"
        ),
    ],
)
def test_draws_follow_the_stated_quantiles(table, stated):
    drawn = draws(table)
    for share, value in stated.items():  # the share of draws at or below it, to 3.5 standard errors
        error = 3.5 * np.sqrt(share * (1 - share) / drawn.size)
        assert np.mean(drawn <= value) >= share - error
        assert np.mean(drawn < value) <= share + error


def test_limits_keep_what_lies_outside_at_the_limit():
    drawn = draws({"lognormal": {"median": 86, "sigma": 2.1}, "min": 10, "max": 3600})
    assert (drawn.min(), drawn.max()) == (10, 3600)
    assert np.mean(drawn == 3600) == pytest.approx(0.0376, abs=0.005)  # 1 - Phi(ln(3600 / 86) / 2.1)
    assert draws(TURN).max() <= 250
    assert draws({**TURN, "max": 5}).max() == 5
    assert draws({"quantiles": OUTPUT, "min": 100}).min() == 100


@pytest.mark.parametrize(
    ("points", "share", "value"),
    [
        pytest.param({"0.25": 47, "0.75": 999}, 0.1, 47, id="flat below the first"),
        pytest.param({"0.25": 47, "0.75": 999}, 0.99, 999, id="flat above the last"),
        pytest.param({"0.25": 10, "0.75": 1000}, 0.5, 100, id="straight in the logarithm"),
        pytest.param({"0.1": 0, "0.3": 50}, 0.2, 25, id="straight from a 0"),
        pytest.param({"0.9": 8, "0.1": 2}, 0.5, 4, id="points in any order"),
        pytest.param({"0": 3, "1": 3}, 0.5, 3, id="no rise"),
        pytest.param({"0.25": 1, "0.5": 1, "0.9": 18}, 0.5, 1, id="at a point"),
    ],
)
def test_between_points(points, share, value):
    assert Quantiles(quantiles=points).quantile(share) == pytest.approx(value)


def test_numbers_are_drawn_by_weight():
    numbers, counts = np.unique(draws({"weights": {"1": 93, "2": 4, "3": 3, "9": 0}}), return_counts=True)
    assert list(numbers) == [1, 2, 3]
    assert counts / counts.sum() == pytest.approx([0.93, 0.04, 0.03], abs=0.007)


def test_names_are_picked_by_weight():
    names, generator = Names(weights={"shell": 0.3, "never": 0, "web": 0.1}), np.random.default_rng(1)
    picked = [names.pick(generator) for _ in range(20_000)]
    assert set(picked) == {"shell", "web"}
    assert picked.count("shell") / 20_000 == pytest.approx(0.75, abs=0.011)


def test_a_value_is_always_the_same():
    assert set(draws({"value": 0.41}, n=5)) == {0.41}


@pytest.mark.parametrize("table", [TURN, {"quantiles": OUTPUT}, {"weights": {"1": 1, "2": 1}}])
def test_the_same_dice_draw_the_same(table):
    assert list(draws(table, n=50, seed=3)) == list(draws(table, n=50, seed=3))
    assert list(draws(table, n=50, seed=3)) != list(draws(table, n=50, seed=4))


def test_a_distribution_cannot_be_changed():
    with pytest.raises(ValidationError):
        read({"value": 1}).value = 2


def test_reading_a_distribution_does_not_load_numpy():
    code = "import sys, harness.distributions, harness.scenario; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("table", "ends"),
    [
        pytest.param({"value": 3}, (3, 3), id="value"),
        pytest.param({"lognormal": {"median": 86, "sigma": 2}}, (0, np.inf), id="lognormal"),
        pytest.param(
            {"lognormal": {"median": 86, "sigma": 2}, "min": -9, "max": 7}, (0, 7), id="lognormal, limits"
        ),
        pytest.param({"lognormal": {"median": 8, "sigma": 2}, "max": -5}, (-5, -5), id="a limit below 0"),
        pytest.param({"quantiles": {"0.1": -2, "0.9": 8}}, (-2, 8), id="points"),
        pytest.param({"quantiles": {"0.1": -2, "0.9": 8}, "min": 0, "max": 5}, (0, 5), id="points, limits"),
        pytest.param({"weights": {"4": 1, "-1": 2}}, (-1, 4), id="weights"),
        pytest.param(TURN, (1, 250), id="mixture"),
        pytest.param({"mixture": [{"weight": 1, "value": -3}], "min": -1}, (-1, -1), id="mixture, limit"),
    ],
)
def test_the_ends_hold_every_draw(table, ends):
    assert read(table).ends() == ends
    drawn = draws(table, n=500)
    assert ends[0] <= drawn.min() <= drawn.max() <= ends[1]


def test_a_draw_too_large_for_a_float_is_infinite():
    assert max(draws({"lognormal": {"median": 1e300, "sigma": 1e3}}, n=50)) == np.inf


@pytest.mark.parametrize(
    ("table", "told"),
    [
        pytest.param({"value": -1}, "want no value below 0; this one gives -1", id="below"),
        pytest.param(
            {"mixture": [{"weight": 1, "value": 2}, {"weight": 9, "value": 65}]},
            "want no value above 64; this one gives 65",
            id="above",
        ),
        pytest.param({"lognormal": {"median": 2, "sigma": 1}, "max": 65}, "above 64", id="a limit above"),
    ],
)
def test_values_out_of_bounds_are_refused(table, told):
    adapter = TypeAdapter(Annotated[Distribution, bounded(64)])
    assert adapter.validate_python({"lognormal": {"median": 2, "sigma": 1}}).ends() == (0, np.inf)
    with pytest.raises(ValidationError, match=told):
        adapter.validate_python(table)
