"""Whatever the points, an inverse distribution function never falls and stays between its points."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.distributions import Quantiles, Weights

shares = st.lists(st.floats(0, 1), min_size=2, max_size=8, unique=True)


@st.composite
def quantiles(draw):
    keys = sorted(draw(shares))
    values = sorted(draw(st.lists(st.floats(0, 1e6), min_size=len(keys), max_size=len(keys))))
    return Quantiles(quantiles={repr(key): value for key, value in zip(keys, values, strict=True)})


@given(quantiles(), st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_quantiles_never_fall_and_stay_between_the_points(distribution, asked):
    values = [distribution.quantile(share) for share in sorted(asked)]
    points = list(distribution.quantiles.values())
    slack = 1e-9 * (1 + points[-1])
    assert all(after >= before - slack for before, after in pairwise(values))
    assert points[0] - slack <= values[0]
    assert values[-1] <= points[-1] + slack


@given(st.dictionaries(st.integers(0, 99), st.floats(0, 10), min_size=1), st.integers(0, 2**32))
def test_only_numbers_with_weight_are_drawn(weights, seed):
    weighty = {float(number) for number, weight in weights.items() if weight > 0}
    if not sum(weights.values()) > 0:
        return
    distribution = Weights(weights={str(number): weight for number, weight in weights.items()})
    generator = np.random.default_rng(seed)
    assert {distribution.sample(generator) for _ in range(20)} <= weighty
