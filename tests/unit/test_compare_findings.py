"""Findings of comparisons: each appears beyond its limit, with its numbers, and not within it."""

import pytest

from harness.measure.calls import calls_of
from harness.measure.compare_findings import (
    BackendIdentity,
    InFlight,
    Side,
    identity_findings,
    in_flight,
    queue_findings,
    tail_finding,
    work_findings,
)
from harness.records import Phase, TaskOutcome
from harness.results import FindingName
from tests.making import S, a_call, a_task


def a_backend(**said):
    values = {
        "backend": "fast",
        "host": "api.example.com",
        "model": "sol",
        "dialect": "openai-chat",
        "transport": "keep-alive",
        "tier": "ultrafast",
        "key_name": "FAST_KEY",
    }
    return BackendIdentity(**{**values, **said})


STANDARD = a_backend(backend="standard", tier="default", key_name="STANDARD_KEY")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        pytest.param({"host": "other.example.com"}, "host (api.example.com, other.example.com)", id="host"),
        pytest.param({"model": "astra"}, "model (sol, astra)", id="model"),
        pytest.param({"dialect": "ollama"}, "dialect (openai-chat, ollama)", id="dialect"),
        pytest.param(
            {"transport": "new-connection"}, "transport (keep-alive, new-connection)", id="transport"
        ),
        pytest.param(
            {"output_control": "ignore_eos"}, "output control (max_tokens, ignore_eos)", id="output"
        ),
        pytest.param({"body": '{"effort":"low"}'}, 'request body (none, {"effort":"low"})', id="body"),
        pytest.param({"tier": "default", "route": "wafer"}, "route (none, wafer)", id="route, one tier"),
    ],
)
def test_what_else_than_the_tier_differs_is_named(said, words):
    (found,) = identity_findings(STANDARD, a_backend(**said))
    assert (found.name, found.backend, found.workload) == (FindingName.CONFOUNDED, "fast", None)
    assert found.detail == f"standard and fast differ in more than tier: {words}"


def test_a_tier_with_its_own_hardware_is_no_confounder():
    assert identity_findings(STANDARD, a_backend(route="wafer-scale")) == []


def test_several_differences_stand_in_one_sentence():
    (found,) = identity_findings(STANDARD, a_backend(model="astra", transport="new-connection"))
    assert "model (sol, astra), transport (keep-alive, new-connection)" in found.detail


@pytest.mark.parametrize(
    ("said", "found"),
    [
        pytest.param({"key_name": "STANDARD_KEY"}, [FindingName.SHARED_QUOTA], id="one host, one key"),
        pytest.param({}, [], id="two keys"),
        pytest.param({"key_name": "STANDARD_KEY", "simulated": True}, [], id="simulated"),
        pytest.param(
            {"key_name": "STANDARD_KEY", "host": "eu.example.com"}, [FindingName.CONFOUNDED], id="two hosts"
        ),
    ],
)
def test_shared_quota(said, found):
    assert [one.name for one in identity_findings(STANDARD, a_backend(**said))] == found


def test_a_keyless_server_is_shared_too():
    local = {"host": "127.0.0.1:8000", "key_name": None}
    (found,) = identity_findings(a_backend(backend="a", **local), a_backend(backend="b", **local))
    assert "a and b both ask 127.0.0.1:8000 with no key" in found.detail


def a_side(backend, outputs, *, cached=(0, 100), outcomes=None):
    """One task per entry of `outputs`, of one call each."""
    outcomes = outcomes or [TaskOutcome.COMPLETED] * len(outputs)
    names = [{"task_id": f"{backend}/w/{k}", "k": k, "backend": backend} for k in range(len(outputs))]
    tasks = [a_task(**name, session=k, outcome=outcomes[k]) for k, name in enumerate(names)]
    calls = [
        a_call(**name, output_tokens=tokens, cached_tokens=cached[0], input_tokens=cached[1])
        for name, tokens in zip(names, outputs, strict=True)
    ]
    return Side(backend, "w", tasks, calls_of(calls))


