"""Records become numbers; each expected value is made by hand."""

from dataclasses import replace

import numpy as np
import pytest

from harness.measure.calls import calls_of
from harness.measure.estimates import units_of
from harness.measure.gaps import Gaps
from harness.measure.metrics.recorded import call_tpot_ns, ttfo_ns, ttft_ns
from harness.measure.metrics.task import start_lag_ns, task_time_ns
from harness.measure.summary import Kept, measured, throughput, workload_summary
from harness.records import CallOutcome, Phase, TaskOutcome, TokenSource
from harness.results import CostSummary, Estimate, Reason
from harness.values import CallError, ErrorKind
from tests.making import MS, S, a_call, a_task

UNKNOWN = Estimate(value=None, reason=Reason.UNKNOWN)


def summary_of(tasks=(), calls=(), gaps=None, dropped=0):
    """Summarise; a quantile needs six values, so tests repeat what they are about."""
    calls, counted = list(calls), Gaps()
    for call in calls:
        if gaps and call.call_id in gaps:
            counted.add(call.task_id, gaps[call.call_id])
    kept = Kept(list(tasks), calls_of(calls), counted, dropped)
    units = units_of(kept.tasks, generator=np.random.default_rng(1))
    cost = CostSummary(UNKNOWN, UNKNOWN)
    return workload_summary(kept, units, cost=cost, extra={}, tier_asked=None)


def each(n, *calls):
    """Give each call n times, under ids of their own."""
    return [
        replace(call, call_id=f"{call.call_id}-{i}-{j}") for i, call in enumerate(calls) for j in range(n)
    ]


# --- formulas ------------------------------------------------------------------------------------


def test_times_of_a_call():
    call = a_call(sent_ns=1 * S, first_output_ns=3 * S, first_answer_ns=4 * S, last_output_ns=8 * S)
    calls = calls_of([call])
    assert (ttft_ns(calls), ttfo_ns(calls)) == (2 * S, 3 * S)
    assert call_tpot_ns(calls) == 5 * S / 10  # 11 tokens, the first one before the span began


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
    found = call_tpot_ns(calls_of([call])).tolist()
    assert found == pytest.approx([np.nan if expected is None else expected * MS], nan_ok=True)


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
    kept = measured(Kept(tasks, calls_of(calls)))
    assert [task.task_id for task in kept.tasks] == ["b/w/0", "b/w/1"]
    assert kept.calls.task_id.counted() == {"b/w/0": 1, "b/w/1": 1}


def test_counts_add_up():
    outcomes = [TaskOutcome.COMPLETED] * 3 + [TaskOutcome.FAILED, TaskOutcome.TIMEOUT, TaskOutcome.CUT]
    counts = summary_of([a_task(outcome=outcome) for outcome in outcomes], dropped=4).tasks
    assert (counts.completed, counts.failed, counts.timeout, counts.cut, counts.dropped) == (3, 1, 1, 1, 4)
    rest = counts.dropped + counts.completed + counts.failed + counts.timeout + counts.abandoned
    assert counts.scheduled == rest + counts.cut + counts.lost == 10


def test_m11_the_end_of_the_stream_is_not_the_last_output():
    call = a_call(first_output_ns=200 * MS, last_output_ns=1000 * MS, done_ns=1200 * MS, output_tokens=81)
    assert call_tpot_ns(calls_of([call])) == pytest.approx(10 * MS)
    assert call.done_ns == 1200 * MS


def test_m13_a_call_without_output_gives_no_ttft():
    broken = a_call(
        first_output_ns=None,
        first_answer_ns=None,
        last_output_ns=None,
        outcome=CallOutcome.FAILED,
        error=CallError(ErrorKind.EMPTY_RESPONSE, "nothing came"),
    )
    found = summary_of([a_task()], [broken, *each(6, a_call(first_output_ns=90 * MS))])
    assert found.ttft_s.p50.n == 6
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
    calls = each(400, a_call())
    gaps = {call.call_id: np.array([1000] if i % 4 else [4000]) for i, call in enumerate(calls)}
    found = summary_of([a_task()], calls, gaps).gap_ms
    assert found.p50.n == 400
    assert (found.p50.value, found.p99.value) == pytest.approx((1.0, 4.0), rel=0.004)


