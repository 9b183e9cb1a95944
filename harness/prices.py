"""What backends charge: the forms of a price, and the list of `harness/data/prices.toml`.

Three forms: by the token, by the second of inference, by the hour that endpoints are up. A scenario
writes them as plain tables:

    {input = 2, cached = 0.2, output = 10}
    {tiers = {default = {input = 2, cached = 0.2, output = 10}, ultrafast = {...}}}
    {usd_per_inference_second = 0.002}
    {usd_per_endpoint_hour = 48, endpoints = 2}
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Annotated, Any

from pydantic import BaseModel, Discriminator, Field, Tag, field_validator

from harness.tables import SAY, TABLE

STANDARD = "standard"
"""The tier of a call for which neither side named one."""

EVERY = "*"
"""Key in `Prices` of what holds for every tier that has no price of its own."""

Usd = Annotated[float, Field(ge=0)]


class TokenPrice(BaseModel):
    """USD per 1M tokens; `cached` is for input tokens read from the cache."""

    model_config = TABLE

    input: Usd
    cached: Usd
    output: Usd


class TierPrices(BaseModel):
    """Token prices by tier, each under its own name or one that means the same (`default`, `standard`)."""

    model_config = TABLE

    tiers: dict[str, TokenPrice]

    @field_validator("tiers")
    @classmethod
    def _once_each(cls, tiers: dict[str, TokenPrice]) -> dict[str, TokenPrice]:
        if not tiers:
            raise ValueError("there is none; want tiers = { NAME = { input, cached, output } }")
        first: dict[str, str] = {}
        for name in tiers:
            same = first.setdefault(tier_name(name), name)
            if same != name:
                raise ValueError(f'"{same}" and "{name}" are the same tier; want one of them')
        return tiers


class InferencePrice(BaseModel):
    """USD per second that a call keeps the machine busy, from sent to done."""

    model_config = TABLE

    usd_per_inference_second: Usd


class EndpointPrice(BaseModel):
    """USD per hour that an endpoint is up, whatever it does."""

    model_config = TABLE

    usd_per_endpoint_hour: Usd
    endpoints: int = Field(1, ge=1)


_FORMS = {
    "input": TokenPrice,
    "cached": TokenPrice,
    "output": TokenPrice,
    "tiers": TierPrices,
    "usd_per_inference_second": InferencePrice,
    "usd_per_endpoint_hour": EndpointPrice,
}


def _form(table: object) -> str | None:
    """Tell which form a table has; the tag's brackets keep it apart from the file's keys."""
    if isinstance(table, dict):
        forms = {form.__name__ for key, form in _FORMS.items() if key in table}
    else:
        forms = {type(table).__name__}
    return f"<{forms.pop()}>" if len(forms) == 1 else None


Price = Annotated[
    Annotated[TokenPrice, Tag("<TokenPrice>")]
    | Annotated[TierPrices, Tag("<TierPrices>")]
    | Annotated[InferencePrice, Tag("<InferencePrice>")]
    | Annotated[EndpointPrice, Tag("<EndpointPrice>")],
    Discriminator(
        _form,
        custom_error_type=SAY,
        custom_error_message=(
            "want a table with input, cached and output, or with exactly one of tiers,"
            " usd_per_inference_second, usd_per_endpoint_hour"
        ),
    ),
]
"""Field type of a scenario's price."""


class Mark(StrEnum):
    """How far a price can be trusted: listed by the vendor, listed by nobody, or the scenario's own."""

    PUBLISHED = "published"
    ASSUMED = "assumed"
    OWN = "own"


@dataclass(frozen=True, slots=True)
class PriceEntry:
    """A price and where it is from; `date` (ISO) is when it was read, None for the scenario's own."""

    price: TokenPrice | InferencePrice | EndpointPrice
    mark: Mark
    source: str
    date: str | None


Prices = Mapping[str, PriceEntry]
"""What one backend charges: tier, under every name it has, -> entry; `EVERY` holds for all others."""


def price_of(model: str, tier: str | None) -> PriceEntry | None:
    """Look up the list; None where it has no price, which is never the same as a price of 0.

    model: as the list spells it (`gpt-5.6-sol`, `groq/openai/gpt-oss-20b`); tier: any name of it.
    """
    return price_list().get(model, {}).get(tier_name(tier))


def prices_of(model: str, own: Price | None = None) -> Prices:
    """Resolve what a backend charges: the scenario's own price, else the list's for its model.

    An own price for some tiers leaves the others without one: a list is not mixed in.
    """
    if own is None:
        found = price_list().get(model, {})
    elif isinstance(own, TierPrices):
        found = {tier_name(name): _own(price) for name, price in own.tiers.items()}
    else:
        return {EVERY: _own(own)}
    also = {alias: found[name] for alias, name in _aliases().items() if name in found}
    return {**also, **found}


def entry_at(prices: Prices, tier: str | None) -> PriceEntry | None:
    """Give what holds at a tier; a tier that nobody named is the standard one."""
    return prices.get((tier or STANDARD).lower(), prices.get(EVERY))


def tier_name(tier: str | None) -> str:
    """Give the list's name of a tier as a vendor writes it; one that it does not know stays as it is."""
    name = (tier or STANDARD).lower()
    return _aliases().get(name, name)


@cache
def price_list() -> Mapping[str, Mapping[str, PriceEntry]]:
    """All of the list: model -> tier -> entry."""
    sources = _file()["sources"]
    return {
        model: {tier: _listed(row, sources[row["source"]]) for tier, row in tiers.items()}
        for model, tiers in _file()["models"].items()
    }


def _listed(row: Mapping[str, Any], source: Mapping[str, str]) -> PriceEntry:
    price = TokenPrice(input=row["input"], cached=row.get("cached", row["input"]), output=row["output"])
    return PriceEntry(price, Mark(source["mark"]), source["text"], source["date"])


def _own(price: TokenPrice | InferencePrice | EndpointPrice) -> PriceEntry:
    return PriceEntry(price, Mark.OWN, "the scenario", None)


def _aliases() -> Mapping[str, str]:
    aliases: Mapping[str, str] = _file()["tiers"]
    return aliases


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(resources.files("harness").joinpath("data", "prices.toml").read_text("utf-8"))
