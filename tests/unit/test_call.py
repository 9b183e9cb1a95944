"""Formulas of one call, counted by hand."""

import pytest

from harness.measure.metrics.call import first_event_tokens, hidden_tokens, streamed_tokens, tpot_ns


@pytest.mark.parametrize(
    ("told", "raw", "summaries", "reasons", "hidden"),
    [
        pytest.param(None, False, False, False, 0, id="nothing-told"),
        pytest.param(0, False, False, True, 0, id="split-says-none"),
        pytest.param(100, False, False, False, 100, id="never-streamed"),
        pytest.param(100, True, False, False, 0, id="streamed"),
        pytest.param(None, True, False, True, 0, id="streamed-usage-silent"),
        pytest.param(100, False, True, False, None, id="only-summaries"),
        pytest.param(None, False, False, True, None, id="reasons-without-split"),
    ],
)
def test_hidden_tokens(told, raw, summaries, reasons, hidden):
    assert hidden_tokens(told, raw_reasoning=raw, summaries=summaries, reasons=reasons) == hidden


@pytest.mark.parametrize(
    ("output", "hidden", "streamed"),
    [(110, 100, 10), (5, 0, 5), (None, 0, None), (5, None, None), (5, 6, None), (5, 5, 0)],
)
def test_streamed_tokens(output, hidden, streamed):
    assert streamed_tokens(output, hidden) == streamed


@pytest.mark.parametrize(
    ("told", "hidden", "first"),
    [
        pytest.param(None, 0, 1, id="untold"),
        pytest.param(-1, 7, 1, id="untold-in-an-array"),
        pytest.param(3, 0, 3, id="told"),
        pytest.param(3, None, 3, id="hidden-unknown"),
        pytest.param(103, 100, 3, id="running-total-with-the-hidden-ones"),
        pytest.param(3, 100, 3, id="not-a-total"),
    ],
)
def test_first_event_tokens(told, hidden, first):
    assert first_event_tokens(told, hidden) == first


@pytest.mark.parametrize(
    ("span", "streamed", "first", "tpot"),
    [
        pytest.param(120, 9, 1, 15.0, id="plain"),
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
