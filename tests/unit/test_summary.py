"""Records become numbers; each expected value is made by hand."""

import numpy as np
import pytest

from harness.measure.conclude import BackendFacts, Records, RunFacts, conclude
from harness.measure.metrics.recorded import call_tpot_ns, ttfo_ns, ttft_ns
from harness.measure.metrics.task import start_lag_ns, task_time_ns
from harness.measure.summary import Kept, measured, workload_summary
from harness.measure.verdict import EXIT_CODES
from harness.records import CallOutcome, Phase, TaskOutcome, TokenSource
from harness.results import FindingName, Reason, Verdict
from harness.values import CallError, ErrorKind, StampClock
from tests.making import MS, S, a_call, a_task


def summary_of(tasks=(), calls=(), gaps_us=None, dropped=0):
    return workload_summary(Kept(list(tasks), list(calls), gaps_us or {}, dropped), tier_asked=None)


# --- formulas ------------------------------------------------------------------------------------


def test_times_of_a_call():
    call = a_call(sent_ns=1 * S, first_output_ns=3 * S, first_answer_ns=4 * S, last_output_ns=8 * S)
    assert ttft_ns(call) == 2 * S
    assert ttfo_ns(call) == 3 * S
    assert call_tpot_ns(call) == 5 * S / 10  # 11 tokens, the first one before the span began


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param({"output_tokens": 31, "first_event_tokens": 1}, 120 / 30, id="m02: 30 tokens after 1"),
        pytest.param({"output_tokens": 101, "first_output_ns": 0}, 1120 / 100, id="m22: not total / n"),
        pytest.param({"output_tokens": 1, "streamed_events": 1}, None, id="m07: one token has no TPOT"),
        pytest.param({"output_tokens": None}, None, id="unknown tokens"),
        pytest.param({"output_tokens": 41, "hidden_tokens": 10}, 120 / 30, id="hidden tokens do not count"),
        pytest.param({"output_tokens": 41, "hidden_tokens": None}, None, id="unknown hidden tokens"),
        pytest.param({"first_output_ns": None, "last_output_ns": None}, None, id="no output"),
    ],
)
def test_tpot_by_hand(said, expected):
    call = a_call(**{"first_output_ns": 1000 * MS, "last_output_ns": 1120 * MS, **said})
    found = call_tpot_ns(call)
    assert found == (None if expected is None else pytest.approx(expected * MS))


def test_times_of_a_task():
    task = a_task(scheduled_ns=1 * S, started_ns=1 * S + 5 * MS, ended_ns=9 * S, human_ns=3 * S)
    assert task_time_ns(task) == 5 * S
    assert start_lag_ns(task) == 5 * MS


# --- one workload on one backend -----------------------------------------------------------------


def test_warm_up_is_left_out_and_the_tail_is_not():
    tasks = [
        a_task(task_id="b/w/w0", phase=Phase.WARM_UP),
        a_task(task_id="b/w/0"),
        a_task(task_id="b/w/1", phase=Phase.TAIL),
    ]
    calls = [a_call(task_id=task.task_id, call_id=f"{task.task_id}/1") for task in tasks]
    kept = measured(Kept(tasks, calls, {}))
    assert [task.task_id for task in kept.tasks] == ["b/w/0", "b/w/1"]
    assert [call.task_id for call in kept.calls] == ["b/w/0", "b/w/1"]


def test_counts_add_up():
    outcomes = [TaskOutcome.COMPLETED] * 3 + [TaskOutcome.FAILED, TaskOutcome.TIMEOUT, TaskOutcome.CUT]
    counts = summary_of([a_task(outcome=outcome) for outcome in outcomes], dropped=4).tasks
    assert (counts.completed, counts.failed, counts.timeout, counts.cut, counts.dropped) == (3, 1, 1, 1, 4)
    rest = counts.dropped + counts.completed + counts.failed + counts.timeout + counts.abandoned
    assert counts.scheduled == rest + counts.cut + counts.lost == 10


def test_m11_the_end_of_the_stream_is_not_the_last_output():
    call = a_call(first_output_ns=200 * MS, last_output_ns=1000 * MS, done_ns=1200 * MS, output_tokens=81)
    assert call_tpot_ns(call) == pytest.approx(10 * MS)
    assert call.done_ns == 1200 * MS


def test_m13_a_call_without_output_gives_no_ttft():
    broken = a_call(
        first_output_ns=None,
        first_answer_ns=None,
        last_output_ns=None,
        outcome=CallOutcome.FAILED,
        error=CallError(ErrorKind.EMPTY_RESPONSE, "nothing came"),
    )
    found = summary_of([a_task()], [broken, a_call(first_output_ns=90 * MS)])
    assert found.ttft_s.p50.n == 1
    assert found.ttft_s.p50.value == pytest.approx(0.09)


