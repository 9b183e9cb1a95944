"""Named distributions, written as plain tables so that presets and scenarios can hold them.

    {value = 0.41}
    {lognormal = {median = 86, sigma = 2.1}, max = 3600}
    {quantiles = {"0.05" = 89, "0.5" = 216, "0.95" = 1543}}
    {mixture = [{weight = 0.4, value = 1}, {weight = 0.6, lognormal = {median = 6.7, sigma = 1.15}, min = 2}]}
    {weights = {"1" = 0.93, "2" = 0.04, "3" = 0.03}}

Each has `sample(generator)`; `min` and `max` move what lies outside to the limit. The dice are the
caller's generator. `ends()` are the least and the greatest number that it gives; `bounded` makes a field
type of them. `Names` is for choices that are no numbers and has `pick(generator)`.
"""

from bisect import bisect_right
from functools import cached_property
from itertools import accumulate, pairwise
from math import exp, inf, isfinite, log
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import AfterValidator, BaseModel, Discriminator, Field, Tag, field_validator, model_validator

from harness.tables import SAY, TABLE

if TYPE_CHECKING:  # numpy is not needed to read a scenario
    from numpy.random import Generator


class Value(BaseModel):
    """Always the same number."""

    model_config = TABLE

    value: float

    def ends(self) -> tuple[float, float]:
        """Give the value twice."""
        return self.value, self.value

    def sample(self, generator: "Generator") -> float:  # noqa: ARG002 - one signature for all
        """Return the value; no dice are thrown."""
        return self.value


class MedianSigma(BaseModel):
    """Parameters of a lognormal: its median, and the standard deviation of the logarithm."""

    model_config = TABLE

    median: float = Field(gt=0)
    sigma: float = Field(ge=0)


class Lognormal(BaseModel):
    """exp of a normal, kept within `min` and `max`."""

    model_config = TABLE

    lognormal: MedianSigma
    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        _limits_in_order(self.min, self.max)
        return self

    def ends(self) -> tuple[float, float]:
        """Give the limits, or 0 and inf."""
        return _kept(0.0, self.min, self.max), _kept(inf, self.min, self.max)

    def sample(self, generator: "Generator") -> float:
        """Draw one number; inf where it is too large for a float."""
        power = min(_EXP_MAX, self.lognormal.sigma * generator.standard_normal())
        drawn = self.lognormal.median * exp(power)
        return _kept(drawn, self.min, self.max)


class Quantiles(BaseModel):
    """An inverse distribution function given by points, flat outside of them.

    Between two points it is straight in the logarithm of the value, or in the value itself where one
    of the two is not above zero.
    """

    model_config = TABLE

    quantiles: dict[str, float]
    min: float | None = None
    max: float | None = None

    @field_validator("quantiles")
    @classmethod
    def _rising(cls, points: dict[str, float]) -> dict[str, float]:
        shares = {key: _number(key) for key in points}
        wrong = [key for key, share in shares.items() if share is None or not 0 <= share <= 1]
        if wrong:
            raise ValueError(f'want shares from 0 to 1 as keys, such as "0.95"; got "{wrong[0]}"')
        if len(set(shares.values())) < max(2, len(points)):
            raise ValueError("want at least two points, each at a share of its own")
        ordered = sorted(points, key=lambda key: shares[key] or 0.0)
        for before, after in pairwise(ordered):
            if points[after] < points[before]:
                raise ValueError(f'want values that never fall; "{after}" is below "{before}"')
        return {key: points[key] for key in ordered}

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        _limits_in_order(self.min, self.max)
        return self

    @cached_property
    def _points(self) -> tuple[list[float], list[float]]:
        return [float(key) for key in self.quantiles], list(self.quantiles.values())

    def ends(self) -> tuple[float, float]:
        """Give the first and the last value, within the limits."""
        return self.quantile(0.0), self.quantile(1.0)

    def quantile(self, share: float) -> float:
        """Return the value below which `share` (0 to 1) of all draws lie."""
        shares, values = self._points
        above = bisect_right(shares, share)
        if above == 0 or above == len(shares):
            inside = values[0 if above == 0 else -1]
        else:
            low, high = values[above - 1], values[above]
            part = (share - shares[above - 1]) / (shares[above] - shares[above - 1])
            inside = exp(log(low) + (log(high) - log(low)) * part) if low > 0 else low + (high - low) * part
        return _kept(inside, self.min, self.max)

    def sample(self, generator: "Generator") -> float:
        """Draw one number."""
        return self.quantile(generator.random())


class Weights(BaseModel):
    """One of some numbers, each as often as its weight says; weights need not sum to one."""

    model_config = TABLE

    weights: dict[str, float]

    @field_validator("weights")
    @classmethod
    def _numbers(cls, weights: dict[str, float]) -> dict[str, float]:
        for key in weights:
            if _number(key) is None:
                raise ValueError(f'want numbers as keys; got "{key}"')
        return _some_weight(weights)

    @cached_property
    def _sums(self) -> tuple[list[float], list[float]]:
        return list(accumulate(self.weights.values())), [float(key) for key in self.weights]

    def ends(self) -> tuple[float, float]:
        """Give the least and the greatest number."""
        return min(self._sums[1]), max(self._sums[1])

    def sample(self, generator: "Generator") -> float:
        """Draw one of the numbers."""
        sums, numbers = self._sums
        return numbers[_drawn(sums, generator)]


