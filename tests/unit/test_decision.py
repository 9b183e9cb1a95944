"""One objective against one estimate: the verdict and the sentence, for every form an estimate has."""

import pytest

from harness.measure.decision import decide, sentence
from harness.objectives import parse_comparison, parse_objective
from harness.results import Reason, Verdict
from tests.summaries import an

PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE
AT_MOST = parse_objective("task_time", "p50 <= 20s")
AT_LEAST = parse_objective("task_time", "p50 >= 20s")
SPEEDUP = parse_comparison("speedup_p50 >= 2")


@pytest.mark.parametrize(
    ("estimate", "verdicts"),  # of: point <=, point >=, confident <=, confident >=
    [
        pytest.param(an(19.0, 18.0, 19.5), (PASS, FAIL, PASS, FAIL), id="all below"),
        pytest.param(an(21.0, 20.5, 22.0), (FAIL, PASS, FAIL, PASS), id="all above"),
        pytest.param(an(19.0, 18.0, 22.0), (PASS, FAIL, OPEN, OPEN), id="below, interval across"),
        pytest.param(an(21.0, 18.0, 22.0), (FAIL, PASS, OPEN, OPEN), id="above, interval across"),
        pytest.param(an(20.0, 20.0, 20.0), (PASS, PASS, PASS, PASS), id="the limit itself"),
        pytest.param(an(19.0, 18.0, 20.0), (PASS, FAIL, PASS, OPEN), id="interval ends at the limit"),
        pytest.param(an(21.0, 20.0, 22.0), (FAIL, PASS, OPEN, PASS), id="interval begins at the limit"),
        pytest.param(an(19.0), (PASS, FAIL, OPEN, OPEN), id="no interval"),
        pytest.param(an(21.0, 20.5), (FAIL, PASS, FAIL, PASS), id="no upper end, lower end decides"),
        pytest.param(an(19.0, 18.0), (PASS, FAIL, OPEN, OPEN), id="no upper end"),
        pytest.param(an(19.0, None, 19.5), (PASS, FAIL, PASS, FAIL), id="no lower end, upper end decides"),
        pytest.param(an(None, 18.0, 19.0), (PASS, FAIL, PASS, FAIL), id="range below"),
        pytest.param(an(None, 21.0, 22.0), (FAIL, PASS, FAIL, PASS), id="range above"),
        pytest.param(an(None, 18.0, 22.0), (OPEN, OPEN, OPEN, OPEN), id="range across"),
        pytest.param(an(None, 18.0), (OPEN, OPEN, OPEN, OPEN), id="range without upper end"),
        pytest.param(an(None, 21.0), (FAIL, PASS, FAIL, PASS), id="range above without upper end"),
        pytest.param(an(reason=Reason.NOT_REACHED), (FAIL, PASS, FAIL, PASS), id="not reached"),
        pytest.param(
            an(None, 18.0, reason=Reason.NOT_REACHED),
            (FAIL, PASS, OPEN, OPEN),
            id="not reached, interval across",
        ),
        pytest.param(
            an(None, 21.0, reason=Reason.NOT_REACHED),
            (FAIL, PASS, FAIL, PASS),
            id="not reached, interval above",
        ),
        *(
            pytest.param(an(reason=reason), (OPEN, OPEN, OPEN, OPEN), id=str(reason))
            for reason in (Reason.TOO_FEW, Reason.UNKNOWN, Reason.NOT_APPLICABLE, Reason.HIDDEN)
        ),
    ],
)
def test_what_an_estimate_says_of_a_limit(estimate, verdicts):
    assert verdicts == tuple(
        decide(estimate, objective, policy=policy)
        for policy in ("point", "confident")
        for objective in (AT_MOST, AT_LEAST)
    )


