"""All records of a run become its summary and verdict: findings, validity, the meter's own state."""

from dataclasses import replace

import numpy as np
import orjson
import pytest

from harness.measure.compare_findings import BackendIdentity
from harness.measure.conclude import conclude
from harness.measure.facts import BackendFacts, RunFacts
from harness.measure.verdict import EXIT_CODES
from harness.objectives import Objectives
from harness.records import CallOutcome, EventsRecord, Phase, TaskOutcome, TokenSource
from harness.results import FindingName, Verdict
from harness.values import CallError, ErrorKind, StampClock
from tests.making import MS, S, a_call, a_task, kept


def known(name="b", *, simulated=False, **said):
    identity = BackendIdentity(
        backend=name,
        host="h",
        model="m",
        dialect="openai-chat",
        transport="keep-alive",
        tier=None,
        simulated=simulated,
    )
    return BackendFacts(identity=identity, prices={}, **said)


def facts(**said):
    values = {
        "title": "t",
        "workload": "w",
        "seed": 1,
        "baseline": None,
        "objectives": Objectives(),
        "repeats": 1,
        "run_s": 10.0,
        "backends": {"b": known()},
        "salted": True,
        "interrupted": False,
        "measure_s": 10.0,
        "cpu_share": 0.2,
        "loop_lag_p99_ms": 1.0,
    }
    return RunFacts(**{**values, **said})


def concluded(tasks, calls, **said):
    return conclude(kept(tasks, calls), facts(**said))


def names(summary):
    return {finding.name for finding in summary.findings}


def test_a_sound_run_has_no_verdict_and_says_that_nothing_certified_it():
    summary, verdict = concluded([a_task()], [a_call()])
    assert verdict.verdict is Verdict.NONE
    assert names(summary) == {FindingName.UNCERTIFIED, FindingName.COST_UNKNOWN, FindingName.COLD_START}
    assert summary.meter.clock == "kernel"
    assert EXIT_CODES[verdict.verdict] == 0


@pytest.mark.parametrize(
    ("tasks", "said", "reason"),
    [
        pytest.param([a_task(outcome=TaskOutcome.FAILED)], {}, "b/w: no task completed", id="none completed"),
        pytest.param([], {}, "b/w: no task completed", id="no task at all"),
        pytest.param(
            [a_task()],
            {"backends": {"b": known(lost="10 calls failed")}},
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
            {"backends": {"b": known(simulated=True)}},
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
            [a_task(), *[a_task(phase=Phase.WARM_UP)] * 3, *[a_task(phase=Phase.WARM_UP, backend="c")] * 5],
            [a_call()],
            {"backends": {"b": known(), "c": known("c")}},
            FindingName.WARM_UP,
            "warm-up: b 3, c 5 tasks, left out",
            id="l05 the size of the first wave, backend by backend",
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
                "backends": {"b": known(dropped=60)},
                "asked_per_s": 10.0,
            },
            FindingName.UNSENT_TASKS,
            "not complete: the asked rate was not reached: asked 10 tasks/s, achieved 4: 60 of 100 planned"
            " tasks were never started: as many as may be in flight were",
            id="l15 unsent",
        ),
        pytest.param(
            [a_task()] * 4,
            [a_call()],
            {"backends": {"b": known(dropped=16)}, "interrupted": True},
            FindingName.UNSENT_TASKS,
            "not complete: 16 of 20 planned tasks were never started: somebody stopped the run",
            id="unsent: stopped",
        ),
        pytest.param(
            [a_task()] * 4,
            [a_call()],
            {"backends": {"b": known(dropped=16), "c": known("c", lost="10 calls failed")}},
            FindingName.UNSENT_TASKS,
            "not complete: 16 of 20 planned tasks were never started: c was given up",
            id="unsent: the other one was given up",
        ),
        pytest.param(
            [a_task()] * 4,
            [a_call()],
            {
                "backends": {"b": known(dropped=16)},
                "caveats": [(FindingName.SPEND_LIMIT, "the limit was passed")],
            },
            FindingName.UNSENT_TASKS,
            "not complete: 16 of 20 planned tasks were never started: the spend limit",
            id="unsent: money",
        ),
        pytest.param(
            [a_task(), *[a_task(outcome=TaskOutcome.TIMEOUT, reason="hit the limit of 3 s")] * 5],
            [a_call()],
            {},
            FindingName.TIMED_OUT,
            "5 of 6 tasks hit the limit of 3 s",
            id="timed out",
        ),
    ],
)
def test_findings_say_what_a_reader_must_know(tasks, calls, said, name, words):
    summary, _ = concluded(tasks, calls, **said)
    [found] = [finding for finding in summary.findings if finding.name is name]
    assert words in found.detail


