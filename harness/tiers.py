"""What service tiers mean: which is faster, which leaves the choice to the server, what vendors say of speed.

Data: `harness/data/tiers.toml`. A tier goes under any of its names (`prices.tier_name`).
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from harness.prices import STANDARD, tier_name


@dataclass(frozen=True, slots=True)
class Speed:
    """What a vendor says of a tier's speed, output tokens a second of one stream."""

    tokens_per_s: float
    source: str


def same_tier(one: str, other: str) -> bool:
    """Tell whether two names mean one tier: `fast` and `priority`, `default` and `standard`."""
    return tier_name(one) == tier_name(other)


def any_will_do(tier: str) -> bool:
    """Tell whether who asks for this tier leaves the choice to the server."""
    return tier.lower() in _file()["any"]


def says_a_tier(served: str | None) -> bool:
    """Tell whether what a server names is a tier: some only repeat the `auto` that they were asked for."""
    return served is not None and not any_will_do(served)


def faster(one: str, other: str) -> bool | None:
    """Tell whether a tier is sold as faster than another; None where the order is not known."""
    order: Sequence[str] = _file()["order"]
    names = [tier_name(one), tier_name(other)]
    if any(name not in order for name in names):
        return None
    return order.index(names[0]) > order.index(names[1])


def sold_for_speed(tier: str) -> bool:
    """Tell whether a tier is sold as faster than the standard one, as far as is known."""
    return not same_tier(tier, STANDARD) and faster(tier, STANDARD) is not False


def published_speed(model: str, tier: str) -> Speed | None:
    """Look up what a vendor says; None where it says nothing that is known here."""
    row = _file()["speeds"].get(model, {}).get(tier_name(tier))
    return None if row is None else Speed(row["tokens_per_s"], row["source"])


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(resources.files("harness").joinpath("data", "tiers.toml").read_text("utf-8"))
