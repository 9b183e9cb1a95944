"""Formulas of one call, counted by hand."""

import pytest

from harness.measure.metrics.call import (
    hidden_tokens,
    streamed_per_event,
    streamed_tokens,
    tokens_after_last,
    tpot_ns,
)


@pytest.mark.parametrize(
    ("told", "raw", "summaries", "hidden"),
    [
        pytest.param(None, False, False, 0, id="nothing-told"),
        pytest.param(0, False, False, 0, id="split-says-none"),
        pytest.param(100, False, False, 100, id="never-streamed"),
        pytest.param(100, True, False, 0, id="streamed"),
        pytest.param(None, True, False, 0, id="streamed-usage-silent"),
        pytest.param(100, False, True, None, id="only-summaries"),
    ],
)
def test_hidden_tokens(told, raw, summaries, hidden):
    assert hidden_tokens(told, raw_reasoning=raw, summaries=summaries) == hidden


@pytest.mark.parametrize(
    ("output", "hidden", "streamed"),
    [(110, 100, 10), (5, 0, 5), (None, 0, None), (5, None, None), (5, 6, None), (5, 5, 0)],
)
def test_streamed_tokens(output, hidden, streamed):
    assert streamed_tokens(output, hidden) == streamed


@pytest.mark.parametrize(
    ("told", "output", "hidden", "streamed"),
    [
        pytest.param([3, 1, 1], 5, 0, [3, 1, 1], id="nothing-hidden"),
        pytest.param([845, 2, 3], 850, 843, [2, 2, 3], id="totals-with-the-hidden-ones"),
        pytest.param([845, 2, 2], 850, 843, [2, 2, 2], id="one-more-behind-the-last-event"),
        pytest.param([843, 4, 3], 850, 843, [0, 4, 3], id="all-of-the-first-hidden"),
        pytest.param([2, 2, 3], 850, 843, [2, 2, 3], id="totals-without-them"),
        pytest.param([5, 4, 1], 13, 3, [5, 4, 1], id="without-them-though-the-first-is-larger"),
        pytest.param([5, 4, 3], 12, 3, [2, 4, 3], id="with-them"),
        pytest.param([3, 844, 3], 850, 843, None, id="hidden-behind-the-first-event"),
        pytest.param([845, -1, -1], 850, 843, [2, -1, -1], id="told-of-the-first-alone"),
        pytest.param([845, -1, -1], 1700, 843, None, id="told-of-the-first-alone-of-many"),
        pytest.param([2, -1, -1], 850, 843, [2, -1, -1], id="too-few-to-hold-them"),
        pytest.param([-1, 845, 5], 850, 843, None, id="not-told-of-the-first"),
        pytest.param([9, 9], 12, 0, None, id="more-than-usage-says"),
        pytest.param([3, 1], 4, None, None, id="hidden-unknown"),
        pytest.param([3, 1], None, 0, [3, 1], id="no-usage"),
        pytest.param([], None, 0, [], id="no-event"),
    ],
)
def test_streamed_per_event(told, output, hidden, streamed):
    assert streamed_per_event(told, output_tokens=output, hidden=hidden) == streamed


@pytest.mark.parametrize(
    ("told", "streamed", "after"),
    [
        pytest.param([18, 7, 13], 44, 6, id="a-tool-call's-end"),
        pytest.param([1, 1, 1], 3, 0, id="none"),
        pytest.param([1, None, 2], 5, 2, id="told-of-the-last"),
        pytest.param([1, 2, None], 9, 0, id="not-told-of-the-last"),
        pytest.param([None, None], 9, 0, id="told-of-none"),
        pytest.param([1, 0, 0], 9, 0, id="totals-that-stand-still"),
        pytest.param([5], 9, 4, id="one-event"),
        pytest.param([], 9, 0, id="no-event"),
        pytest.param([1, 2], None, 0, id="no-usage"),
        pytest.param([4, 4], 5, 0, id="more-than-usage-says"),
    ],
)
def test_tokens_after_the_last_output_event(told, streamed, after):
    assert tokens_after_last(told, streamed=streamed) == after


@pytest.mark.parametrize(
    ("span", "streamed", "first", "tpot"),
    [
        pytest.param(120, 9, 1, 15.0, id="plain"),
        pytest.param(120, 9, None, 15.0, id="first-event-untold"),
        pytest.param(120, 9, 0, 120 / 9, id="all-of-the-first-hidden"),
        pytest.param(120, 9, 5, 30.0, id="first-event-of-five"),
        pytest.param(0, 9, 1, 0.0, id="all-in-one-read"),
        pytest.param(None, 9, 1, None, id="one-event"),
        pytest.param(120, None, 1, None, id="count-unknown"),
        pytest.param(120, 1, 1, None, id="no-token-after-the-first"),
        pytest.param(120, 0, 1, None, id="fewer-than-first"),
    ],
)
def test_tpot(span, streamed, first, tpot):
    assert tpot_ns(span, streamed=streamed, first=first) == tpot
