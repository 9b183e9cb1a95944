"""Objectives: what a scenario asks of a run, and the grammar they are written in.

    [quantile | within(T) | headline] op number[unit]        op: <= >=    units: ms s % x

The metric is the key that holds the text; in `[compare]` it is the first word of the text.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from harness.tables import no_such, shown

Op = Literal["<=", ">="]
Policy = Literal["point", "confident"]


@dataclass(frozen=True, slots=True)
class Objective:
    """One limit. `limit` is in `unit`: s, ms, tokens/s, USD, x, or "" for a plain number or a share.

    `statistic` is p50, p90, p95, p99 or within; "" where the metric is a single number. `within_s` is
    the T of `within(T)`, an int where it is whole. `text` names metric, statistic and limit.
    """

    metric: str
    statistic: str
    limit: float
    op: Op
    text: str
    unit: str
    within_s: float | None = None


@dataclass(frozen=True, slots=True)
class ObjectiveFor:
    """An objective and whom it is for; workload None: every workload that has the metric."""

    backend: str
    workload: str | None
    objective: Objective


@dataclass(frozen=True, slots=True)
class Objectives:
    """All that a scenario asks of a run. compared: limits on a candidate against the baseline.

    policy: `point`, the value decides; `confident`, the whole interval does.
    """

    held: tuple[ObjectiveFor, ...] = ()
    compared: tuple[ObjectiveFor, ...] = ()
    policy: Policy = "point"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A unit that limits are kept in, and the ones they may be written in, by what these are of it."""

    unit: str
    written: Mapping[str, Decimal]
    example: str


@dataclass(frozen=True, slots=True)
class Metric:
    """What may be asked of a metric: the statistics it has (none: it is a single number)."""

    quantity: Quantity
    statistics: tuple[str, ...] = ()

    @property
    def example(self) -> str:
        """A text that is right under this metric."""
        at_least = ">=" if self.quantity in (_SPEED, _PER_TOKEN) else "<="
        return " ".join([*self.statistics[:1], at_least, self.quantity.example])


_SECONDS = Quantity("s", {"s": Decimal(1), "ms": Decimal("0.001")}, "20s")
_MILLISECONDS = Quantity("ms", {"ms": Decimal(1), "s": Decimal(1000)}, "20ms")
_SHARE = Quantity("", {"": Decimal(1), "%": Decimal("0.01")}, "90%")
_SPEED = Quantity("tokens/s", {"": Decimal(1)}, "400")
_USD = Quantity("USD", {"": Decimal(1)}, "0.05")
_PER_TOKEN = Quantity("", {"": Decimal(1)}, "0.8")
_TIMES = Quantity("x", {"": Decimal(1), "x": Decimal(1)}, "1.5x")

_WITHIN = "within(T)"
_QUANTILES = ("p50", "p90", "p95", "p99")

METRICS: Mapping[str, Metric] = {
    "task_time": Metric(_SECONDS, (*_QUANTILES, _WITHIN)),
    "ttft": Metric(_SECONDS, _QUANTILES),
    "ttfo": Metric(_SECONDS, _QUANTILES),
    "gap": Metric(_MILLISECONDS, _QUANTILES),
    "tpot": Metric(_MILLISECONDS, _QUANTILES),
    "decode_tokens_per_s": Metric(_SPEED),
    "events_per_token": Metric(_PER_TOKEN),
    "headline": Metric(_SECONDS),  # the headline of every kind there is so far is a time
    "cost_per_task": Metric(_USD),
}
"""Keys of `[objectives]`. events_per_token: median of output events / streamed tokens; below 0.8 a gap is no
token's. cost_per_task: USD of all measured tasks / completed tasks."""

COMPARISONS = ("speedup_p50", "speedup_p10", "speedup_p90", "ratio_p50", "ratio_p90", "cost_per_task")
"""First words in `[compare]`. cost_per_task: candidate / baseline of USD per completed task; the others
baseline / candidate of times."""

COMPARISON_EXAMPLE = "speedup_p50 >= 1.5"

_NUMBER = r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_LIMIT = re.compile(rf"{_NUMBER}\s*([^0-9.\s]\S*)?")
_T = re.compile(rf"within\(\s*{_NUMBER}\s*(ms|s)\s*\)")