def test_no_task_completed_names_the_limit_they_hit():
    late = a_task(outcome=TaskOutcome.TIMEOUT, reason="hit the limit of 3 s")
    _, verdict = concluded([late] * 6, [a_call(outcome=CallOutcome.CUT)])
    assert verdict.reasons == ["b/w: no task completed: 6 of 6 tasks hit the limit of 3 s"]


def test_tasks_that_never_began_are_counted_and_lost_to_the_comparison():
    base = [a_task(task_id=f"a/w/{k}", k=k, session=k, backend="a") for k in range(20)]
    other = [a_task(task_id=f"b/w/{k}", k=k, session=k) for k in range(12)]
    both = {"a": known("a"), "b": known(dropped=8)}
    summary, _ = concluded([*base, *other], [a_call()], backends=both, baseline="a")
    counts = summary.backends["b"].workloads["w"].tasks
    assert (counts.scheduled, counts.dropped, counts.completed) == (20, 8, 12)
    assert summary.compare["b"]["w"].pairs == 12
    assert summary.compare["b"]["w"].pairs_lost == 8


def test_the_meter_tells_its_own_condition():
    calls = [a_call(first_output_low_ns=1 * S - 400_000, shared_read_events=2), a_call()]
    meter = concluded([a_task(started_ns=3 * MS)], calls)[0].meter
    assert meter.start_lag_p99_ms.value == 3
    assert meter.shared_read_share.value == pytest.approx(2 / 22)
    assert meter.bound_p99_us.value == 400
    assert meter.cpu_share.value == 0.2
    assert meter.loop_lag_p99_ms.value == 1.0


def found(summary, name):
    [one] = [finding for finding in summary.findings if finding.name is name]
    return one.detail


def test_m02_several_tokens_an_event_are_told_and_tpot_stays_the_tokens():
    # 1 token, then 10 events of 3 tokens each 12 ms apart, usage 31
    call = a_call(
        output_tokens=31,
        first_event_tokens=1,
        streamed_events=11,
        first_output_ns=0,
        last_output_ns=120 * MS,
        done_ns=120 * MS,
    )
    calls = [replace(call, call_id=str(i)) for i in range(6)]
    gaps = [0] + [12_000] * 10
    events = [
        EventsRecord(call_id=one.call_id, gaps_us=gaps, kinds=[("text", 11)], tokens=[], reads=[])
        for one in calls
    ]
    summary, _ = conclude(kept([a_task()], calls, events), facts())
    result = summary.backends["b"].workloads["w"]
    assert result.gap_ms.p50.value == pytest.approx(12.0, rel=0.004)
    assert result.tpot_ms.p50.value == pytest.approx(4.0)
    assert result.decode_tokens_per_s.value == pytest.approx(250)
    assert 1 / result.extra["events_per_token"].value == pytest.approx(31 / 11)
    assert "66 output events" in found(summary, FindingName.COUNT_MISMATCH)


@pytest.mark.parametrize(
    ("tokens", "events", "words"),
    [
        pytest.param(100, 40, "100 streamed tokens, 40 output events (0.40 events a token)", id="m31"),
        pytest.param(900, 516, "900 streamed tokens, 516 output events (0.57 events a token)", id="m32"),
        pytest.param(40, 40, None, id="m05: the server's count stands; as many events came"),
    ],
)
def test_the_servers_count_is_used_and_a_mismatch_is_counted(tokens, events, words):
    call = a_call(output_tokens=tokens, streamed_events=events)
    summary, _ = concluded([a_task()], [call])
    assert summary.backends["b"].workloads["w"].tokens.output == tokens
    if words is None:
        assert FindingName.COUNT_MISMATCH not in names(summary)
    else:
        assert found(summary, FindingName.COUNT_MISMATCH).startswith("in 1 of 1 calls")
        assert words in found(summary, FindingName.COUNT_MISMATCH)
        assert "running totals came in 0 of them" in found(summary, FindingName.COUNT_MISMATCH)
        told = replace(call, token_source=TokenSource.EVENTS)
        assert "came in 1 of them" in found(concluded([a_task()], [told])[0], FindingName.COUNT_MISMATCH)


