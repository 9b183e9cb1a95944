"""The tier asked for, the one named, the speed measured: what is a finding, and what load alone can do."""

from dataclasses import replace

import numpy as np
import pytest

from harness.measure.calls import calls_of
from harness.measure.charge import calls_usd
from harness.measure.tier import Serving, tier_findings
from harness.prices import prices_of
from harness.results import FindingName
from harness.tiers import any_will_do, faster, published_speed, same_tier, sold_for_speed
from tests.making import S, a_call

DOWN, UP = FindingName.TIER_DOWNGRADED, FindingName.TIER_UPGRADED
CHANGED, CONTRADICTED = FindingName.TIER_CHANGED, FindingName.TIER_CONTRADICTED
UNKNOWN = FindingName.TIER_UNKNOWN


def call(at_s, tokens_per_s, *, tokens=201, task="b/w/0", served="ultrafast", **said):
    """A call whose first output comes at `at_s` and whose `tokens` come at that speed."""
    first = round(at_s * S)
    last = first + round((tokens - 1) / tokens_per_s * S)
    marks = {"first_output_ns": first, "first_answer_ns": first, "last_output_ns": last, "done_ns": last}
    values = {"task_id": task, "tier_asked": "ultrafast", "tier_served": served, "output_tokens": tokens}
    return a_call(sent_ns=first - S // 2, streamed_events=tokens, **marks, **values, **said)


def side(calls, *, asked="ultrafast", backend="b", model="m"):
    return Serving(backend, "w", model, "openai-chat", asked, calls_of(calls))


def findings(calls, *others, **said):
    return {found.name: found.detail for found in tier_findings(side(calls, **said), others)}


# --- what the names mean -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [("fast", "priority"), ("default", "standard"), ("Auto", "default"), ("on_demand", "standard_only")],
)
def test_names_of_one_tier(one, other):
    assert same_tier(one, other)


def test_tiers_have_an_order_as_far_as_they_are_known():
    assert faster("ultrafast", "priority") is True
    assert faster("flex", "default") is False
    assert faster("performance", "default") is None
    assert [sold_for_speed(t) for t in ("ultrafast", "priority", "default", "auto", "flex")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert any_will_do("auto")
    assert not any_will_do("default")
    assert published_speed("gpt-5.6-sol", "ultrafast").tokens_per_s == 750
    assert published_speed("gpt-5.6-sol", "priority").tokens_per_s == 80
    assert published_speed("nobody's", "ultrafast") is None


# --- asked and named -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "served", "names"),
    [
        ("ultrafast", ["ultrafast"] * 3, set()),
        ("ultrafast", ["ultrafast", "default", "default"], {DOWN}),
        ("ultrafast", ["priority"] * 3, {DOWN}),
        ("fast", ["priority"] * 3, set()),
        ("default", ["standard"] * 3, set()),
        ("default", ["priority"] * 3, {UP}),
        ("flex", ["default"] * 3, {UP}),
        ("auto", ["priority"] * 3, set()),
        ("performance", ["on_demand"] * 3, {DOWN}),  # of an order that is not known: not what was asked for
        ("ultrafast", [None, "ultrafast", "ultrafast"], {UNKNOWN}),
        ("ultrafast", ["auto", "ultrafast", "ultrafast"], {UNKNOWN}),  # repeats a word, names no tier
        (None, ["priority", None, "default"], set()),
    ],
)
def test_what_was_asked_for_against_what_is_named(asked, served, names):
    calls = [call(i, 100, served=tier, task=f"b/w/{i}") for i, tier in enumerate(served)]
    assert set(findings(calls, asked=asked)) == names


def test_a_silent_downgrade_is_told_in_numbers():
    served = ["ultrafast"] * 23 + ["default"] * 7
    calls = [call(i, 100, served=tier, task=f"b/w/{i}") for i, tier in enumerate(served)]
    assert findings(calls)[DOWN] == "asked for tier ultrafast, served by default in 7 of 30 calls"


def test_money_follows_the_tier_that_served():
    prices = prices_of("gpt-5.6-sol")
    calls = [call(0, 100, served=tier, input_tokens=0, cached_tokens=0) for tier in ("ultrafast", "default")]
    assert calls_usd(calls_of(calls), prices).tolist() == pytest.approx([201 * 120e-6, 201 * 20e-6])