def test_m09_reasoning_tokens_are_part_of_the_output():
    found = summary_of([a_task()], [a_call(output_tokens=100, reasoning_tokens=60)])
    assert (found.tokens.output, found.tokens.reasoning) == (100, 60)


def test_token_sums_are_null_where_a_call_did_not_tell():
    silent = a_call(output_tokens=None, input_tokens=None, token_source=TokenSource.UNKNOWN)
    found = summary_of([a_task()], [a_call(), silent]).tokens
    assert found.output is None
    assert found.source == "unknown + usage"


def test_tokens_of_calls_that_did_not_end_well_are_wasted():
    cut = a_call(outcome=CallOutcome.CUT, output_tokens=7)
    found = summary_of([a_task()], [a_call(output_tokens=11), cut]).tokens
    assert (found.output, found.wasted) == (11, 7)


def test_gaps_are_pooled_without_the_first_zero():
    gaps = {"b/w/0/1": np.array([0, 1000, 3000]), "b/w/0/2": np.array([0, 5000])}
    calls = [a_call(), a_call(call_id="b/w/0/2")]
    found = summary_of([a_task()], calls, gaps).gap_ms
    assert found.p50.n == 3
    assert (found.p50.value, found.p99.value) == (3.0, 5.0)


def test_quantiles_are_observed_values_and_never_beyond_the_largest():
    calls = [a_call(first_output_ns=i * S, last_output_ns=(i + 1) * S) for i in range(1, 9)]
    found = summary_of([a_task()], calls).ttft_s
    assert (found.p50.value, found.p99.value) == (4.0, 8.0)


def test_decode_speed_is_the_median_calls():
    calls = [a_call(output_tokens=11), a_call(output_tokens=21), a_call(output_tokens=51)]
    assert summary_of([a_task()], calls).decode_tokens_per_s.value == pytest.approx(20)


def test_hidden_reasoning_that_nobody_counts_is_a_reason_not_a_number():
    found = summary_of([a_task()], [a_call(hidden_tokens=None)])
    assert found.tpot_ms.p50.value is None
    assert found.tpot_ms.p50.reason is Reason.HIDDEN


def test_breakdown_weighs_tasks_by_their_time_and_sums_to_one():
    nothing = dict.fromkeys(a_task().breakdown, 0.0)
    tasks = [
        a_task(ended_ns=1 * S, breakdown=nothing | {"tool": 1.0}),
        a_task(ended_ns=3 * S, breakdown=nothing | {"decode": 1.0}),
        a_task(ended_ns=9 * S, outcome=TaskOutcome.FAILED, breakdown=nothing | {"ttft": 1.0}),
    ]
    found = summary_of(tasks).breakdown
    assert (found["tool"], found["decode"], found["ttft"]) == (0.25, 0.75, 0)
    assert sum(found.values()) == pytest.approx(1)


def test_the_headline_of_an_agent_is_its_task_time():
    found = summary_of([a_task(ended_ns=n * S) for n in (1, 2, 3)])
    assert found.headline.name == "task_time"
    assert found.headline.value == found.task_time.p50_s
    assert found.task_time.p50_s.value == 2
    assert found.task_time.within["10"].value == 1


def test_tiers_are_counted_as_served():
    calls = [a_call(tier_served="ultrafast"), a_call(tier_served="default"), a_call(tier_served="default")]
    assert summary_of([a_task()], calls).tier.served == {"ultrafast": 1, "default": 2}


# --- the run -------------------------------------------------------------------------------------


def facts(**said):
    values = {
        "workload": "w",
        "backends": {"b": BackendFacts(simulated=False, tier_asked=None)},
        "salted": True,
        "interrupted": False,
        "measure_s": 10.0,
        "cpu_share": 0.2,
        "loop_lag_p99_ms": 1.0,
    }
    return RunFacts(**{**values, **said})


def concluded(tasks, calls, **said):
    return conclude(Records(tasks=list(tasks), calls=list(calls)), facts(**said))


def names(summary):
    return {finding.name for finding in summary.findings}


def test_a_sound_run_has_no_verdict_and_says_that_nothing_certified_it():
    summary, verdict = concluded([a_task()], [a_call()])
    assert verdict.verdict is Verdict.NONE
    assert names(summary) == {FindingName.UNCERTIFIED}
    assert summary.meter.clock == "kernel"
    assert EXIT_CODES[verdict.verdict] == 0