def test_quantiles_are_observed_values_and_a_tail_of_too_few_is_none():
    calls = [a_call(call_id=str(i), first_output_ns=i * S, last_output_ns=(i + 1) * S) for i in range(1, 9)]
    found = summary_of([a_task()], calls).ttft_s
    assert found.p50.value == 4.0
    assert (found.p99.value, found.p99.reason, found.p99.needed) == (None, Reason.TOO_FEW, 368)


def test_decode_speed_is_the_median_calls():
    calls = each(3, a_call(output_tokens=11), a_call(output_tokens=21), a_call(output_tokens=51))
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
    tasks = [a_task(task_id=str(n), session=n, ended_ns=n * S) for n in range(1, 8)]
    found = summary_of(tasks)
    assert found.headline.name == "task_time"
    assert found.headline.value == found.task_time.p50_s
    assert found.task_time.p50_s.value == 4
    assert found.task_time.within["10"].value == 1


def test_tiers_are_counted_as_served():
    calls = [a_call(tier_served="ultrafast"), a_call(tier_served="default"), a_call(tier_served="default")]
    assert summary_of([a_task()], calls).tier.served == {"ultrafast": 1, "default": 2}


def test_each_tier_has_its_own_speed():
    tasks = [a_task(task_id=f"b/w/{k}", k=k, session=k) for k in range(20)]
    fast = [a_call(task_id=f"b/w/{k}", tier_served="ultrafast") for k in range(20)]
    slow = [a_call(task_id=f"b/w/{k}", tier_served="default", last_output_ns=3 * S) for k in range(20)]
    measured = summary_of(tasks, [*fast, *slow]).tier.measured
    assert {name: (one.value, one.n) for name, one in measured.items()} == {
        "ultrafast": (10.0, 20),
        "default": (5.0, 20),
    }


def test_m07_one_token_answers_have_no_tpot_and_drag_nothing():
    ones = each(10, a_call(output_tokens=1, streamed_events=1, last_output_ns=1 * S, done_ns=1 * S))
    fives = each(10, a_call(output_tokens=5, streamed_events=5, last_output_ns=1 * S + 40 * MS))
    calls = [replace(call, call_id=f"{i}") for i, call in enumerate([*ones, *fives])]
    gaps = {call.call_id: np.array([10_000] * 4) for call in calls[10:]}
    found = summary_of([a_task()], calls, gaps)
    assert (found.tpot_ms.p50.n, found.tpot_ms.p50.value) == (10, pytest.approx(10.0))
    assert (found.tpot_ms.p50.low, found.tpot_ms.p50.high) == pytest.approx((10.0, 10.0))
    assert found.gap_ms.p50.n == 40
    assert found.ttft_s.p50.n == 20


def test_m19_cut_calls_delivered_what_came_and_have_no_latency():
    # 10 users, 60 s, every answer 1000 tokens in 50 s, the second one cut after 200
    done = each(10, a_call(output_tokens=1000, streamed_events=1000))
    cut = each(10, a_call(output_tokens=None, streamed_events=200, outcome=CallOutcome.CUT))
    tasks = [a_task(task_id=str(i), outcome=TaskOutcome.CUT, ended_ns=60 * S) for i in range(10)]
    found = throughput(Kept([a_task(), *tasks], calls_of([*done, *cut])))
    assert found["delivered_tokens_per_s"].value == pytest.approx(200)
    assert found["completed_tokens_per_s"].value == pytest.approx(1000 * 10 / 60)
    summary = summary_of([a_task(), *tasks], [*done, *cut])
    assert summary.tasks.cut == 10
    assert summary.ttft_s.p50.n == 10


def test_throughput_is_unknown_where_a_server_did_not_tell():
    kept = Kept([a_task()], calls_of([a_call(output_tokens=None, token_source=TokenSource.UNKNOWN)]))
    assert throughput(kept)["delivered_tokens_per_s"].reason is Reason.UNKNOWN
