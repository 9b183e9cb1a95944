"""What calls and tasks cost, against sums made by hand."""

from math import isnan

import pytest

from harness.measure import charge
from harness.measure.calls import calls_of
from harness.measure.charge import Habit, busy_ns, calls_usd, tokens_usd
from harness.prices import EndpointPrice, InferencePrice, TierPrices, TokenPrice, prices_of
from harness.records import CallOutcome
from harness.values import CallError, ErrorKind
from tests.making import S, a_call

PRICE = TokenPrice(input=5, cached=0.5, output=30)
TOKENS = prices_of("m", PRICE)
SECONDS = prices_of("m", InferencePrice(usd_per_inference_second=0.25))
HOURS = prices_of("m", EndpointPrice(usd_per_endpoint_hour=36))
TIERS = prices_of(
    "m", TierPrices(tiers={"default": PRICE, "ultrafast": TokenPrice(input=30, cached=3, output=180)})
)
UNTOLD = {"input_tokens": None, "cached_tokens": None, "output_tokens": None}
NOTHING = {**UNTOLD, "streamed_events": 0}
CUT = {"outcome": CallOutcome.CUT, "input_planned": 1000, "streamed_events": 20}
LATE = {
    "outcome": CallOutcome.FAILED,
    "error": CallError(ErrorKind.FIRST_OUTPUT_TIMEOUT, "no output within 120 s"),
}
REFUSED = {"outcome": CallOutcome.FAILED, "error": CallError(ErrorKind.CONNECT, "refused")}


def call_usd(call, prices, **said):
    """Cost of one call, None where unknown."""
    [usd] = calls_usd(calls_of([call]), prices, **said).tolist()
    return None if isnan(usd) else usd


def task_usd(calls, prices):
    return charge.task_usd(calls_of(calls), prices)


def wasted_usd(calls, prices):
    return charge.wasted_usd(calls_of(calls), prices)


def habit(calls):
    return charge.habit(calls_of(calls))


def test_tokens_by_hand():
    usd = tokens_usd(PRICE, input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000)
    assert usd == pytest.approx(3.0 + 0.2 + 3.0)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param({"input_tokens": 1000, "output_tokens": 100}, 0.008, id="told"),
        pytest.param({"input_tokens": 1000, "cached_tokens": 800, "output_tokens": 100}, 0.0044, id="cached"),
        pytest.param(
            {"input_tokens": 1000, "cached_tokens": None, "output_tokens": 100}, 0.008, id="cached not told"
        ),
        pytest.param(
            {"input_tokens": 0, "output_tokens": 100, "reasoning_tokens": 60}, 0.003, id="reasoning is output"
        ),
        pytest.param(UNTOLD, None, id="ended well, told nothing"),
        pytest.param({"output_tokens": None}, None, id="ended well, output not told"),
        pytest.param({"outcome": CallOutcome.FAILED, "output_tokens": 100}, 0.0035, id="failed, told"),
        pytest.param({**NOTHING, **REFUSED}, 0.0, id="refused"),
        pytest.param({**NOTHING, **CUT, "streamed_events": 0}, 0.005, id="cut while it waited: its prompt"),
        pytest.param({**NOTHING, **LATE, "input_planned": 1000}, 0.005, id="timed out: its prompt"),
        pytest.param({**NOTHING, **LATE}, None, id="timed out, prompt unknown"),
        pytest.param({**UNTOLD, **CUT}, 0.0056, id="cut, planned prompt and events so far"),
        pytest.param({**UNTOLD, **CUT, "outcome": CallOutcome.FAILED}, 0.0056, id="broken off"),
        pytest.param({**UNTOLD, **CUT, "output_tokens": 40}, 0.0062, id="cut, running count"),
        pytest.param({**UNTOLD, **CUT, "input_planned": None}, None, id="cut, prompt unknown"),
    ],
)
def test_a_call_by_the_token(said, expected):
    assert call_usd(a_call(**said), TOKENS) == (None if expected is None else pytest.approx(expected))


def test_a_call_that_broke_off_is_like_those_around_it():
    like = Habit(cached_share=0.8, tokens_per_event=5)
    usd = call_usd(a_call(**UNTOLD, **CUT), TOKENS, like=like)
    assert usd == pytest.approx((200 * 5 + 800 * 0.5 + 100 * 30) / 1e6)
    told = a_call(input_tokens=1000, output_tokens=100)
    assert call_usd(told, TOKENS, like=like) == call_usd(told, TOKENS)