def parse_objective(metric: str, text: str) -> Objective:
    """Read a text that stands under `metric`, one of METRICS. Raises ValueError with a sentence."""
    known = METRICS[metric]
    word, op, right = _in_three(text, known.example)
    if not known.statistics:
        if word not in ("", metric):
            raise ValueError(f"no statistic {shown(word)}; {metric} is one number, want {known.example}")
        if metric == "cost_per_task" and right.endswith("x"):
            raise ValueError("with x it compares with the baseline, want it in [compare]; here it is in USD")
        limit, written = _limit(right, op, known.quantity)
        return Objective(metric, "", limit, op, f"{metric} {op} {written}", known.quantity.unit)
    statistic, within_s = _statistic(word, known)
    quantity = known.quantity if within_s is None else _SHARE
    limit, written = _limit(right, op, quantity)
    shown_as = statistic if within_s is None else f"within({within_s}s)"
    return Objective(
        metric, statistic, limit, op, f"{metric} {shown_as} {op} {written}", quantity.unit, within_s
    )


def parse_comparison(text: str) -> Objective:
    """Read a text that stands under a candidate in `[compare]`. Raises ValueError with a sentence."""
    word, op, right = _in_three(text, COMPARISON_EXAMPLE)
    if not word:
        raise ValueError(f"no comparison in front; want one of {', '.join(COMPARISONS)}")
    if word not in COMPARISONS:
        raise ValueError(no_such("comparison", word, COMPARISONS))
    limit, written = _limit(right, op, _TIMES)
    return Objective(word, "", limit, op, f"{word} {op} {written}", _TIMES.unit)


def within_limits(objectives: Iterable[ObjectiveFor]) -> tuple[float, ...]:
    """Every T in seconds that an objective names, in order: the summary must hold P(done within T).

    Whole ones are ints, so that `str` gives the summary's keys.
    """
    limits = {one.objective.within_s for one in objectives}
    return tuple(sorted(limit for limit in limits if limit is not None))


def _in_three(text: str, example: str) -> tuple[str, Op, str]:
    """Take a text apart at its operator."""
    found = re.fullmatch(r"\s*([^<>=!]*?)\s*([<>=!]+)\s*(.*?)\s*", text, re.DOTALL)
    if not found:
        raise ValueError(f"no <= or >= in it; want such as {shown(example)}, got {shown(text)}")
    word, op, right = found.groups()
    if op == "<=":
        return word, "<=", right
    if op == ">=":
        return word, ">=", right
    raise ValueError(f"want <= or >=, got {shown(op)} in {shown(text)}")


def _statistic(word: str, metric: Metric) -> tuple[str, float | None]:
    if word in _QUANTILES:
        return word, None
    if not word:
        raise ValueError(f"no statistic in front; want one of {', '.join(metric.statistics)}")
    if _WITHIN not in metric.statistics or not word.startswith("within"):
        raise ValueError(no_such("statistic", word, metric.statistics))
    found = _T.fullmatch(word)
    if not found:
        raise ValueError(f"want a time with s or ms in it, such as within(60s); got {shown(word)}")
    number, unit = found.groups()
    seconds = float(Decimal(number) * _SECONDS.written[unit])
    return "within", int(seconds) if seconds.is_integer() else seconds


def _limit(right: str, op: str, quantity: Quantity) -> tuple[float, str]:
    """Read number and unit; gives the limit in the quantity's own unit, and how it was written."""
    found = _LIMIT.fullmatch(right)
    if not found:
        raise ValueError(f"want a number >= 0 after {op}, such as {quantity.example}; got {shown(right)}")
    number, unit = found[1], found[2] or ""
    units = [name for name in quantity.written if name]
    if unit not in quantity.written:
        if not unit:
            raise ValueError(f"no unit after {number}; want {' or '.join(units)}")
        if not units:
            unit = f" ({quantity.unit})" if quantity.unit else ""
            raise ValueError(f"want a number alone{unit}, got {shown(right)}")
        raise ValueError(no_such("unit", unit, units))
    limit = float(Decimal(number) * quantity.written[unit])
    if quantity is _SHARE and limit > 1:
        raise ValueError(f"a share of tasks is at most 1 or 100%, got {shown(right)}")
    if not math.isfinite(limit):
        raise ValueError(f"the number after {op} is too large")
    return limit, f"{number}{unit}"
