"""What a certificate does to a run: trust in its stamps, findings, objectives."""

import numpy as np
import pytest

from harness.measure.calls import calls_of
from harness.measure.certified import trust
from harness.measure.load import Load, calls_load, load_of
from harness.objectives import ObjectiveFor, Objectives, parse_comparison, parse_objective
from harness.results import FindingName, Standing, Verdict
from harness.values import StampClock
from tests.certifying import a_certificate
from tests.making import MS, S, a_call, a_task
from tests.unit.test_conclude import concluded, known, names

PROVED = Standing(a_certificate())


def load(*streams):
    """(first_s, last_s, events) of each stream."""
    first, last, events = (np.array(column, dtype=float) for column in zip(*streams, strict=True))
    return load_of(first * 1e9, last * 1e9, events)


@pytest.mark.parametrize(
    ("streams", "most"),
    [
        pytest.param([(0, 10, 1001)], Load(1, 100.0), id="events less one, over the time between them"),
        pytest.param([(0, 10, 1001), (20, 30, 1001)], Load(1, 100.0), id="one after the other"),
        pytest.param([(0, 10, 1001), (5, 15, 501)], Load(2, 150.0), id="side by side for a while"),
        pytest.param([(0, 1, 101), (1, 2, 101)], Load(2, 200.0), id="one begins as the other ends"),
        pytest.param([(0, 0, 1)], Load(1, 0.0), id="a single event is no rate"),
        pytest.param([(0, 0.001, 11)], Load(1, 100.0), id="a burst counts as spread over 0.1 s"),
    ],
)
def test_the_greatest_load(streams, most):
    found = load(*streams)
    assert (found.streams, found.events_per_s) == (most.streams, pytest.approx(most.events_per_s))


def test_calls_without_output_are_no_load():
    silent = {"first_output_ns": None, "last_output_ns": None, "streamed_events": 0}
    calls = [a_call(streamed_events=101), a_call(call_id="other", **silent)]
    assert calls_load(calls_of(calls)) == Load(1, 100.0)
    assert calls_load(calls_of([])) == Load(0, 0.0)


@pytest.mark.parametrize(
    ("standing", "clock", "had", "certified", "why"),
    [
        pytest.param(Standing(), "kernel", Load(1, 1), None, "there is no certificate", id="none"),
        pytest.param(Standing(why="stale: so"), "kernel", Load(1, 1), None, "stale: so", id="stale"),
        pytest.param(PROVED, "kernel", Load(32, 24_000), True, "", id="at its edge"),
        pytest.param(PROVED, "kernel", Load(32, 25_000), True, "", id="rates are good to 5 %"),
        pytest.param(PROVED, "kernel", Load(33, 1), False, "33 streams (proved: 32) at a time", id="streams"),
        pytest.param(PROVED, "kernel", Load(1, 30_000), False, "30,000 events/s (proved: 24,000)", id="rate"),
        pytest.param(PROVED, "loop", Load(1, 1), None, "is of kernel stamps", id="another clock"),
    ],
)
def test_trust(standing, clock, had, certified, why):
    found = trust(standing, clock=clock, load=had)
    assert found.certified is certified
    assert why in found.why
    assert [name for name, _ in found.findings()] == (
        []
        if certified
        else [FindingName.UNCERTIFIED if certified is None else FindingName.BEYOND_CERTIFICATE]
    )


ASKED = {
    "ttft": "p50 <= 1s",
    "ttfo": "p50 <= 1s",
    "gap": "p50 <= 1s",
    "tpot": "p50 <= 1s",
    "decode_tokens_per_s": ">= 1",
    "task_time": "p50 <= 100s",
    "headline": "<= 100s",
    "cost_per_task": "<= 1",
}
ON_STAMPS = {"ttft", "ttfo", "gap", "tpot", "decode_tokens_per_s"}
TIMED = {"task_time", "headline"}
UNKNOWN = {"gap", "cost_per_task"}
"""These records have no events, and their backend no price."""


