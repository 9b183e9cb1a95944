"""Verdicts mirror with their operator, and `confident` never says more than `point`."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from harness.measure.decision import decide, sentence
from harness.objectives import parse_objective
from harness.results import Estimate, Reason, Verdict

OPPOSITE = {"<=": ">=", ">=": "<="}
NUMBERS = st.integers(0, 9).map(float)  # few, so that limits are often met exactly
POLICIES = st.sampled_from(["point", "confident"])
OBJECTIVES = st.builds(
    lambda limit, op: replace(parse_objective("task_time", "p50 <= 1s"), limit=limit, op=op),
    NUMBERS,
    st.sampled_from(["<=", ">="]),
)


@st.composite
def estimates(draw, reasons=tuple(Reason)):
    """Estimates of every form; the value, where there is one, lies within the ends."""
    low, value, high = sorted(draw(st.tuples(NUMBERS, NUMBERS, NUMBERS)))
    low, high = draw(st.sampled_from([(low, high), (low, None), (None, high), (None, None)]))
    if draw(st.booleans()):
        return Estimate(value, low, high, n=10)
    return Estimate(None, low, high, n=10, reason=draw(st.sampled_from(reasons)))


def mirrored(estimate):
    value, low, high = (
        None if one is None else -one for one in (estimate.value, estimate.high, estimate.low)
    )
    return replace(estimate, value=value, low=low, high=high)


@given(estimates([reason for reason in Reason if reason is not Reason.NOT_REACHED]), OBJECTIVES, POLICIES)
def test_the_other_way_round_is_the_same_verdict(estimate, objective, policy):
    other = replace(objective, limit=-objective.limit, op=OPPOSITE[objective.op])
    assert decide(mirrored(estimate), other, policy=policy) is decide(estimate, objective, policy=policy)


@given(estimates(), OBJECTIVES)
def test_what_is_decided_with_confidence_is_decided_so_at_a_point(estimate, objective):
    confident = decide(estimate, objective, policy="confident")
    if confident is not Verdict.INCONCLUSIVE:
        assert decide(estimate, objective, policy="point") is confident


@given(estimates(), OBJECTIVES, POLICIES, NUMBERS)
def test_a_wider_limit_is_never_harder_to_meet(estimate, objective, policy, more):
    by = more if objective.op == "<=" else -more
    if decide(estimate, objective, policy=policy) is Verdict.PASS:
        wider = replace(objective, limit=objective.limit + by)
        assert decide(estimate, wider, policy=policy) is Verdict.PASS


@given(estimates(), OBJECTIVES, POLICIES)
def test_there_is_a_sentence_for_whatever_did_not_pass(estimate, objective, policy):
    verdict = decide(estimate, objective, policy=policy)
    if verdict is not Verdict.PASS:
        assert sentence(estimate, objective, verdict).startswith(("was ", "lies ", "is ", "has ", "does "))
