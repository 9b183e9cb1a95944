"""Runs against simulated backends that serve another tier than asked for: echo, speed, money, findings."""

import itertools
import json
from collections import Counter

import pytest

from harness.prices import price_of
from tests.integration.running import ULTRAFAST, late, run_once, scenario, simulated

STANDARD = "gpt-5.6-sol-standard"
# 3 calls a task, each of 84 tokens, 50 of them streamed: enough for a speed, 1.6 s on the slow tier
WORKLOAD = """
[[workloads]]
kind = "agent"
preset = "demo"
output_tokens = { value = 700 }
calls = { value = 15 }
tool_s_max = 0.02
agent_s = { value = 0.05 }
"""
LOAD = 'kind = "closed"\nusers = 8\ntasks = 24\n'
TOTALS = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}


def asking(**behaviour):
    return simulated(ULTRAFAST, service_tier="ultrafast", extra_body=TOTALS, behaviour=behaviour)


def ran(folder, backend, **others):
    path = scenario(folder, {"b": backend, **others}, load=LOAD, workload=WORKLOAD)
    _, out = run_once(folder / "out", path, "--quiet")
    return out, out.json("summary")["backends"]["b"]["workloads"]["demo"]


def usd(call):
    """What a call costs at the tier that served it, by the list."""
    price = price_of("gpt-5.6-sol", call["tier_served"]).price
    fresh = call["input_tokens"] - call["cached_tokens"]
    return (
        fresh * price.input + call["cached_tokens"] * price.cached + call["output_tokens"] * price.output
    ) / 1e6


@pytest.fixture(scope="module")
def downgraded(tmp_path_factory):
    """A run in which a third of the calls fell back to the standard tier, which says so."""
    folder = tmp_path_factory.mktemp("downgraded")
    return ran(folder, asking(fallback=STANDARD, fallback_share=0.34))


def test_asked_and_echoed(downgraded):
    out, told = downgraded
    calls = out.lines("calls")
    served = Counter(call["tier_served"] for call in calls)
    assert {call["tier_asked"] for call in calls} == {"ultrafast"}
    assert set(served) == {"ultrafast", "default"}
    assert 0.1 < served["default"] / len(calls) < 0.6
    assert (told["tier"]["asked"], told["tier"]["served"]) == ("ultrafast", dict(served))


def test_measured(downgraded):
    out, told = downgraded
    measured = told["tier"]["measured"]
    assert measured["ultrafast"]["value"] > 3 * measured["default"]["value"] or late(out)


def test_money_follows_the_tier_that_served(downgraded):
    out, told = downgraded
    calls = out.lines("calls")
    assert told["cost"]["total_usd"]["value"] == pytest.approx(sum(map(usd, calls)))
    for task in out.tasks():
        own = [call for call in calls if call["task_id"] == task["task_id"]]
        assert task["cost_usd"] == pytest.approx(sum(map(usd, own)))


def test_findings_of_a_silent_downgrade(downgraded):
    out, told = downgraded
    found, served = out.findings(), told["tier"]["served"]
    calls = sum(served.values())
    assert found["tier_downgraded"] == (
        f"asked for tier ultrafast, served by default in {served['default']} of {calls} calls"
    )
    own = {}
    for call in sorted(out.lines("calls"), key=lambda one: one["sent_ns"]):
        own.setdefault(call["task_id"], []).append(call["tier_served"])
    changes = sum(a != b for tiers in own.values() for a, b in itertools.pairwise(tiers))
    assert found["tier_changed"].startswith(f"the tier changed {changes} times")
    assert found.keys().isdisjoint({"tier_contradicted", "tier_upgraded", "tier_unknown"})


def test_a_backend_that_says_one_tier_and_is_another_is_contradicted_by_its_speed(tmp_path):
    out, told = ran(tmp_path, asking(fallback=STANDARD, fallback_share=0.34, fallback_echo="asked"))
    found = out.findings()
    assert set(told["tier"]["served"]) == {"ultrafast"}
    assert found.keys().isdisjoint({"tier_downgraded", "tier_changed", "tier_unknown"})
    assert "others of the same name decode at" in found["tier_contradicted"]


def test_one_that_never_is_what_it_says_is_contradicted_by_the_lower_tier_and_an_honest_one_is_not(tmp_path):
    lying = asking(fallback=STANDARD, fallback_echo="asked")
    out, _ = ran(tmp_path, lying, standard=simulated(STANDARD, extra_body=TOTALS), honest=asking())
    [found] = [one for one in out.json("summary")["findings"] if one["name"].startswith("tier_")]
    assert (found["name"], found["backend"]) == ("tier_contradicted", "b")
    assert "standard's default decodes at" in found["detail"]


def test_limits_of_a_simulated_backend_are_told_and_retries_stay_in_the_books(tmp_path):
    backend = asking(tokens_per_min=100_000) | {"retry": "sdk"}
    out, told = ran(tmp_path, backend)
    calls = out.lines("calls")
    resent = [call for call in calls if call["attempts"]]
    assert resent
    for call in resent:
        assert {one["status"] for one in call["attempts"][:-1]} == {429}
        assert call["sent_ns"] == call["attempts"][-1]["sent_ns"]
    assert all(call["limits_told"]["limit-tokens"] == 100_000 for call in calls)
    assert told["breakdown"]["retry"] > 0
    assert sum(told["breakdown"].values()) == pytest.approx(1)
    assert told["cost"]["total_usd"]["value"] == pytest.approx(
        sum(usd(call) for call in calls if call["outcome"] == "ok")
    )
    refused = sum(call["status"] == 429 for call in calls)
    assert f"of which {refused} failed by it" in out.findings()["throttled"]
    assert len(json.dumps(resent[0]["attempts"])) < 1000