@pytest.mark.parametrize(
    ("estimate", "verdict"),
    [
        pytest.param(an(2.0, 1.5, 2.5), PASS, id="value"),
        pytest.param(an(float("inf")), PASS, id="the baseline failed"),
        pytest.param(an(0.0), FAIL, id="the candidate failed"),
        pytest.param(an(None, 2.0), PASS, id="bounded pairs"),
        pytest.param(an(reason=Reason.NOT_REACHED), OPEN, id="a ratio of times not reached is no large one"),
    ],
)
def test_what_a_ratio_says_of_a_limit(estimate, verdict):
    assert decide(estimate, SPEEDUP, policy="point") is verdict


def share(text):
    return parse_objective("task_time", text)


@pytest.mark.parametrize(
    ("estimate", "objective", "policy", "told"),
    [
        (an(23.1, 21.0, 25.2), AT_MOST, "point", "was 23.1 s [21.0, 25.2]"),
        (an(23.1), AT_MOST, "point", "was 23.1 s"),
        (an(23.1, 21.0), AT_MOST, "point", "was 23.1 s [21.0, inf]"),
        (an(1234.4, 21.0, 99999.0), AT_MOST, "point", "was 1234 s [21.0, 99999]"),
        (an(20.004, 19.0, 22.0), AT_MOST, "point", "was 20.004 s [19.0, 22.0]"),
        (an(0.85, 0.8, 0.89), share("within(60s) >= 0.9"), "point", "was 0.850 [0.800, 0.890]"),
        (an(0.00043), parse_objective("cost_per_task", "<= 0.0001"), "point", "was 0.000430 USD"),
        (an(1.2, 1.1, 1.3), SPEEDUP, "point", "was 1.20x [1.10, 1.30]"),
        (an(5.0), parse_objective("gap", "p50 <= 3ms"), "point", "was 5.00 ms"),
        (an(200.0), parse_objective("decode_tokens_per_s", ">= 400"), "point", "was 200 tokens/s"),
        (an(None, 21.0, 25.0), AT_MOST, "point", "lies between 21.0 and 25.0 s"),
        (an(None, 21.0), AT_MOST, "point", "is at least 21.0 s"),
        (an(None, None, 1.0), SPEEDUP, "point", "is at most 1.00x"),
        (an(reason=Reason.NOT_REACHED), AT_MOST, "point", "was not reached (n = 100)"),
        (
            an(None, 21.0, reason=Reason.NOT_REACHED),
            AT_MOST,
            "confident",
            "was not reached, so at least 21.0 s (n = 100)",
        ),
    ],
)
def test_the_sentence_of_a_failed_objective(estimate, objective, policy, told):
    assert decide(estimate, objective, policy=policy) is FAIL
    assert sentence(estimate, objective, FAIL) == told


@pytest.mark.parametrize(
    ("estimate", "objective", "policy", "told"),
    [
        (an(19.1, 18.0, 22.0), AT_MOST, "confident", "was 19.1 s [18.0, 22.0]: the limit lies inside"),
        (an(19.1), AT_MOST, "confident", "was 19.1 s without an interval, which policy confident asks for"),
        (an(None, 18.0, 22.0), AT_MOST, "point", "lies between 18.0 and 22.0 s: the limit lies inside"),
        (an(None, 1.0), SPEEDUP, "point", "is at least 1.00x: the limit lies inside"),
        (
            an(None, 18.0, reason=Reason.NOT_REACHED),
            AT_MOST,
            "confident",
            "was not reached, so at least 18.0 s (n = 100): the limit lies inside",
        ),
        (an(reason=Reason.TOO_FEW, n=8), AT_MOST, "point", "has too few values to tell (n = 8)"),
        (an(reason=Reason.UNKNOWN, n=0), AT_MOST, "point", "is unknown"),
        (an(reason=Reason.HIDDEN, n=0), AT_MOST, "point", "is unknown, since reasoning was hidden"),
        (an(reason=Reason.NOT_APPLICABLE, n=0), AT_MOST, "point", "does not apply here"),
        (an(reason=Reason.NOT_REACHED), SPEEDUP, "point", "was not reached (n = 100)"),
    ],
)
def test_the_sentence_of_an_open_objective(estimate, objective, policy, told):
    assert decide(estimate, objective, policy=policy) is OPEN
    assert sentence(estimate, objective, OPEN) == told