@pytest.mark.parametrize(
    ("tasks", "said", "reason"),
    [
        pytest.param([a_task(outcome=TaskOutcome.FAILED)], {}, "b/w: no task completed", id="none completed"),
        pytest.param([], {}, "b/w: no task completed", id="no task at all"),
        pytest.param(
            [a_task()],
            {"backends": {"b": BackendFacts(simulated=False, tier_asked=None, lost="10 calls failed")}},
            "b: given up: 10 calls failed",
            id="given up",
        ),
        pytest.param(
            [a_task(started_ns=51 * MS)],
            {},
            "tasks started 51 ms late at p99 (limit 50 ms): the plan was not kept",
            id="late starts",
        ),
        pytest.param(
            [a_task(breakdown=dict.fromkeys(a_task().breakdown, 0.0) | {"decode": 0.97, "client": 0.03})],
            {},
            "b/w: the harness itself took 3.0% of the task time (limit 2%): fewer users, or more machine",
            id="client share",
        ),
    ],
)
def test_what_makes_a_run_invalid(tasks, said, reason):
    summary, verdict = concluded(tasks, [a_call()], **said)
    assert verdict.verdict is summary.verdict is Verdict.INVALID
    assert reason in verdict.reasons
    assert EXIT_CODES[verdict.verdict] == 4


@pytest.mark.parametrize(
    ("tasks", "calls", "said", "name", "words"),
    [
        pytest.param(
            [a_task()],
            [a_call()],
            {"backends": {"b": BackendFacts(simulated=True, tier_asked=None)}},
            FindingName.SIMULATED,
            "simulated",
            id="simulated",
        ),
        pytest.param(
            [a_task()], [a_call()], {"salted": False}, FindingName.CACHE_SALT_OFF, "salt", id="salt"
        ),
        pytest.param(
            [a_task()],
            [a_call()],
            {"interrupted": True},
            FindingName.INTERRUPTED,
            "stopped",
            id="interrupted",
        ),
        pytest.param(
            [a_task(), a_task(phase=Phase.WARM_UP)],
            [a_call()],
            {},
            FindingName.WARM_UP,
            "first 1 tasks",
            id="warm-up",
        ),
        pytest.param(
            [a_task()],
            [a_call(), a_call(outcome=CallOutcome.FAILED, error=CallError(ErrorKind.RESET, "reset"))],
            {},
            FindingName.FAILED_CALLS,
            "1 of 2 calls failed: reset 1",
            id="failed calls",
        ),
        pytest.param(
            [a_task()],
            [a_call(clock=StampClock.LOOP)],
            {},
            FindingName.LOOP_STAMPS,
            "1 of 1 calls",
            id="loop stamps",
        ),
        pytest.param(
            [a_task()],
            [a_call(shared_read_events=4)],
            {},
            FindingName.SHARED_READS,
            "36% of output events",
            id="shared reads",
        ),
        pytest.param(
            [a_task()],
            [a_call(token_source=TokenSource.UNKNOWN)],
            {},
            FindingName.NO_USAGE,
            "1 of 1 calls",
            id="no usage",
        ),
        pytest.param(
            [a_task(), a_task(outcome=TaskOutcome.CUT)],
            [a_call()],
            {},
            FindingName.CUT_TASKS,
            "1 of 2 tasks",
            id="cut tasks",
        ),
        pytest.param(
            [a_task(plan_mismatch=3)], [a_call()], {}, FindingName.PLAN_MISMATCH, "3 planned", id="mismatch"
        ),
        pytest.param(
            [a_task()] * 40,
            [a_call()],
            {
                "backends": {"b": BackendFacts(simulated=False, tier_asked=None, dropped=60)},
                "asked_per_s": 10.0,
            },
            FindingName.UNSENT_TASKS,
            "asked 10 tasks/s, achieved 4: 60 of 100 planned tasks were never sent",
            id="l15 unsent",
        ),
    ],
)
def test_findings_say_what_a_reader_must_know(tasks, calls, said, name, words):
    summary, _ = concluded(tasks, calls, **said)
    [found] = [finding for finding in summary.findings if finding.name is name]
    assert words in found.detail


def test_the_meter_tells_its_own_condition():
    calls = [a_call(first_output_low_ns=1 * S - 400_000, shared_read_events=2), a_call()]
    meter = concluded([a_task(started_ns=3 * MS)], calls)[0].meter
    assert meter.start_lag_p99_ms.value == 3
    assert meter.shared_read_share.value == pytest.approx(2 / 22)
    assert meter.bound_p99_us.value == 400
    assert meter.cpu_share.value == 0.2
    assert meter.loop_lag_p99_ms.value == 1.0
