"""A step over WebSocket against a server on loopback: what each message of a task holds."""

import asyncio
import json

from harness.client.session import Endpoint
from harness.client.watchdog import CallLimits
from harness.client.websocket import WebSocketExchange
from harness.clock import MachineClock
from harness.records import CallOutcome, Phase, TaskOutcome
from harness.values import Block, ErrorKind, Role
from harness.wire import DIALECTS
from harness.workloads.step import LiveBackend, PlannedCall, Step, TaskSetting
from tests.playing import Kept
from tests.raw_server import serve
from tests.websocket_server import CLOSE, closing, frame, received, upgrade

RESPONSES = DIALECTS["openai-responses"]
LIMITS = CallLimits(connect_s=10, first_output_s=10, stall_s=10, total_s=20)
SYSTEM = Block("system", 3, Role.SYSTEM, text="be good")
FIRST = Block("user", 3, Role.USER, text="first")
SAID = Block("said", 3, Role.ASSISTANT, text="as planned")
SECOND = Block("again", 3, Role.USER, text="second")


class Keeping(Kept):
    def phase(self):
        return Phase.MEASURE


def completed(name, text="yes"):
    delta = {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": text}
    done = {"type": "response.completed", "response": {"id": name, "status": "completed"}}
    return b"".join(frame(json.dumps(one).encode()) for one in ([delta] if text else []) + [done])


def stepped(answers, *, warm=False):
    """Two calls of a task; (messages by connection, records of the calls, the task's record)."""
    clock, keeping, connections = MachineClock(), Keeping(), []

    async def handler(peer):
        connections.append([])
        seen = connections[-1]
        await upgrade(peer)
        while answers:
            opcode, payload = await received(peer)
            if opcode == CLOSE:
                return
            seen.append(json.loads(payload))
            await peer.send(answers.pop(0))
        await peer.gone()

    async def main():
        async with serve(handler) as port:
            endpoint = Endpoint(
                f"http://127.0.0.1:{port}/v1",
                transport="websocket",
                as_message=RESPONSES.as_message,
                lane_of=RESPONSES.lane_of,
            )
            async with WebSocketExchange(endpoint, limits=LIMITS, clock=clock) as send:
                backend = LiveBackend(
                    name="b",
                    model="m",
                    dialect=RESPONSES,
                    exchange=send,
                    transport="websocket",
                    conversations=send,
                    warm=warm,
                )
                now = clock.now_ns()
                setting = TaskSetting("b/w/0", 0, 0, "w", None, 1, now, now, None)
                step = Step(setting, backend, clock=clock, recorder=keeping)
                await step.call(PlannedCall((SYSTEM, FIRST), output_tokens=4))
                await asyncio.sleep(0.02)
                await step.call(PlannedCall((SYSTEM, FIRST, SAID, SECOND), output_tokens=4))
                task = step.finish(TaskOutcome.COMPLETED, phase=Phase.MEASURE)
                return task, send.holds("b/w/0")

    task, held = asyncio.run(main())
    assert not held  # the task is over
    return connections, keeping.calls, task


def texts(message):
    return [item["content"] for item in message["input"]]


WHOLE = ["be good", "first", "as planned", "second"]


def test_a_later_call_sends_what_is_new_behind_the_answer_that_the_server_holds():
    [[first, second]], calls, task = stepped([completed("r-1"), completed("r-2")])
    assert first["type"] == second["type"] == "response.create"
    assert "stream" not in first
    assert (texts(first), first.get("previous_response_id")) == (["be good", "first"], None)
    assert (texts(second), second["previous_response_id"]) == (["second"], "r-1")
    assert [call.connection for call in calls] == ["new", "reused"]
    assert [call.input_planned for call in calls] == [6, 12]  # the model reads all of it
    assert task.outcome is TaskOutcome.COMPLETED


def test_a_warm_connection_is_given_the_prompt_before_it_is_to_answer():
    [[known, first, second]], calls, task = stepped(
        [completed("r-0", ""), completed("r-1"), completed("r-2")], warm=True
    )
    assert (texts(known), known["generate"], known.get("previous_response_id")) == (["be good"], False, None)
    assert (texts(first), first["previous_response_id"]) == (["first"], "r-0")
    assert "generate" not in first
    assert (texts(second), second["previous_response_id"]) == (["second"], "r-1")
    assert [(call.outcome, call.first_output_ns is None) for call in calls] == [
        (CallOutcome.OK, True),
        (CallOutcome.OK, False),
        (CallOutcome.OK, False),
    ]
    assert (task.outcome, task.calls) == (TaskOutcome.COMPLETED, 3)


def test_what_went_with_a_closed_connection_is_sent_again():
    [[_], [second]], calls, _ = stepped([completed("r-1") + closing(1001), completed("r-2")])
    assert (texts(second), second.get("previous_response_id")) == (WHOLE, None)
    assert [(call.connection, call.reconnects) for call in calls] == [("new", 0), ("new", 1)]
    assert [call.outcome for call in calls] == [CallOutcome.OK, CallOutcome.OK]


def test_an_error_within_the_stream_fails_the_call_and_leaves_the_connection():
    error = {
        "type": "error",
        "status": 400,
        "error": {"code": "previous_response_not_found", "message": "gone"},
    }
    [[_, second]], calls, task = stepped([frame(json.dumps(error).encode()), completed("r-2")])
    assert (calls[0].error.kind, calls[0].error.message) == (
        ErrorKind.STREAM_ERROR,
        "gone (previous_response_not_found)",
    )
    assert (texts(second), second.get("previous_response_id")) == (WHOLE, None)
    assert [call.connection for call in calls] == ["new", "reused"]
    assert task.outcome is TaskOutcome.FAILED
