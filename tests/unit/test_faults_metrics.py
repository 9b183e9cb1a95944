"""Known faults of other tools' metrics: each row's own input, and the value that is right."""

import asyncio
import contextlib
import socket
import time
from array import array
from dataclasses import replace
from math import isnan

import numpy as np
import orjson
import pytest

from harness.client.stamped_socket import WallOffset, stamped
from harness.clock import MachineClock, monotonic_ns
from harness.measure.calls import calls_of
from harness.measure.conclude import conclude
from harness.measure.estimates import curve_estimates, tasks_of, units_of
from harness.measure.metrics.call import streamed_tokens
from harness.measure.metrics.registry import METRICS
from harness.measure.metrics.task import llm_busy_ns, task_time_ns, task_ttft_ns
from harness.measure.summary import Kept, throughput
from harness.measure.timeline import records_of
from harness.measure.verdict import exit_code
from harness.meter import Meter
from harness.objectives import ObjectiveFor, Objectives, parse_objective
from harness.records import CallOutcome, TaskOutcome, TokenSource
from harness.results import FindingName, Reason, Verdict
from harness.values import CallError, ErrorKind, Usage
from harness.wire import DIALECTS
from tests.making import MS, S, a_call, a_task, a_timeline, an_answer, kept, told
from tests.unit.test_conclude import facts, found, names
from tests.unit.test_stamped_socket import Clocks, arrived, linux, warm
from tests.unit.test_timeline import FACTS

AT_0 = replace(FACTS, origin_ns=0, scheduled_ns=0)
N = 6  # a median needs as many values


def streamed(stamps, **said):
    """Records of a call sent at 0 whose output events came at `stamps`, each in a read of its own."""
    done = said.pop("done_ns", stamps[-1])
    return records_of(
        a_timeline(an_answer([[at, 1] for at in stamps], **said), done_ns=done), AT_0, cut=False
    )


def concluded(*pairs, times=1, **said):
    """Summary of one task whose calls are `pairs` of records, each given `times` times."""
    both = [
        (replace(call, call_id=str(i)), replace(events, call_id=str(i)))
        for i, (call, events) in enumerate(pairs * times)
    ]
    events = [told for call, told in both if call.outcome is CallOutcome.OK]
    return conclude(kept([a_task()], [call for call, _ in both], events), facts(**said))


def workload(summary):
    return summary.backends["b"].workloads["w"]


def value(name, call):
    """A metric of the registry, in its unit."""
    [one] = METRICS[name].value(calls_of([call])).tolist()
    return None if isnan(one) else pytest.approx(one * METRICS[name].scale)


def test_m01_ttft_is_no_gap():
    call, events = streamed([300 * MS, 320 * MS, 340 * MS])
    assert value("ttft_s", call) == 0.3
    summary, _ = concluded((call, events), times=3)
    gaps = workload(summary).gap_ms.p50
    assert (gaps.n, gaps.value, gaps.high) == (6, pytest.approx(20, rel=0.004), pytest.approx(20, rel=0.004))


def test_m02_several_tokens_an_event_are_told_and_tpot_stays_the_tokens():
    call, events = streamed(
        [i * 12 * MS for i in range(1, 12)], tokens=array("q", [1] + [3] * 10), usage=told(31)
    )
    assert events.tokens == [(1, 1), (3, 10)]
    # The row's 3.1 is 31 / 10: all tokens over the later events. The first event's token came before
    # them, so an event after the first carries 3.0.
    assert call.output_tokens / (call.streamed_events - 1) == 3.1
    assert (call.output_tokens - call.first_event_tokens) / (call.streamed_events - 1) == 3.0
    summary, _ = concluded((call, events), times=N)
    result = workload(summary)
    assert result.gap_ms.p50.value == pytest.approx(12.0, rel=0.004)
    assert "event" in METRICS["gap_ms"].help
    assert result.tpot_ms.p50.value == pytest.approx(120 / 30)
    assert result.extra["events_per_token"].value == pytest.approx(11 / 31)
    assert result.decode_tokens_per_s.value == pytest.approx(250)
    assert 1000 / result.tpot_ms.p50.value == pytest.approx(250)
    assert "186 streamed tokens, 66 output events" in found(summary, FindingName.COUNT_MISMATCH)


