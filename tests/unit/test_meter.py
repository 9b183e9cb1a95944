"""The spend limit holds, whatever servers tell."""

import pytest

from harness.meter import Spending
from harness.results import FindingName
from harness.scenario_backend import Backend
from tests.making import a_call

PRICED = Backend.model_validate(
    {"url": "http://127.0.0.1:1/v1", "model": "m", "price": {"input": 10, "cached": 1, "output": 100}}
)
TOLD = a_call(input_tokens=1000, cached_tokens=0, output_tokens=100)  # USD 0.02


def test_it_passes_once_when_the_sum_does():
    spending = Spending(limit_usd=0.05)
    assert [spending.passes(PRICED, TOLD) for _ in range(4)] == [False, False, True, False]
    assert spending.usd == pytest.approx(0.08)
    assert [name for name, _ in spending.findings()] == [FindingName.SPEND_LIMIT]


def test_a_server_that_does_not_tell_is_charged_by_the_plan():
    silent = a_call(input_tokens=None, output_tokens=None, input_planned=1000, output_asked=100)
    spending = Spending(limit_usd=0.05)
    assert [spending.passes(PRICED, silent) for _ in range(3)] == [False, False, True]


def test_without_a_limit_or_a_price_nothing_stops():
    assert not Spending(limit_usd=None).passes(PRICED, TOLD)
    unpriced = Backend.model_validate({"url": "http://127.0.0.1:1/v1", "model": "m"})
    spending = Spending(limit_usd=0.0001)
    assert not spending.passes(unpriced, TOLD)
    assert spending.findings() == []