def test_a_change_within_a_task_is_told_with_what_it_did_to_the_cache():
    calls = [
        call(1, 100, task="b/w/0", input_tokens=1000, cached_tokens=0),
        call(20, 100, task="b/w/0", input_tokens=1000, cached_tokens=900),
        call(40, 100, task="b/w/0", input_tokens=1000, cached_tokens=100, served="default"),
        call(60, 100, task="b/w/0", input_tokens=1000, cached_tokens=700, served="standard"),  # the same
        call(1, 100, task="b/w/1", input_tokens=1000, cached_tokens=0),
    ]
    detail = findings(calls)[CHANGED]
    assert detail.startswith("the tier changed 1 times from one call of a task to its next, in 1 of 2 tasks")
    assert detail.endswith("then 10% of the prompt came from the cache, else 80%")


def test_a_change_between_tasks_is_none():
    calls = [call(1, 100, task="b/w/0"), call(9, 100, task="b/w/1", served="default")]
    assert CHANGED not in findings(calls)


# --- named and measured --------------------------------------------------------------------------


def test_two_speeds_at_once_under_one_name_contradict_it():
    fast = [call(i, 700 + i, tokens=2001) for i in range(20)]
    slow = [call(i, 54 + i / 10, tokens=301) for i in range(0, 20, 4)]
    detail = findings(fast + slow)[CONTRADICTED]
    assert detail.startswith("5 of 25 calls named ultrafast decode at 55 tokens/s p50, while others")
    assert "710 tokens/s" in detail


def test_two_speeds_by_turns_contradict_it_where_calls_come_one_after_the_other():
    calls = [call(10 * i, 54 if i % 3 == 1 else 750) for i in range(30)]
    assert CONTRADICTED in findings(calls)


def test_a_name_told_honestly_is_no_contradiction():
    calls = [
        call(i, 54 if i % 3 else 750, served="default" if i % 3 else "ultrafast", task=f"b/w/{i}")
        for i in range(30)
    ]
    assert set(findings(calls)) == {DOWN}


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param(
            [call(i, 490 if i < 10 else 150) for i in range(60)], id="load came: the slow ones are later"
        ),
        pytest.param(
            [call(i / 10, speed) for i, speed in enumerate(np.geomspace(60, 600, 60))],
            id="speeds spread without a gap",
        ),
        pytest.param([call(i, 54 if i == 7 else 750) for i in range(30)], id="one slow call"),
        pytest.param(
            [call(i / 10, 54 if i % 3 == 0 else 750, tokens=20) for i in range(30)],
            id="too short for a speed",
        ),
        pytest.param(
            [call(i / 100, 5000 if i % 3 else 2000, tokens=40) for i in range(30)], id="a few ms lost"
        ),
        pytest.param([call(i / 10, 54 if i % 2 else 750) for i in range(4)], id="too few"),
    ],
)
def test_what_load_and_chance_can_do_is_no_contradiction(calls):
    assert CONTRADICTED not in findings(calls)


def test_a_standard_tier_promises_no_speed():
    calls = [call(i / 10, 54 if i % 3 else 750, served="default") for i in range(30)]
    assert CONTRADICTED not in findings(calls, asked="default")


def test_no_faster_than_a_lower_tier_of_the_same_model():
    calls = [call(i, 55) for i in range(20)]
    standard = side(
        [call(i, 54, served="default") for i in range(20)], asked=None, backend="standard", model="m"
    )
    assert "standard's default decodes at 54 tokens/s" in findings(calls, standard)[CONTRADICTED]
    other_model, other_words = replace(standard, model="other"), replace(standard, dialect="anthropic")
    assert CONTRADICTED not in findings(calls, other_model, other_words)
    assert CONTRADICTED in findings(calls, replace(standard, dialect="openai-responses"))
    assert CONTRADICTED not in findings([call(i, 135) for i in range(20)], standard)


def test_far_below_what_the_vendor_says():
    detail = findings([call(i, 54) for i in range(20)], model="gpt-5.6-sol")[CONTRADICTED]
    assert "decodes at 54 tokens/s; the vendor says 750" in detail
    loaded = [call(i, 54 if i % 5 else 700, task=f"b/w/{i}") for i in range(5)]  # its best calls are fast
    assert CONTRADICTED not in findings(loaded, model="gpt-5.6-sol")
    assert CONTRADICTED not in findings([call(i, 400) for i in range(20)], model="gpt-5.6-sol")
