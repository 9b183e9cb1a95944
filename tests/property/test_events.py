"""Whatever a decoder measured: the bounds that its records give back contain the measured ones."""

from array import array

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.measure.events import event_bounds
from harness.measure.timeline import CallFacts, records_of
from harness.records import Phase
from harness.values import Answer
from harness.wire.bounds import Bounds
from tests.making import a_timeline

reads = st.lists(
    st.tuples(
        st.integers(1, 5_000_000),  # ns since the read before
        st.lists(st.integers(0, 3), min_size=1, max_size=3),  # events of each piece
        st.booleans(),  # the last of them ends the read
    ),
    max_size=12,
)


def facts(origin_ns):
    return CallFacts(
        call_id="c",
        task_id="t",
        k=0,
        backend="b",
        workload="w",
        phase=Phase.MEASURE,
        turn=1,
        dialect="openai-chat",
        transport="keep-alive",
        scheduled_ns=origin_ns,
        tier_asked=None,
        output_asked=1,
        output_control="max_tokens",
        origin_ns=origin_ns,
    )


def measured(reads, *, start_ns):
    """Fill a decoder's arrays, read by read; some complete no output event."""
    bounds, now = Bounds(), start_ns
    for wait, pieces, ends in reads:
        now += wait
        for count in pieces:
            bounds.piece(now)
            for _ in range(count):
                bounds.output(0)
            bounds.ends_read = ends and count > 0
    bounds.close()
    return bounds


@settings(deadline=None)
@given(reads=reads, origin_ns=st.integers(0, 10**15), sent_after=st.integers(0, 10_000))
def test_records_give_back_bounds_that_contain_the_measured_ones(reads, origin_ns, sent_after):
    sent_ns = origin_ns + sent_after
    bounds = measured(reads, start_ns=sent_ns)
    answer = Answer(
        high_ns=bounds.high_ns, low_ns=bounds.low_ns, kinds=bounds.kinds, tokens=array("q", bounds.tokens())
    )
    call, events = records_of(a_timeline(answer, sent_ns=sent_ns), facts(origin_ns), cut=False)
    low, high = event_bounds(call, events)
    was_low = np.maximum(np.array(bounds.low_ns, dtype=np.int64), sent_ns) - origin_ns
    was_high = np.array(bounds.high_ns, dtype=np.int64) - origin_ns
    assert len(low) == len(high) == len(was_high)
    assert (low <= was_low).all()
    assert (was_high <= high).all()
    assert (high - was_high <= 1000).all()
    assert ((high - low)[was_low == was_high] == 1000).all()
