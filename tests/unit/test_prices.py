"""The list of prices, how tiers find theirs in it, and what a scenario's own price does to it."""

import re
import tomllib
from pathlib import Path

import orjson
import pytest

from harness import prices
from harness.prices import (
    EVERY,
    EndpointPrice,
    InferencePrice,
    Mark,
    TierPrices,
    TokenPrice,
    entry_at,
    price_list,
    price_of,
    prices_of,
)
from tests.scenario_text import changed, parsed

FACTS = orjson.loads((Path(__file__).parents[1] / "data" / "price_facts.json").read_bytes())["prices"]
ALL = [
    pytest.param(model, tier, id=f"{model} {tier}") for model, tiers in price_list().items() for tier in tiers
]
FAST = 'simulate = "gpt-5.6-sol-ultrafast"'
DEAR = TokenPrice(input=1, cached=1, output=1)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: f"{fact['model']} {fact['tier']}")
def test_prices_are_those_of_the_source(fact):
    entry = price_of(fact["model"], fact["tier"])
    assert [entry.price.input, entry.price.cached, entry.price.output] == fact["usd"]
    assert entry.mark is Mark.PUBLISHED


@pytest.mark.parametrize(("model", "tier"), ALL)
def test_every_price_says_where_it_is_from(model, tier):
    entry = price_of(model, tier)
    assert entry.source
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", entry.date)
    assert entry.mark in (Mark.PUBLISHED, Mark.ASSUMED)
    assert 0 < entry.price.cached <= entry.price.input <= entry.price.output


def test_keys_of_the_list_are_known_ones():
    text = (Path(prices.__file__).parent / "data" / "prices.toml").read_text()
    rows = [row for tiers in tomllib.loads(text)["models"].values() for row in tiers.values()]
    assert {key for row in rows for key in row} == {"input", "cached", "cache_write", "output", "source"}


def test_one_price_is_assumed_and_says_so():
    assumed = [
        (model, tier)
        for model, tiers in price_list().items()
        for tier, entry in tiers.items()
        if entry.mark is Mark.ASSUMED
    ]
    assert assumed == [("gpt-5.6-sol", "ultrafast")]
    entry, standard = price_of("gpt-5.6-sol", "ultrafast"), price_of("gpt-5.6-sol", "standard")
    for kind in ("input", "cached", "output"):
        assert getattr(entry.price, kind) == pytest.approx(6 * getattr(standard.price, kind))
    assert "not published" in entry.source
    assert "6x standard" in entry.source


@pytest.mark.parametrize(
    ("model", "tier"),
    [
        pytest.param("gpt-oss-120b", None, id="a model that many sell"),
        pytest.param("gpt-5.6-terra", "ultrafast", id="a tier that the model lacks"),
        pytest.param("groq/openai/gpt-oss-120b", "performance", id="a tier without a listed price"),
    ],
)
def test_what_is_not_listed_has_no_price(model, tier):
    assert price_of(model, tier) is None
    assert entry_at(prices_of(model), tier) is None


@pytest.mark.parametrize("tier", ["standard", "default", "AUTO", "on_demand", None])
def test_names_of_the_standard_tier(tier):
    found = entry_at(prices_of("gpt-5.6-sol"), tier)
    assert found == price_of("gpt-5.6-sol", tier) == price_of("gpt-5.6-sol", "standard")


def test_an_own_price_goes_before_the_list():
    found = prices_of("gpt-5.6-sol", DEAR)
    assert [entry_at(found, tier).price for tier in ("ultrafast", "turbo", None)] == [DEAR] * 3
    assert found[EVERY].mark is Mark.OWN


def test_own_prices_by_tier_leave_the_others_without_one():
    found = prices_of("gpt-5.6-sol", TierPrices(tiers={"priority": DEAR, "Turbo": DEAR}))
    assert [entry_at(found, tier) is not None for tier in ("fast", "priority", "turbo")] == [True] * 3
    assert entry_at(found, "standard") is None
    assert entry_at(found, "ultrafast") is None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param("{input = 1, cached = 1, output = 1}", DEAR, id="tokens"),
        pytest.param(
            "{tiers = {default = {input = 1, cached = 1, output = 1}}}",
            TierPrices(tiers={"default": DEAR}),
            id="tiers",
        ),
        pytest.param(
            "{usd_per_inference_second = 0.5}", InferencePrice(usd_per_inference_second=0.5), id="seconds"
        ),
        pytest.param(
            "{usd_per_endpoint_hour = 48}", EndpointPrice(usd_per_endpoint_hour=48, endpoints=1), id="hours"
        ),
        pytest.param(
            "{usd_per_endpoint_hour = 48, endpoints = 2}",
            EndpointPrice(usd_per_endpoint_hour=48, endpoints=2),
            id="hours of two",
        ),
    ],
)
def test_forms_in_a_scenario(lines, expected):
    scenario = parsed(changed(FAST, f"{FAST}\nprice = {lines}"))
    assert scenario.backends["fast"].price == expected
    written = scenario.model_dump(mode="json")["backends"]["fast"]["price"]
    assert type(expected).model_validate(written) == expected