@pytest.mark.parametrize(
    ("events", "mismatches"),
    [
        pytest.param(40, False, id="an event a token"),
        pytest.param(3, True, id="40 blanks come as 3"),
    ],
)
def test_m05_the_servers_count_stands_and_the_clients_is_kept_beside_it(events, mismatches):
    # 195 ms from the first to the last of 40 tokens, however many events carry them
    stamps = [100 * MS + i * 195 * MS // (events - 1) for i in range(events)]
    call, gaps = streamed(stamps, usage=told(40))
    assert (call.output_tokens, call.streamed_events) == (40, events)
    assert call.token_source is TokenSource.USAGE
    assert value("tpot_ms", call) == 195 / 39 == 5.0
    summary, _ = concluded((call, gaps))
    assert workload(summary).tokens.output == 40
    assert (FindingName.COUNT_MISMATCH in names(summary)) is mismatches
    if mismatches:
        assert found(summary, FindingName.COUNT_MISMATCH).startswith("in 1 of 1 calls")


def test_m06_without_usage_the_clients_count_has_no_beginning_token_and_its_own_name():
    decoder = DIALECTS["openai-chat"].decoder()
    chunk = {"id": "c", "choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": None}]}
    decoder.feed(b"data: " + orjson.dumps(chunk) + b"\n\n", 90 * MS)
    decoder.feed(b"data: [DONE]\n\n", 91 * MS)
    answer = decoder.answer(ended=True)
    assert (answer.text, answer.usage) == ("yes", None)
    call, events = records_of(a_timeline(answer), AT_0, cut=False)
    assert call.streamed_events == 1  # the client's own count
    assert call.output_tokens is None  # never passed off as the server's
    assert call.token_source is TokenSource.COUNTED
    summary, _ = concluded((call, events))
    assert workload(summary).tokens.source == "events"
    assert found(summary, FindingName.NO_USAGE) == "1 of 1 calls came without token counts"


def test_m07_one_token_answers_have_no_tpot_and_drag_nothing():
    one = streamed([90 * MS], usage=told(1))
    five = streamed([(90 + 10 * i) * MS for i in range(5)], usage=told(5))
    result = workload(concluded(one, five, times=10)[0])
    assert (result.tpot_ms.p50.n, result.gap_ms.p50.n, result.ttft_s.p50.n) == (10, 40, 20)
    tpot = result.tpot_ms.p50
    assert (tpot.low, tpot.value, tpot.high) == pytest.approx((10.0, 10.0, 10.0))
    assert value("tpot_ms", one[0]) is None
    assert result.gap_ms.p50.low == pytest.approx(10.0, rel=0.004)
    assert result.ttft_s.p50.low == pytest.approx(0.09)


def test_m09_reasoning_tokens_are_part_of_the_output():
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 100,
        "completion_tokens_details": {"reasoning_tokens": 60},
    }
    decoder = DIALECTS["openai-chat"].decoder()
    decoder.feed(b"data: " + orjson.dumps({"id": "c", "choices": [], "usage": usage}) + b"\n\n", 1)
    assert decoder.answer(ended=False).usage == Usage(10, 100, None, 60)
    call, events = streamed([90 * MS, 100 * MS], usage=decoder.answer(ended=False).usage)
    visible = streamed_tokens(call.output_tokens, call.hidden_tokens)
    assert (call.output_tokens, call.reasoning_tokens, visible) == (100, 60, 40)
    tokens = workload(concluded((call, events))[0]).tokens
    assert (tokens.output, tokens.reasoning) == (100, 60)


def test_m11_the_end_of_the_stream_is_not_the_last_output():
    call, _ = streamed([(200 + 10 * i) * MS for i in range(81)], usage=told(81), done_ns=1200 * MS)
    assert value("last_output_s", call) == 1.0
    assert value("ttft_s", call) == 0.2
    assert value("tpot_ms", call) == 800 / 80 == 10.0
    assert call.done_ns == 1200 * MS
    assert value("call_time_s", call) == 1.2


