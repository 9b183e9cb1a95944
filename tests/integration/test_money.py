"""The guard in front of calls that cost money, and the limit that ends a run."""

import pytest

from tests.integration.running import at, harness, only_late, run, scenario, serving

LOAD = 'kind = "closed"\nusers = 2\ntasks = 20'
ELSEWHERE = "http://model.invalid/v1"  # a name that never resolves: the guard stands before any contact
PRICE = {"input": 1000.0, "cached": 100.0, "output": 3000.0}
COUNTS = "elsewhere is not on this machine: 20 tasks and the warm-up before them; the tasks make "


def guarded(folder, *words, load=LOAD, top="", **said):
    path = scenario(folder, {"elsewhere": at(ELSEWHERE, **said)}, load=load, top=top)
    return harness("run", path, "--out", folder / "out", *words)


@pytest.mark.parametrize(
    ("price", "cost", "ask"),
    [
        ({}, ", USD unknown", "the price of elsewhere is not known: give --yes to start it"),
        (
            {"price": PRICE},
            " if nothing is cached",
            "this costs money: give --yes to start it, or set spend_limit_usd",
        ),
    ],
    ids=["no price", "price"],
)
def test_what_may_cost_money_is_told_and_does_not_start_unasked(tmp_path, price, cost, ask):
    ended = guarded(tmp_path, **price)
    told, asked = ended.err.splitlines()
    assert ended.code == 2
    assert told.startswith(COUNTS)
    assert told.endswith(cost)
    assert ("about USD " in told) is bool(price)
    assert asked == ask
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "top", "price"),
    [
        pytest.param(("--yes",), "", {}, id="yes"),
        pytest.param((), "spend_limit_usd = 5.0", {"price": PRICE}, id="limit"),
    ],
)
def test_with_consent_it_starts(tmp_path, words, top, price):
    ended = guarded(tmp_path, *words, top=top, **price)
    assert ended.code == 4
    assert ended.out.startswith(COUNTS)
    assert ended.sentence().startswith("backends.elsewhere.url: cannot reach model.invalid:80: ")


def test_a_limit_without_a_price_is_no_consent(tmp_path):
    ended = guarded(tmp_path, top="spend_limit_usd = 5.0")
    assert ended.code == 2
    assert (
        "backends.elsewhere.price: missing; spend_limit_usd cannot hold without a price" in ended.sentence()
    )


def test_a_run_by_time_tells_the_cost_of_a_hundred_tasks(tmp_path):
    ended = guarded(tmp_path, load='kind = "closed"\nusers = 2\nmeasure_s = 60', price=PRICE)
    assert "each 100 tasks (the run goes by time)" in ended.err


def test_the_run_drains_when_the_limit_is_passed_and_says_so(tmp_path):
    with serving() as url:
        path = scenario(tmp_path, {"b": at(url, price=PRICE)}, load=LOAD, top="spend_limit_usd = 5.0")
        ended, out = run(tmp_path, path)
    assert ended.code == 0 or only_late(out)  # nobody stopped it: what it says of fewer tasks is true
    assert "spend limit of USD 5 passed; the run drains" in ended.err.splitlines()
    assert "spend_limit" in out.findings()
    assert "interrupted" not in out.findings()
    assert "the spend limit of USD 5 was passed at USD " in ended.out
    assert 0 < len(out.tasks()) < 20
    assert {task["outcome"] for task in out.tasks()} == {"completed"}
    spent = [
        call["input_tokens"] * PRICE["input"] + call["output_tokens"] * PRICE["output"]
        for call in sorted(out.lines("calls"), key=lambda call: call["done_ns"])
    ]
    assert sum(spent) / 1e6 > 5
