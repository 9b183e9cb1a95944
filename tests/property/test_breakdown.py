"""Shares of a task's time sum to 1 whatever its graph is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measure.breakdown import PARTS, breakdown, call_piece, waiting
from tests.making import a_call

NS = st.integers(0, 10_000)


@st.composite
def attempts_until(draw, sent_ns):
    """No attempts listed, or several that end with the one sent at `sent_ns`, each after a wait."""
    found = []
    at = sent_ns
    for _ in range(draw(st.sampled_from([0, 2, 3]))):
        wait = draw(NS)
        found.insert(0, {"sent_ns": at, "done_ns": at, "limit_wait_ns": wait})
        at -= wait + draw(NS)
    return found


@st.composite
def pieces(draw):
    """A graph as its pieces on the clock: sequences, forks and joins, gaps and overlaps of any kind."""
    found = []
    for _ in range(draw(st.integers(0, 12))):
        start, length = draw(NS), draw(NS)
        if draw(st.booleans()):
            found.append(waiting(draw(st.sampled_from(["tool", "agent", "human"])), start, start + length))
            continue
        first, last, done = (start + offset for offset in sorted(draw(st.tuples(NS, NS, NS))))
        attempts = draw(attempts_until(start))
        waits = [one["limit_wait_ns"] for one in attempts] or [draw(NS)]
        call = a_call(
            sent_ns=start,
            first_output_ns=first,
            last_output_ns=last,
            done_ns=done,
            network_ns=draw(NS),
            server_timing=draw(st.none() | st.floats(0, 1e-5).map(lambda seconds: {"queue_s": seconds})),
            attempts=attempts,
            limit_wait_ns=sum(waits),
            hidden_tokens=draw(st.integers(0, 50)),
            output_tokens=draw(st.integers(0, 100)),
        )
        found.append(call_piece(call))
    return found


@given(pieces(), NS, NS)
def test_shares_sum_to_one_and_none_is_negative(graph, scheduled, length):
    found = breakdown(graph, scheduled_ns=scheduled, ended_ns=scheduled + length)
    assert tuple(found) == PARTS
    assert sum(found.values()) == pytest.approx(1)
    assert min(found.values()) >= 0


@given(pieces(), st.randoms(use_true_random=False), NS)
def test_the_order_in_which_pieces_are_told_does_not_matter(graph, dice, length):
    other = list(graph)
    dice.shuffle(other)
    assert breakdown(graph, scheduled_ns=0, ended_ns=length) == pytest.approx(
        breakdown(other, scheduled_ns=0, ended_ns=length)
    )


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=5))
def test_parallel_branches_count_by_the_longest(lengths):
    graph = [waiting("tool", 0, length) for length in lengths]
    found = breakdown(graph, scheduled_ns=0, ended_ns=max(lengths) + 10)
    assert found["tool"] == pytest.approx(max(lengths) / (max(lengths) + 10))