def test_m13_a_call_without_a_first_token_is_counted_and_has_no_ttft():
    error = CallError(ErrorKind.EMPTY_RESPONSE, "nothing came")
    empty = records_of(a_timeline(an_answer([]), error=error), AT_0, cut=False)
    summary, _ = concluded(empty, streamed([90 * MS], usage=told(1)))
    result = workload(summary)
    assert result.ttft_s.p50.n == 1
    assert (result.calls.ok, result.calls.failed) == (1, 1)
    assert value("ttft_s", empty[0]) is None
    assert "1 of 2 calls failed: empty_response 1" in found(summary, FindingName.FAILED_CALLS)
    # as many as a median needs: its interval begins at the least of them
    ttft = workload(concluded(empty, streamed([90 * MS], usage=told(1)), times=N)[0]).ttft_s.p50
    assert (ttft.n, ttft.low, ttft.value) == (N, pytest.approx(0.09), pytest.approx(0.09))


def test_m16_a_handful_of_samples_has_a_median_and_no_p99():
    tasks = [a_task(task_id=str(n), session=n, ended_ns=n * S) for n in range(1, 9)]
    prepared = tasks_of(tasks, units_of(tasks, generator=np.random.default_rng(1)))
    (median, *tails), _ = curve_estimates(prepared, qs=(0.5, 0.95, 0.99))
    assert median.value == 4
    for tail in tails:
        assert (tail.value, tail.reason, tail.n) == (None, Reason.TOO_FEW, 8)


def test_m19_cut_calls_delivered_what_came_and_have_no_latency():
    # 10 users, 60 s: each has an answer of 1000 tokens in 50 s, and one cut after 200
    done = a_call(output_tokens=1000, streamed_events=1000, last_output_ns=50 * S, done_ns=50 * S)
    cut = a_call(output_tokens=None, streamed_events=200, outcome=CallOutcome.CUT)
    calls = [replace(call, call_id=f"{i}{call.outcome}") for call in (done, cut) for i in range(10)]
    cut_task = a_task(outcome=TaskOutcome.CUT, ended_ns=60 * S)
    speeds = throughput(Kept([cut_task], calls_of(calls)))
    assert speeds["delivered_tokens_per_s"].value == pytest.approx(200)
    assert speeds["completed_tokens_per_s"].value == pytest.approx(166.7, abs=0.05)
    result = workload(conclude(kept([cut_task], calls), facts())[0])
    assert (result.calls.ok, result.calls.cut, result.ttft_s.p50.n) == (10, 10, 10)
    assert result.extra["delivered_tokens_per_s"].value == pytest.approx(200)


def test_m22_tpot_is_not_total_by_n_and_null_where_nothing_was_streamed():
    call, _ = streamed([(1000 + 10 * i) * MS for i in range(101)], usage=told(101))
    assert (value("call_time_s", call), value("ttft_s", call)) == (2.0, 1.0)
    assert value("tpot_ms", call) == 10.0
    whole, _ = streamed([2000 * MS], usage=told(101))  # all of it in one piece
    assert value("tpot_ms", whole) is None
    unknown = a_call(
        first_output_ns=None, last_output_ns=None, done_ns=2 * S, output_tokens=101, streamed_events=0
    )
    assert value("ttft_s", unknown) is None
    assert value("tpot_ms", unknown) is None


def test_m26_calls_side_by_side_are_not_summed_into_the_task_time():
    calls = [
        a_call(sent_ns=sent * S, first_output_ns=first * S, done_ns=done * S)
        for sent, first, done in ((0, 1, 4), (4, 6, 9), (4, 7, 8))
    ]
    assert task_time_ns(a_task(ended_ns=9 * S)) == 9 * S
    [busy] = llm_busy_ns(calls_of(calls)).values()
    assert busy == (4 + 5 + 4) * S  # named as a sum: more than the task took
    assert "Sum" in llm_busy_ns.__doc__
    for order in (calls, calls[::-1]):
        assert task_ttft_ns(calls_of(order)) == {"b/w/0": 1 * S}
    silent = replace(calls[0], first_output_ns=None)
    [ttft] = task_ttft_ns(calls_of([silent, *calls[1:]])).values()
    assert isnan(ttft)  # not 0, and not another call's
    assert task_ttft_ns(calls_of([])) == {}


