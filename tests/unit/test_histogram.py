"""Buckets by hand, and the promises of the histogram: error, merging, packing, overflow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from harness.measure.histogram import (
    OVERFLOW_FROM,
    Histogram,
    bucket,
    from_bytes,
    histogram,
    lower_edge,
    merged,
    quantile,
    to_bytes,
)

VALUES = arrays(np.int64, st.integers(0, 60), elements=st.integers(0, OVERFLOW_FROM - 1))


@pytest.mark.parametrize(
    ("value", "expected", "edge"),
    [
        pytest.param(0, 0, 0, id="nought"),
        pytest.param(255, 255, 255, id="small ones are exact"),
        pytest.param(256, 256, 256, id="first wide bucket"),
        pytest.param(257, 256, 256, id="two to a bucket"),
        pytest.param(1000, 128 * 2 + 250, 1000, id="four to a bucket"),
    ],
)
def test_buckets_by_hand(value, expected, edge):
    found = bucket(np.array([value]))
    assert found[0] == expected
    assert lower_edge(found)[0] == edge


@given(st.integers(0, OVERFLOW_FROM - 1))
def test_a_buckets_middle_is_at_most_0_4_percent_off(value):
    found = bucket(np.array([value]))
    low, high = int(lower_edge(found)[0]), int(lower_edge(found + 1)[0]) - 1
    assert low <= value <= high
    assert abs((low + high) / 2 - value) <= 0.004 * value


@given(VALUES, VALUES, VALUES)
def test_merging_is_exact_in_any_order(a, b, c):
    together = histogram(np.concatenate([a, b, c]))
    parts = [histogram(part) for part in (a, b, c)]
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        found = merged(parts[i] for i in order)
        assert found.buckets.tolist() == together.buckets.tolist()
        assert found.counts.tolist() == together.counts.tolist()
    nested = merged([merged(parts[:2]), parts[2]])
    assert nested.counts.tolist() == together.counts.tolist()


@given(VALUES)
def test_bytes_give_the_same_histogram_back(values):
    one = histogram(values)
    again = from_bytes(to_bytes(one))
    assert again.buckets.tolist() == one.buckets.tolist()
    assert again.counts.tolist() == one.counts.tolist()


@given(VALUES.filter(len), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_quantiles_are_within_0_4_percent_of_the_observed_one(values, q):
    exact = np.quantile(values, q, method="inverted_cdf")
    found = quantile(histogram(values), q)
    assert found == pytest.approx(exact, rel=0.004)


def test_what_does_not_fit_is_counted_as_largest():
    one = histogram(np.array([10, -1, OVERFLOW_FROM]))
    assert (one.overflow, one.total) == (2, 3)
    assert quantile(one, 0.3) == 10
    assert quantile(one, 0.99) is None
    assert from_bytes(to_bytes(one)).overflow == 2
    assert merged([one, one]).overflow == 4


def test_nothing_has_no_quantile():
    assert quantile(Histogram(), 0.5) is None
    assert merged([]).total == 0


@pytest.mark.parametrize("data", [b"", b"x" * 17, b"\xff" * 16])
def test_other_bytes_are_refused(data):
    with pytest.raises(ValueError, match="histogram"):
        from_bytes(data)


def test_it_is_small():
    many = np.random.default_rng(1).lognormal(7, 0.3, 100_000).astype(np.int64)
    assert len(to_bytes(histogram(many))) < 6000
