"""One objective against one estimate: what it says, and the sentence with the numbers."""

from collections.abc import Mapping
from math import inf

from harness.objectives import Objective, Policy
from harness.results import Estimate, Reason, Verdict

_WHY: Mapping[Reason, str] = {
    Reason.NOT_REACHED: "was not reached",
    Reason.TOO_FEW: "has too few values to tell",
    Reason.UNKNOWN: "is unknown",
    Reason.NOT_APPLICABLE: "does not apply here",
    Reason.HIDDEN: "is unknown, since reasoning was hidden",
}
_DIGITS = 3  # as many are shown, or more where the number would look like the limit and is not


def decide(estimate: Estimate, objective: Objective, *, policy: Policy) -> Verdict:
    """Give PASS or FAIL where all that the estimate may be is on one side of the limit, else INCONCLUSIVE.

    `point` takes the value for all it may be, `confident` the whole interval. A null value may be
    anything between its ends, and anything at all beyond an end that is null. A time that was not
    reached lies beyond every limit: it fails `<=` and meets `>=`; under `confident` the lower end of its
    interval, if there is one, decides.
    """
    low, high = _possible(estimate, objective, policy)
    limit = objective.limit
    if objective.op == ">=":
        low, high, limit = -high, -low, -limit
    if high <= limit:
        return Verdict.PASS
    return Verdict.FAIL if low > limit else Verdict.INCONCLUSIVE


def sentence(estimate: Estimate, objective: Objective, verdict: Verdict) -> str:
    """Say what an objective that did not pass came to: `was 23.1 s [21.0, 25.2]`."""
    open_ended = estimate.low is None and estimate.high is None
    told = _told(estimate, objective)
    if verdict is Verdict.FAIL or (open_ended and estimate.value is None):
        return told
    if open_ended:
        return f"{told} without an interval, which policy confident asks for"
    return f"{told}: the limit lies inside"


def _possible(estimate: Estimate, objective: Objective, policy: Policy) -> tuple[float, float]:
    """Give the least and the most that it may be."""
    if estimate.value is not None and policy == "point":
        return estimate.value, estimate.value
    if _is_endless(estimate, objective):
        return (inf if estimate.low is None or policy == "point" else estimate.low), inf
    return (
        -inf if estimate.low is None else estimate.low,
        inf if estimate.high is None else estimate.high,
    )


def _is_endless(estimate: Estimate, objective: Objective) -> bool:
    """Tell whether it is a time beyond all that was seen; a ratio of two such times may be anything."""
    return estimate.reason is Reason.NOT_REACHED and objective.unit in ("s", "ms")


def _told(estimate: Estimate, objective: Objective) -> str:
    low, high = (
        None if end is None else _number(end, objective.limit) for end in (estimate.low, estimate.high)
    )
    unit = {"": "", "x": "x"}.get(objective.unit, f" {objective.unit}")
    if estimate.value is not None:
        value = f"was {_number(estimate.value, objective.limit)}{unit}"
        return value if low is None and high is None else f"{value} [{low or '-inf'}, {high or 'inf'}]"
    if _is_endless(estimate, objective) or (low is None and high is None):
        at_least = f", so at least {low}{unit}" if low else ""
        n = f" (n = {estimate.n})" if estimate.n else ""
        return _WHY[estimate.reason or Reason.UNKNOWN] + at_least + n
    if low and high:
        return f"lies between {low} and {high}{unit}"
    return f"is at least {low}{unit}" if low else f"is at most {high}{unit}"


def _number(value: float, limit: float) -> str:
    digits = _DIGITS
    text = _rounded(value, digits)
    while float(text) == limit != value:
        digits += 1
        text = _rounded(value, digits)
    return text


def _rounded(value: float, digits: int) -> str:
    if value >= 10**digits:
        return f"{value:.0f}"
    return f"{value:#.{digits}g}".rstrip(".")