@pytest.mark.parametrize(
    ("outputs", "found"),
    [
        pytest.param([105, 105, 105], [], id="5 % more is equal work"),
        pytest.param([106, 106, 106], [FindingName.UNEQUAL_WORK], id="6 % more"),
        pytest.param([94, 94, 94], [FindingName.UNEQUAL_WORK], id="6 % less"),
        pytest.param([100, 100, 900], [], id="one far off does not move the median"),
        pytest.param([None, None, None], [], id="nothing told"),
    ],
)
def test_unequal_work(outputs, found):
    findings = work_findings(a_side("a", [100, 100, 100]), a_side("b", outputs))
    assert [one.name for one in findings] == found


def test_unequal_work_counts_only_pairs_that_completed_and_tell():
    failed = [TaskOutcome.COMPLETED, TaskOutcome.FAILED, TaskOutcome.COMPLETED]
    (found,) = work_findings(a_side("a", [100, 100, 100]), a_side("b", [200, 7, None], outcomes=failed))
    assert "100 tokens on a, 200 on b, over 1 pairs" in found.detail


@pytest.mark.parametrize(("cached", "found"), [(55, 0), (56, 1), (45, 0), (44, 1), (None, 0)])
def test_unequal_cache_beyond_five_points(cached, found):
    findings = list(
        work_findings(a_side("a", [1, 1], cached=(50, 100)), a_side("b", [1, 1], cached=(cached, 100)))
    )
    assert [one.name for one in findings] == [FindingName.UNEQUAL_CACHE] * found
    if found:
        assert f"50.0% of input tokens came from the cache on a, {cached}.0% on b" in findings[0].detail


def flying(spans, earlier=()):
    def tasks(of):
        return [a_task(k=k, scheduled_ns=a * S, ended_ns=b * S) for k, (a, b) in enumerate(of)]

    return Side("b", "w", tasks(spans), calls_of([]), tasks(earlier))


def test_tasks_in_flight_by_thirds():
    # measure from 0 to 30 s; the first third holds 10 + 5 task seconds, the last 4
    assert in_flight(flying([(0, 10), (5, 12), (26, 40), (30, 31)])) == InFlight(1.5, 0.4)


def test_warm_up_tasks_still_in_flight_count():
    assert in_flight(flying([(10, 20), (40, 45)], earlier=[(0, 20), (0, 5)])) == InFlight(2.0, 0.0)


def test_no_span_no_thirds():
    assert in_flight(flying([])) is None
    assert in_flight(flying([(3, 9)])) is None


@pytest.mark.parametrize(
    ("first", "last", "grows"),
    [(10, 15, False), (10, 15.1, True), (2, 5, False), (2, 5.1, True), (0, 3, False), (0, 3.1, True)],
)
def test_a_queue_grows_by_half_and_by_three(first, last, grows):
    assert InFlight(first, last).grows is grows


def test_a_growing_queue_is_told_with_its_numbers():
    # every second a task starts, and takes a second longer: in flight 1 1 2 2 3 3 4 4 5 5 ... 15 15
    (found,) = queue_findings([flying([(k, 2 * k + 1) for k in range(31)])])
    assert found.name is FindingName.GROWING_QUEUE
    assert "13.0 tasks in flight in the last third of measure, 3.0 in the first" in found.detail


def test_the_tail_with_and_without():
    tasks = [a_task(k=k, session=k, ended_ns=(k + 1) * S) for k in range(20)]
    tail = [a_task(k=20 + k, ended_ns=90 * S, phase=Phase.TAIL) for k in range(5)]
    found = tail_finding("b", "w", [*tasks, *tail])
    assert found.name is FindingName.TAIL
    assert found.detail.startswith("5 of 25 tasks were still open after the first user ran dry")
    assert found.detail.endswith("p95 task time 90.0 s with them, 19.0 s without")
    assert tail_finding("b", "w", tasks) is None


def test_a_tail_that_never_completes():
    tasks = [a_task(k=k, session=k) for k in range(8)]
    cut = [a_task(k=9, ended_ns=9 * S, phase=Phase.TAIL, outcome=TaskOutcome.FAILED)]
    assert tail_finding("b", "w", [*tasks, *cut]).detail.endswith("not reached with them, 2.0 s without")
