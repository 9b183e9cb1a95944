"""A call whose answer is no longer wanted: closed at once, kept, and neither success nor failure."""

import asyncio
import contextlib
import json

from harness.client.http import CallLimits, Endpoint, HttpExchange
from harness.clock import MachineClock
from harness.measure.conclude import conclude
from harness.records import CallOutcome, Phase, TaskOutcome
from harness.results import FindingName
from harness.values import Block, Role, StampClock
from harness.workloads.step import PlannedCall, Step, TaskSetting
from tests.making import a_call, a_task, kept
from tests.playing import Kept, a_backend
from tests.raw_server import LAST_CHUNK, STREAM_HEAD, chunk, serve
from tests.unit.test_conclude import facts

LIMITS = CallLimits(connect_s=10, first_output_s=10, stall_s=10, total_s=20)
PLANNED = PlannedCall(blocks=(Block("u", 5, Role.USER),), output_tokens=5)


def event(text):
    return chunk(b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n")


class Keeping(Kept):
    def phase(self):
        return Phase.MEASURE


def a_step(send, keeping, clock):
    now = clock.now_ns()
    setting = TaskSetting(
        task_id="b/w/0",
        k=0,
        session=0,
        workload="w",
        preset=None,
        seed=1,
        scheduled_ns=now,
        origin_ns=now,
        salt=None,
    )
    return Step(setting, a_backend(send, output_control="max_tokens"), clock=clock, recorder=keeping)


def cancelled(pieces, *, after_s=0.05):
    """Let a call be cancelled; (its reply, its record, the task's record, whether the server saw the end)."""
    clock, keeping = MachineClock(), Keeping()

    async def main():
        gone = asyncio.Event()

        async def handler(peer):
            await peer.request()
            for piece in pieces:
                await peer.send(piece)
            await peer.gone()
            gone.set()

        async with (
            serve(handler) as port,
            HttpExchange(Endpoint(f"http://127.0.0.1:{port}/v1"), limits=LIMITS, clock=clock) as send,
        ):
            step = a_step(send, keeping, clock)
            reply = await step.call(PLANNED, cancel_ns=clock.now_ns() + round(after_s * 1e9))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gone.wait(), 10)
            return reply, step.finish(TaskOutcome.COMPLETED, phase=Phase.MEASURE), gone.is_set()

    reply, task, gone = asyncio.run(main())
    [call] = keeping.calls
    return reply, call, task, gone


def test_a_call_is_cancelled_amid_its_answer():
    reply, call, task, gone = cancelled([STREAM_HEAD, event("a"), event("b")])
    assert gone
    assert (reply.ok, reply.cancelled, reply.text) == (False, True, "ab")
    assert (call.outcome, call.error, call.streamed_events) == (CallOutcome.CANCELLED, None, 2)
    assert call.clock is StampClock.KERNEL
    assert call.last_output_ns < call.cancelled_ns <= call.done_ns
    assert (call.after_cancel_ns, call.after_cancel_events) == (0, 0)
    assert task.outcome is TaskOutcome.COMPLETED  # what it means to the task is the workload's to say


def test_a_call_is_cancelled_before_anything_came():
    reply, call, _, gone = cancelled([])
    assert gone
    assert (reply.cancelled, reply.text) == (True, "")
    assert (call.outcome, call.status, call.first_output_ns) == (CallOutcome.CANCELLED, None, None)


def test_a_call_that_ends_in_time_is_not_cancelled():
    done = chunk(b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
    reply, call, _, _ = cancelled([STREAM_HEAD, event("a"), done + LAST_CHUNK], after_s=5)
    assert (reply.ok, reply.cancelled) == (True, False)
    assert (call.outcome, call.cancelled_ns) == (CallOutcome.OK, None)


def test_l18_cancelled_calls_are_in_no_statistic_but_their_count_and_the_money():
    stopped = {"outcome": CallOutcome.CANCELLED, "cancelled_ns": 5, "first_output_ns": 4, "output_tokens": 3}
    calls = [a_call(call_id=str(i), **stopped) for i in range(4)] + [a_call(call_id="4")]
    summary, _ = conclude(kept([a_task()], calls), facts())
    workload = summary.backends["b"].workloads["w"]
    assert (workload.calls.cancelled, workload.calls.ok, workload.calls.failed) == (4, 1, 0)
    assert workload.ttft_s.p50.n == 1
    assert workload.tokens.wasted == 12
    assert FindingName.FAILED_CALLS not in {one.name for one in summary.findings}