@linux
def test_m27_intervals_are_unchanged_when_the_wall_clock_steps_back():
    clocks = Clocks()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        stamped((socket.AF_INET, socket.SOCK_STREAM, 0, "", ())) as client,
    ):
        with contextlib.suppress(BlockingIOError):
            client.connect(listener.getsockname())
        server, _ = listener.accept()
        with server:
            client.watch(WallOffset(monotonic_ns, clocks.wall))
            warm(client, server)
            tokens = []
            for step_ns in (0, -2 * S):
                clocks.step_ns = step_ns
                sent, _ = arrived(client, server, b"token")
                assert client.recv(100) == b"token"
                tokens.append((sent, client.arrival_ns, monotonic_ns()))
                time.sleep(0.05)
    (sent_1, first, read_1), (sent_2, second, read_2) = tokens
    slack = 20_000  # two clocks are read one after the other
    assert sent_2 - read_1 - slack <= second - first <= read_2 - sent_1 + slack
    assert second - first >= 45 * MS


def test_m29_a_busy_loop_is_measured_and_marks_the_run():
    async def blocked_once_a_second():
        meter, clock = Meter(), MachineClock()
        async with asyncio.TaskGroup() as group:
            pulse = group.create_task(meter.pulse(clock))
            for _ in range(3):
                await asyncio.sleep(0.85)
                time.sleep(0.15)
            await asyncio.sleep(0.05)
            pulse.cancel()
        return meter.lag_p99_ms()

    for _ in range(3):  # a busy machine adds a lag of its own
        lag = asyncio.run(blocked_once_a_second())
        if 125 <= lag <= 175:
            break
    assert lag == pytest.approx(150, abs=25)  # a pulse every 20 ms: it is due up to 20 ms into the block
    summary, _ = concluded(streamed([90 * MS], usage=told(1)), loop_lag_p99_ms=lag)
    assert summary.meter.loop_lag_p99_ms.value == lag
    assert f"{lag:.0f} ms late at p99 (limit 50 ms)" in found(summary, FindingName.CLIENT_LIMITED)


def test_m31_where_events_hold_several_tokens_a_gap_is_no_tokens_and_means_stay():
    summary, _ = concluded(streamed([(100 + 10 * i) * MS for i in range(40)], usage=told(100)), times=N)
    result = workload(summary)
    assert result.extra["events_per_token"].value == 0.4
    assert "0.40 events a token" in found(summary, FindingName.COUNT_MISMATCH)
    assert result.tpot_ms.p50.value == pytest.approx(390 / 99)


@pytest.mark.parametrize(
    ("server", "verdict", "code"),
    [
        pytest.param(900, Verdict.FAIL, 1, id="900 and 516"),
        pytest.param(516, Verdict.PASS, 0, id="both 516"),
    ],
)
def test_m32_a_mismatch_is_counted_and_an_objective_fails_on_it(server, verdict, code):
    pair = streamed([(100 + i) * MS for i in range(516)], usage=told(server))
    once, _ = concluded(pair)
    assert workload(once).tokens.output == server
    assert (FindingName.COUNT_MISMATCH in names(once)) is (verdict is Verdict.FAIL)
    if verdict is Verdict.FAIL:
        assert found(once, FindingName.COUNT_MISMATCH).startswith("in 1 of 1 calls usage and events differ")
    asked = ObjectiveFor("b", None, parse_objective("events_per_token", ">= 0.8"))
    _, strict = concluded(pair, times=N, objectives=Objectives(held=(asked,)))
    assert strict.verdict is verdict
    assert exit_code(strict.verdict, allow_inconclusive=False) == code