def test_habit_by_hand():
    calls = [
        a_call(input_tokens=100, cached_tokens=0, output_tokens=30, streamed_events=10),
        a_call(input_tokens=300, cached_tokens=200, output_tokens=90, streamed_events=20),
        a_call(**UNTOLD, **CUT),
    ]
    assert habit(calls) == Habit(cached_share=0.5, tokens_per_event=4)
    assert habit(calls[2:]) == Habit(cached_share=0, tokens_per_event=1)


@pytest.mark.parametrize(
    ("asked", "served", "expected"),
    [
        pytest.param("ultrafast", "ultrafast", 0.048, id="as asked"),
        pytest.param("ultrafast", "default", 0.008, id="fallen back: the tier served"),
        pytest.param("ultrafast", None, 0.048, id="not named: the tier asked"),
        pytest.param(None, None, 0.008, id="neither: standard"),
        pytest.param(None, "standard", 0.008, id="another name of it"),
        pytest.param("ultrafast", "fast", None, id="a tier without a price is unknown"),
    ],
)
def test_the_tier_decides(asked, served, expected):
    call = a_call(input_tokens=1000, output_tokens=100, tier_asked=asked, tier_served=served)
    assert call_usd(call, TIERS) == (None if expected is None else pytest.approx(expected))


def test_without_any_price_only_nothing_is_known():
    assert call_usd(a_call(), {}) is None
    assert call_usd(a_call(**NOTHING, **REFUSED), {}) == 0.0


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        pytest.param({"sent_ns": S, "done_ns": 3 * S}, 2, id="sent to done"),
        pytest.param({"sent_ns": S, "done_ns": 3 * S, "outcome": CallOutcome.CUT, **NOTHING}, 2, id="cut"),
        pytest.param({"done_ns": 9 * S, **NOTHING, **REFUSED}, 0, id="never there"),
        pytest.param(
            {
                "sent_ns": 5 * S,
                "done_ns": 6 * S,
                "attempts": [{"sent_ns": 0, "done_ns": 3 * S}, {"sent_ns": 5 * S, "done_ns": 6 * S}],
            },
            4,
            id="attempts before",
        ),
    ],
)
def test_a_call_by_the_second(said, seconds):
    assert busy_ns(calls_of([a_call(**said)])).tolist() == [seconds * S]
    assert call_usd(a_call(**said), SECONDS) == pytest.approx(0.25 * seconds)


def test_by_the_hour_a_call_has_no_cost_of_its_own():
    assert call_usd(a_call(), HOURS) is None


def test_a_task_is_the_sum_of_its_calls():
    calls = [
        a_call(input_tokens=1000, output_tokens=100),
        a_call(input_tokens=1000, cached_tokens=1000, output_tokens=100, outcome=CallOutcome.FAILED),
        a_call(**NOTHING, **REFUSED),
        a_call(**UNTOLD, **CUT),  # half of the prompts before it was cached; 200 tokens in 22 events
    ]
    cut = (500 * 5 + 500 * 0.5 + 20 * 200 / 22 * 30) / 1e6
    assert task_usd(calls, TOKENS) == pytest.approx(0.008 + 0.0035 + cut)
    assert wasted_usd(calls, TOKENS) == pytest.approx(0.0035 + cut)
    assert task_usd([*calls, a_call(**UNTOLD)], TOKENS) is None
    assert wasted_usd([*calls, a_call(**UNTOLD)], TOKENS) == pytest.approx(0.0035 + cut)
    assert task_usd([], TOKENS) == 0


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({**CUT, "sent_ns": 5 * S, "done_ns": 5 * S, "status": None}, id="never sent"),
        pytest.param({**CUT, "status": 429}, id="waiting to be asked again"),
    ],
)
def test_a_call_that_was_cut_while_no_server_worked_on_it_costs_nothing(said):
    assert call_usd(a_call(**{**said, **NOTHING}), TOKENS) == 0


def test_attempts_that_were_refused_cost_nothing_and_the_last_one_what_it_told():
    attempts = [
        {"sent_ns": 0, "done_ns": S, "status": 429, "error": None, "limit_wait_ns": 0},
        {"sent_ns": 2 * S, "done_ns": 4 * S, "status": 200, "error": None, "limit_wait_ns": 0},
    ]
    said = {"input_tokens": 1000, "output_tokens": 100, "sent_ns": 2 * S, "done_ns": 4 * S}
    assert call_usd(a_call(**said, attempts=attempts), TOKENS) == pytest.approx(0.008)