def test_m06_without_usage_the_clients_count_of_events_is_kept_under_its_own_name():
    call = a_call(output_tokens=None, streamed_events=1, token_source=TokenSource.UNKNOWN)
    summary, _ = concluded([a_task()], [call])
    assert call.streamed_events == 1  # the client's: "yes" came in one event
    assert summary.backends["b"].workloads["w"].tokens.output is None  # never passed off as the server's
    assert found(summary, FindingName.NO_USAGE) == "1 of 1 calls came without token counts"


def test_the_same_records_and_facts_give_the_same_bytes():
    rng = np.random.default_rng(1)
    tasks = [
        a_task(task_id=f"{b}/w/{k}", k=k, session=k, backend=b, ended_ns=int(rng.lognormal(1, 0.5) * S))
        for b in ("a", "b")
        for k in range(40)
    ]
    calls = [a_call(call_id=f"{t.task_id}/1", task_id=t.task_id, k=t.k, backend=t.backend) for t in tasks]
    about = facts(backends={"a": known("a"), "b": known("b")}, baseline="a")
    both = [conclude(kept(tasks, calls), about) for _ in range(2)]
    assert orjson.dumps(both[0][0]) == orjson.dumps(both[1][0])
    compared = both[0][0].compare["b"]["w"]
    assert compared.pairs == 40
    assert compared.speedup_p50.low < compared.speedup_p50.value < compared.speedup_p50.high


def test_five_repeats_make_intervals_between_runs():
    tasks = [
        a_task(task_id=f"r{r}/{k}", k=k, session=k, repeat=r, ended_ns=(r + 1) * S)
        for r in range(5)
        for k in range(20)
    ]
    summary, _ = concluded(tasks, [], repeats=5)
    assert summary.intervals == "between runs"
    assert concluded(tasks, [], repeats=4)[0].intervals == "within this run"
    p50 = summary.backends["b"].workloads["w"].task_time.p50_s
    assert (p50.value, p50.n) == (3, 100)
    assert p50.low <= 2  # a run is one observation: five of them say little
    assert p50.high >= 4


def test_quantiles_with_wide_bounds_are_marked():
    # TTFT 1 s by its read's stamp, but the read before came at 0.5 s: anything between is possible
    wide = a_call(first_output_low_ns=S // 2)
    summary, _ = concluded([a_task()], [wide])
    assert "ttft_s p50 0.5 to 1" in found(summary, FindingName.WIDE_BOUNDS)
    assert "ttfo_s" not in found(summary, FindingName.WIDE_BOUNDS)
    assert FindingName.WIDE_BOUNDS not in names(concluded([a_task()], [a_call()])[0])


def test_refusals_and_time_lost_to_limits_are_told():
    attempts = [
        {"sent_ns": 0, "done_ns": S // 10, "status": 429, "error": None, "limit_wait_ns": 0},
        {"sent_ns": S // 2, "done_ns": 2 * S, "status": 200, "error": None, "limit_wait_ns": 0},
    ]
    error = CallError(ErrorKind.HTTP_ERROR, "HTTP 429: slow down")
    refused = a_call(
        call_id="b/w/1/1",
        task_id="b/w/1",
        status=429,
        error=error,
        outcome=CallOutcome.FAILED,
        streamed_events=0,
    )
    shares = dict.fromkeys(a_task().breakdown, 0.0) | {"limit": 0.125, "retry": 0.25, "decode": 0.625}
    lost = dict.fromkeys(shares, 0.0) | {"limit": 0.5, "ttft": 0.5}
    tasks = [
        a_task(breakdown=shares),
        a_task(task_id="b/w/1", k=1, outcome=TaskOutcome.FAILED, breakdown=lost),
    ]
    summary, _ = concluded(tasks, [a_call(sent_ns=S // 2, attempts=attempts), refused])
    told = {finding.name: finding.detail for finding in summary.findings}
    assert told[FindingName.THROTTLED] == (
        "the server's limits refused 2 of 3 attempts (429), in 2 of 2 calls, of which 1 failed by it"
    )
    assert told[FindingName.WAITED_FOR_LIMITS] == (
        "43.8% of the task time, that of failed and cut tasks too, was lost: 31.2% waiting for the own"
        " `quota`, 12.5% in attempts that failed and the waits after them"
    )


def test_a_run_that_met_no_limit_says_nothing_of_limits():
    found = names(concluded([a_task()], [a_call()])[0])
    assert found.isdisjoint({FindingName.THROTTLED, FindingName.WAITED_FOR_LIMITS})
