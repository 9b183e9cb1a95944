"""Objectives of a scenario: whom each is for, and what becomes of them when backends are left out."""

import re
from pathlib import Path

import orjson
import pytest
from pydantic import TypeAdapter

from harness.objectives import Objectives
from harness.scenario import objectives_of, with_overrides
from tests.scenario_text import GOOD, parsed

THIRD = '[backends.third]\nsimulate = "gpt-5.6-sol-standard"\n'


DOCUMENT = Path(__file__).parents[2] / "docs" / "scenarios.md"


def asked(tables: str, *, text: str = GOOD + THIRD):
    return objectives_of(parsed(text + tables))


def places(objectives):
    return [(one.backend, one.workload, one.objective.text) for one in objectives]


def test_nothing_is_asked_unless_written():
    assert asked("") == Objectives(held=(), compared=(), policy="point")


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        pytest.param(
            '[objectives]\nttft = "p50 <= 1s"',
            [("fast", None, "ttft p50 <= 1s"), ("third", None, "ttft p50 <= 1s")],
            id="bare: all but the baseline",
        ),
        pytest.param(
            '[objectives.standard]\nttft = ["p50 <= 1s", "p95 <= 2s"]',
            [("standard", None, "ttft p50 <= 1s"), ("standard", None, "ttft p95 <= 2s")],
            id="a backend, the baseline too, and several limits",
        ),
        pytest.param(
            '[objectives.fast.coding]\ntask_time = "within(60s) >= 90%"',
            [("fast", "coding", "task_time within(60s) >= 90%")],
            id="a workload",
        ),
        pytest.param(
            '[objectives]\ngap = "p50 <= 9ms"\n[objectives.fast]\ngap = "p50 <= 5ms"',
            [
                ("fast", None, "gap p50 <= 9ms"),
                ("third", None, "gap p50 <= 9ms"),
                ("fast", None, "gap p50 <= 5ms"),
            ],
            id="a narrower one stands beside a wider one",
        ),
    ],
)
def test_whom_an_objective_is_for(tables, expected):
    assert places(asked(tables).held) == expected


def test_without_a_baseline_a_bare_objective_is_for_all():
    text = GOOD.replace('[compare]\nbaseline = "standard"\n', "")
    found = asked('[objectives]\nttft = "p50 <= 1s"', text=text)
    assert [one.backend for one in found.held] == ["standard", "fast"]


def test_what_is_asked_beside_the_baseline():
    text = GOOD + 'fast = ["speedup_p50 >= 1.5", "cost_per_task <= 8x"]\nthird = "ratio_p90 >= 2"\n' + THIRD
    assert places(asked('[verdict]\npolicy = "confident"', text=text).compared) == [
        ("fast", None, "speedup_p50 >= 1.5"),
        ("fast", None, "cost_per_task <= 8x"),
        ("third", None, "ratio_p90 >= 2"),
    ]
    assert asked('[verdict]\npolicy = "confident"', text=text).policy == "confident"


BOTH = (
    GOOD
    + 'fast = "speedup_p50 >= 1.5"\nthird = "speedup_p50 >= 1"\n'
    + THIRD
    + '[objectives]\nttft = "p50 <= 1s"\n[objectives.standard]\nttft = "p50 <= 2s"\n'
)


@pytest.mark.parametrize(
    ("chosen", "held", "compared"),
    [
        pytest.param([], ["fast", "third", "standard"], ["fast", "third"], id="all"),
        pytest.param(["standard", "third"], ["third", "standard"], ["third"], id="one candidate left out"),
        pytest.param(["fast"], ["fast"], [], id="a candidate alone"),
        pytest.param(["standard"], ["standard"], [], id="the baseline alone"),
    ],
)
def test_objectives_of_backends_left_out_go_with_them(chosen, held, compared):
    kept = objectives_of(with_overrides(parsed(BOTH), backends=chosen))
    assert [one.backend for one in kept.held] == held
    assert [one.backend for one in kept.compared] == compared


def test_objectives_can_be_written_and_read_back():
    adapter = TypeAdapter(Objectives)
    objectives = asked('[objectives]\ntask_time = ["within(60s) >= 90%", "p50 <= 1s"]')
    assert adapter.validate_python(orjson.loads(orjson.dumps(objectives))) == objectives


def test_the_examples_of_the_document_are_right():
    blocks = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    text = GOOD[: GOOD.index("[compare]")].replace("[backends.fast]", "[backends.ultrafast]")
    objectives = asked("\n".join(blocks), text=text)
    assert (len(objectives.held), len(objectives.compared), objectives.policy) == (5, 3, "confident")
