"""Arrays of bounds, filled by hand: stamps of pieces, events, and reads that went on."""

import pytest

from harness.wire.bounds import Bounds

EVENT, NOTHING, MORE = "event", "nothing", "more"


@pytest.mark.parametrize(
    ("reads", "low", "high"),
    [
        pytest.param([(10, EVENT), (20, EVENT)], [10, 20], [10, 20], id="a read each"),
        pytest.param([(10, EVENT), (10, EVENT)], [0, 10], [10, 10], id="two pieces of one read"),
        pytest.param([(10, EVENT), (20, NOTHING), (30, EVENT)], [10, 30], [10, 30], id="a silent read"),
        pytest.param(
            [(10, EVENT), (20, NOTHING), (20, EVENT), (20, NOTHING)], [10, 10], [10, 20], id="within"
        ),
        pytest.param([(10, EVENT), (10, MORE), (20, EVENT)], [0, 20], [10, 20], id="a read that went on"),
        pytest.param(
            [(10, EVENT), (15, MORE), (20, EVENT)], [10, 20], [10, 20], id="a later read of no piece"
        ),
        pytest.param(
            [(10, EVENT), (15, MORE), (20, EVENT), (20, EVENT)], [10, 15, 20], [10, 20, 20], id="bounds"
        ),
        pytest.param([(10, EVENT), (10, MORE)], [0], [10], id="the last read went on"),
    ],
)
def test_bounds(reads, low, high):
    bounds = Bounds()
    for stamp, what in reads:
        if what == MORE:
            bounds.went_on(stamp)
            continue
        bounds.piece(stamp)
        if what == EVENT:
            bounds.output(0)
        bounds.ends_read = what == EVENT
    bounds.close()
    assert (list(bounds.low_ns), list(bounds.high_ns)) == (low, high)