def run(standing, *, calls=40, width_ns=0, **said):
    """A run of tasks of 2 s each at one time, each with a call whose last stamp is `width_ns` wide."""
    ids = [f"b/w/{k}" for k in range(calls)]
    return concluded(
        [a_task(task_id=one, k=k) for k, one in enumerate(ids)],
        [
            a_call(
                call_id=f"{one}/1",
                task_id=one,
                k=k,
                last_output_low_ns=2 * S - width_ns,
                streamed_events=11,
                **said,
            )
            for k, one in enumerate(ids)
        ],
        standing=standing,
        objectives=Objectives(
            held=tuple(ObjectiveFor("b", None, parse_objective(*one)) for one in ASKED.items())
        ),
    )


def inconclusive(record):
    return {
        metric
        for metric, row in zip(ASKED, record.objectives, strict=True)
        if row["verdict"] is Verdict.INCONCLUSIVE
    }


def test_within_the_envelope_nothing_is_said_and_all_is_decided():
    summary, record = run(Standing(a_certificate(streams=40)))
    assert summary.meter.certified is True
    assert not names(summary) & {FindingName.UNCERTIFIED, FindingName.BEYOND_CERTIFICATE}
    assert inconclusive(record) == UNKNOWN


@pytest.mark.parametrize("standing", [Standing(), Standing(why="stale")], ids=["none", "stale"])
def test_without_a_certificate_the_verdict_is_the_same(standing):
    summary, record = run(standing)
    assert summary.meter.certified is None
    assert FindingName.UNCERTIFIED in names(summary)
    assert inconclusive(record) == UNKNOWN


def test_beyond_the_envelope_single_stamps_decide_nothing():
    summary, record = run(PROVED)
    assert summary.meter.certified is False
    assert FindingName.BEYOND_CERTIFICATE in names(summary)
    assert inconclusive(record) == UNKNOWN | ON_STAMPS
    reasons = [reason for reason in record.reasons if "40 streams (proved: 32)" in reason]
    assert len(reasons) == len(ON_STAMPS)
    assert reasons[0].startswith("b/w: ttft p50 <= 1s: the meter's certificate of 2026-12-01 does not reach")


def test_beyond_it_a_limit_that_was_missed_is_inconclusive_too():
    missed = Objectives(held=(ObjectiveFor("b", None, parse_objective("ttft", "p50 <= 1ms")),))
    said = {"objectives": missed, "standing": Standing(a_certificate(streams=0))}
    _, record = concluded([a_task()], [a_call(streamed_events=11)], **said)
    assert [row["verdict"] for row in record.objectives] == [Verdict.INCONCLUSIVE]
    assert record.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("width_ns", "decides"), [(19 * MS, True), (20 * MS, False)], ids=["below 1 %", "1 % of 2 s"]
)
def test_beyond_it_times_of_tasks_decide_while_their_bounds_are_narrow(width_ns, decides):
    _, record = run(PROVED, width_ns=width_ns)
    assert inconclusive(record) == UNKNOWN | ON_STAMPS | (set() if decides else TIMED)


def test_speedups_are_times_of_tasks():
    compared = Objectives(compared=(ObjectiveFor("b", None, parse_comparison("speedup_p50 >= 0.1")),))
    tasks, calls = [], []
    for name in ("a", "b"):
        for k in range(40):
            task_id = f"{name}/w/{k}"
            tasks.append(a_task(task_id=task_id, backend=name, k=k))
            low = {"last_output_low_ns": S, "streamed_events": 11}
            calls.append(a_call(call_id=f"{task_id}/1", task_id=task_id, backend=name, k=k, **low))
    said = {"backends": {"a": known("a"), "b": known("b")}, "baseline": "a", "objectives": compared}
    _, sure = concluded(tasks, calls, **said)
    _, record = concluded(tasks, calls, standing=PROVED, **said)
    assert [row["verdict"] for row in sure.objectives] == [Verdict.PASS]
    assert [row["verdict"] for row in record.objectives] == [Verdict.INCONCLUSIVE]


def test_loop_stamps_are_not_what_was_proved():
    summary, _ = run(Standing(a_certificate(streams=40)), clock=StampClock.LOOP)
    assert summary.meter.certified is None
