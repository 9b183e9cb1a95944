"""Gaps counted task by task are those of the calls, however they come."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measure import gaps as counting
from harness.measure.gaps import BEYOND, Gaps, values_of
from harness.measure.histogram import OVERFLOW_FROM, Histogram, bucket, histogram, merged

PLACES = {"a": 0, "b": 1, "c": 0}
"""Tasks of other backends have none."""

values = st.integers(0, 3000) | st.sampled_from([-1, 10**9, OVERFLOW_FROM - 1, OVERFLOW_FROM, 2**60])
calls = st.lists(st.tuples(st.sampled_from("abcdx"), st.lists(values, max_size=8)), max_size=12)


def array(numbers):
    return np.array(numbers, dtype=np.int64)


def told(told_calls):
    gaps = Gaps()
    for task_id, numbers in told_calls:
        gaps.add(task_id, array(numbers))
    return gaps


@pytest.fixture(params=[(1, 1, 1), (10, 20, 2), (32_000, 2_000_000, 2000)], ids=["one", "few", "many"])
def at_once(request, monkeypatch):
    """So many are worked on together."""
    for name, number in zip(("HOT", "VALUES_AT_ONCE", "TASKS_AT_ONCE"), request.param, strict=True):
        monkeypatch.setattr(counting, name, number)


def same(found, expected):
    assert (found.buckets.tolist(), found.counts.tolist(), found.overflow) == (
        expected.buckets.tolist(),
        expected.counts.tolist(),
        expected.overflow,
    )


@pytest.mark.usefixtures("at_once")
def test_what_is_pooled_and_counted_is_what_came():
    @given(calls, st.integers(0, 4000))
    def check(told_calls, last):
        gaps = told(told_calls)
        mine = [(task_id, array(numbers)) for task_id, numbers in told_calls if task_id in PLACES]
        same(gaps.at(PLACES).pooled(), merged(histogram(numbers) for _, numbers in mine))
        expected = [0, 0]
        for task_id, numbers in mine:
            fits = numbers[(numbers >= 0) & (numbers < OVERFLOW_FROM)]
            expected[PLACES[task_id]] += int((bucket(fits) <= last).sum())
        assert gaps.at(PLACES).per_place(2, up_to=last).tolist() == expected

    check()


def test_by_hand():
    gaps = told([("a", [1000, 1000, 4000]), ("b", [1000]), ("a", [5, OVERFLOW_FROM]), ("x", [7])])
    pooled = gaps.at(PLACES).pooled()
    assert pooled.counts.tolist() == [1, 3, 1]
    assert (pooled.total, pooled.overflow) == (6, 1)
    assert gaps.at(PLACES).per_place(2, up_to=int(bucket(array([1000]))[0])).tolist() == [3, 1]
    assert gaps.at(PLACES).per_place(2, up_to=BEYOND - 1).tolist() == [4, 1]


def test_nothing_at_all():
    assert told([]).at(PLACES).pooled().total == 0
    assert told([("a", [])]).at(PLACES).per_place(2, up_to=BEYOND).tolist() == [0, 0]


@given(st.lists(values, max_size=20))
def test_a_histogram_that_came_counts_as_its_values(numbers):
    came = values_of(histogram(array(numbers)))
    same(told([("a", came)]).at(PLACES).pooled(), told([("a", numbers)]).at(PLACES).pooled())


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(Histogram(array([1, 2]), array([1])), id="unlike lengths"),
        pytest.param(Histogram(array([1]), array([-1])), id="a count below nought"),
        pytest.param(Histogram(array([-1]), array([1])), id="a bucket below nought"),
        pytest.param(Histogram(array([BEYOND]), array([1])), id="a bucket that is none"),
        pytest.param(Histogram(overflow=-1), id="overflow below nought"),
    ],
)
def test_what_cannot_be_a_histogram_is_refused(wrong):
    with pytest.raises(ValueError, match="not a histogram"):
        values_of(wrong)
