"""What a task says it cost, and what the guard says before a run."""

import asyncio

import pytest

from harness.clock import HandClock
from harness.errors import UsageError
from harness.preparation import Options, money_guard, read_scenario
from harness.prices import TokenPrice, prices_of
from harness.records import Phase, TaskOutcome
from harness.values import Block, CallError, ErrorKind, Role
from harness.workloads.step import PlannedCall, Step, TaskSetting
from tests.playing import Kept, Played, a_backend

PRICE = TokenPrice(input=1000, cached=100, output=5000)
GUARDED = """
schema = 1
name = "x"
[backends.b]
url = "https://api.example.com/v1"
model = "{model}"
{price}
[[workloads]]
kind = "agent"
preset = "demo"
[load]
kind = "closed"
users = 1
tasks = 2
"""


class Keeping(Kept):
    def phase(self):
        return Phase.MEASURE


def a_task_of_two_calls(*, prices, error=None):
    async def go():
        clock, kept = HandClock(), Keeping()
        backend = a_backend(Played(clock, seconds=lambda _: 0, error=error), prices=prices)
        setting = TaskSetting("b/w/0", 0, 0, "w", None, 1, 0, 0, None)
        step = Step(setting, backend, clock=clock, recorder=kept)
        for _ in range(2):
            await step.call(
                PlannedCall((Block("p", 7, Role.USER), Block("q", 4, Role.TOOL)), output_tokens=20)
            )
        return step.finish(TaskOutcome.COMPLETED, phase=Phase.MEASURE), kept.calls

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("error", "prices", "usd"),
    [
        pytest.param(None, prices_of("m", PRICE), 2 * (10 * 1000 + 20 * 5000) / 1e6, id="its calls"),
        pytest.param(None, {}, None, id="no price: unknown, not 0"),
        pytest.param(CallError(ErrorKind.HTTP_ERROR, "429"), prices_of("m", PRICE), 0.0, id="refused calls"),
    ],
)
def test_a_task_says_what_it_cost(error, prices, usd):
    task, calls = a_task_of_two_calls(prices=prices, error=error)
    assert task.cost_usd == (None if usd is None else pytest.approx(usd))
    assert [call.input_planned for call in calls] == [11, 11]


def guarded(tmp_path, model, price=""):
    path = tmp_path / "x.toml"
    path.write_text(GUARDED.format(model=model, price=price))
    with pytest.raises(UsageError) as caught:
        money_guard(read_scenario(Options(scenario=path)), yes=False)
    return str(caught.value)


@pytest.mark.parametrize(
    ("model", "price", "told"),
    [
        pytest.param("gpt-5.6-sol", "", "by its published price if nothing is cached", id="from the list"),
        pytest.param(
            "gpt-5.6-sol",
            'service_tier = "ultrafast"',
            "by its assumed price if nothing is cached",
            id="assumed, which is said",
        ),
        pytest.param(
            "m", "price = {input = 1, cached = 1, output = 1}", "by its own price if nothing", id="own"
        ),
        pytest.param("m", "", "the price of b is not known", id="unknown"),
        pytest.param("m", "price = {usd_per_endpoint_hour = 5}", "USD unknown", id="not by the token"),
    ],
)
def test_the_guard_says_by_which_price(tmp_path, model, price, told):
    assert told in guarded(tmp_path, model, price)
