"""Money adds up, and more of anything never costs less."""

from hypothesis import given
from hypothesis import strategies as st

from harness.measure import charge
from harness.measure.calls import calls_of
from harness.prices import InferencePrice, TokenPrice, prices_of
from harness.records import CallOutcome
from tests.making import a_call

usd = st.floats(0.001, 1000)
TOKENS = st.builds(lambda a, b, c: TokenPrice(input=max(a, b), cached=min(a, b), output=c), usd, usd, usd)
PRICES = st.one_of(TOKENS, st.builds(InferencePrice, usd_per_inference_second=usd)).map(
    lambda price: prices_of("m", price)
)
counts = st.integers(0, 10**6)


@st.composite
def calls(draw):
    sent = draw(counts)
    told = draw(st.booleans())
    return a_call(
        outcome=draw(st.sampled_from([CallOutcome.OK, CallOutcome.FAILED] if told else [CallOutcome.CUT])),
        input_tokens=sent if told else None,
        cached_tokens=draw(st.integers(0, sent)) if told else None,
        output_tokens=draw(counts) if told else None,
        streamed_events=draw(counts),
        input_planned=draw(counts),
        done_ns=draw(st.integers(0, 10**12)),
    )


def task_usd(kept, prices):
    return charge.task_usd(calls_of(kept), prices)


def call_usd(call, prices):
    return task_usd([call], prices)


def near(a, b):
    return abs(a - b) <= 1e-9 * max(1, abs(a), abs(b))


@given(st.lists(calls().filter(lambda call: call.outcome is not CallOutcome.CUT)), PRICES)
def test_a_task_is_the_sum_of_told_calls_however_they_are_split(kept, prices):
    assert near(task_usd(kept, prices), sum(call_usd(call, prices) for call in kept))
    half = len(kept) // 2
    assert near(task_usd(kept, prices), task_usd(kept[:half], prices) + task_usd(kept[half:], prices))


@given(st.lists(calls(), min_size=1), calls(), PRICES)
def test_a_call_more_never_makes_a_task_cheaper(kept, told, prices):
    """Told calls only: one that broke off is taken to be like the others, which another may change."""
    known = [call for call in kept if call.outcome is not CallOutcome.CUT]
    assert task_usd([*known, told], prices) >= task_usd(known, prices) * (1 - 1e-9)


@given(calls(), st.integers(0, 10**6), PRICES)
def test_more_tokens_or_time_never_cost_less(call, more, prices):
    values = {name: getattr(call, name) for name in call.__slots__}
    grown = dict(values, streamed_events=call.streamed_events + more, done_ns=call.done_ns + more)
    for name in ("input_tokens", "output_tokens"):
        grown[name] = None if values[name] is None else values[name] + more
    assert call_usd(a_call(**grown), prices) >= call_usd(call, prices)


@given(calls(), counts, PRICES)
def test_costs_are_never_negative_whatever_a_server_says_of_its_cache(call, cached, prices):
    values = {name: getattr(call, name) for name in call.__slots__}
    assert call_usd(a_call(**{**values, "cached_tokens": cached}), prices) >= 0
