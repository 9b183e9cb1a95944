"""Prefixes are found by whole messages, age when unused and make room, longest first."""

import pytest

from harness.simulator.prefix_cache import Prefix, PrefixCache

SECOND = 1_000_000_000
PROMPT = (Prefix(1, 1500), Prefix(2, 2000), Prefix(3, 4000))


@pytest.mark.parametrize(
    ("stored", "asked", "cached"),
    [
        pytest.param((), PROMPT, 0, id="nothing held"),
        pytest.param(PROMPT, PROMPT, 4000, id="whole prompt"),
        pytest.param(PROMPT[:2], PROMPT, 2000, id="prompt that grew"),
        pytest.param(PROMPT, (PROMPT[0], Prefix(9, 2000)), 1500, id="other second message"),
        pytest.param(PROMPT, (Prefix(9, 1500), *PROMPT[1:]), 0, id="other first message"),
        pytest.param((Prefix(1, 1023),), (Prefix(1, 1023),), 0, id="below the minimum"),
        pytest.param((Prefix(1, 1024),), (Prefix(1, 1024),), 1024, id="at the minimum"),
    ],
)
def test_lookup(stored, asked, cached):
    cache = PrefixCache()
    cache.store(stored, 0)
    assert cache.lookup(asked, SECOND) == cached


def test_idle_prefixes_are_forgotten_and_used_ones_stay():
    cache = PrefixCache(idle_ns=300 * SECOND)
    cache.store(PROMPT, 0)
    assert cache.lookup(PROMPT[:1], 300 * SECOND) == 1500
    assert cache.lookup(PROMPT, 301 * SECOND) == 1500  # the longer ones were last used at 0
    assert cache.lookup(PROMPT, 602 * SECOND) == 0


def test_the_longest_unused_prefix_makes_room_for_a_new_one():
    cache = PrefixCache(capacity_tokens=5000)
    cache.store(PROMPT, 0)
    cache.store((Prefix(7, 2000),), 1)
    assert cache.lookup(PROMPT, 2) == 2000
    assert cache.lookup((Prefix(7, 2000),), 2) == 2000