class Names(BaseModel):
    """One of some names, each as often as its weight says; weights need not sum to one."""

    model_config = TABLE

    weights: dict[str, float]

    @field_validator("weights")
    @classmethod
    def _weighty(cls, weights: dict[str, float]) -> dict[str, float]:
        return _some_weight(weights)

    @cached_property
    def _sums(self) -> tuple[list[float], list[str]]:
        return list(accumulate(self.weights.values())), list(self.weights)

    def pick(self, generator: "Generator") -> str:
        """Draw one of the names."""
        sums, names = self._sums
        return names[_drawn(sums, generator)]


class Part(BaseModel):
    """One part of a mixture: in TOML its weight stands among the keys of its distribution."""

    model_config = TABLE

    weight: float = Field(gt=0)
    dist: "Distribution"

    @model_validator(mode="before")
    @classmethod
    def _unfold(cls, table: object) -> object:
        if not isinstance(table, dict):
            return table
        unfolded = {"dist": {key: value for key, value in table.items() if key != "weight"}}
        return unfolded | ({"weight": table["weight"]} if "weight" in table else {})


class Mixture(BaseModel):
    """First one of the parts is drawn by weight, then a number from it."""

    model_config = TABLE

    mixture: tuple[Part, ...] = Field(strict=False, min_length=1)
    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        _limits_in_order(self.min, self.max)
        return self

    @cached_property
    def _sums(self) -> list[float]:
        return list(accumulate(part.weight for part in self.mixture))

    def ends(self) -> tuple[float, float]:
        """Give the least and the greatest of the parts' ends, within the limits."""
        lows, highs = zip(*(part.dist.ends() for part in self.mixture), strict=True)
        return _kept(min(lows), self.min, self.max), _kept(max(highs), self.min, self.max)

    def sample(self, generator: "Generator") -> float:
        """Draw one number."""
        drawn = self.mixture[_drawn(self._sums, generator)].dist.sample(generator)
        return _kept(drawn, self.min, self.max)


_EXP_MAX = 709.0
"""exp of more is no float."""

_FORMS: dict[str, type[BaseModel]] = {
    "value": Value,
    "lognormal": Lognormal,
    "quantiles": Quantiles,
    "mixture": Mixture,
    "weights": Weights,
}


def _form(table: object) -> str | None:
    """Tell which distribution a table is; the tag's brackets keep it apart from the file's keys."""
    if isinstance(table, dict):
        forms = [form for form in _FORMS if form in table]
    else:
        forms = [form for form, model in _FORMS.items() if isinstance(table, model)]
    return f"<{forms[0]}>" if len(forms) == 1 else None


Distribution = Annotated[
    Annotated[Value, Tag("<value>")]
    | Annotated[Lognormal, Tag("<lognormal>")]
    | Annotated[Quantiles, Tag("<quantiles>")]
    | Annotated[Mixture, Tag("<mixture>")]
    | Annotated[Weights, Tag("<weights>")],
    Discriminator(
        _form,
        custom_error_type=SAY,
        custom_error_message=f"want a table with exactly one of {', '.join(_FORMS)}",
    ),
]
"""Field type of a parameter model: any of the numeric distributions, told apart by the key that is there."""

Part.model_rebuild()
Mixture.model_rebuild()


def bounded(greatest: float = inf) -> AfterValidator:
    """Keep values from 0 to `greatest`: `Annotated[Distribution, ...]` with it is a field type.

    A lognormal without `max` has no greatest value and is let pass: who draws from it keeps the bound.
    """

    def look(distribution: "Distribution") -> "Distribution":
        low, high = distribution.ends()
        if low < 0:
            raise ValueError(f"want no value below 0; this one gives {low:g}")
        if greatest < high < inf:
            raise ValueError(f"want no value above {greatest:,.10g}; this one gives {high:g}")
        return distribution

    return AfterValidator(look)


def _kept(drawn: float, low: float | None, high: float | None) -> float:
    if low is not None and drawn < low:
        return low
    return high if high is not None and drawn > high else drawn


def _limits_in_order(low: float | None, high: float | None) -> None:
    if low is not None and high is not None and low > high:
        raise ValueError(f"want min <= max, got {low:g} and {high:g}")


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


def _some_weight(weights: dict[str, float]) -> dict[str, float]:
    if any(weight < 0 for weight in weights.values()) or not sum(weights.values()) > 0:
        raise ValueError("want weights >= 0, at least one of them above 0")
    return weights


def _drawn(sums: list[float], generator: "Generator") -> int:
    """Index drawn from running sums of weights."""
    return min(bisect_right(sums, generator.random() * sums[-1]), len(sums) - 1)
