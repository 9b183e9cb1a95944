"""The product's own way of a call, as a process: step, exchange, decoder, records on disk.

    python product_client.py URL STREAMS REQUESTS

STREAMS users make REQUESTS calls between them, one after the other. `cost.py` takes its processor time.
"""

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.client.http import CallLimits, Endpoint, HttpExchange
from harness.clock import MachineClock
from harness.records import CallRecord, EventsRecord, Phase, TaskOutcome
from harness.sinks.records import RecordWriter
from harness.values import Block, Role
from harness.wire import DIALECTS
from harness.workloads.step import LiveBackend, PlannedCall, Step, TaskSetting

PROMPT_TOKENS, OUTPUT_TOKENS = 32, 500
LIMITS = CallLimits(connect_s=30, first_output_s=30, stall_s=30, total_s=60)
CLOCK = MachineClock()


@dataclass(slots=True)
class Recorder:
    """Writes each call as a run does, and stops at one that failed: it would be a cheap one."""

    writer: RecordWriter

    def phase(self) -> Phase:
        return Phase.MEASURE

    def call(self, call: CallRecord, events: EventsRecord) -> None:
        if call.error is not None:
            raise SystemExit(f"a call failed: {call.error.message}")
        self.writer.call(call, events)


async def user(numbers: Iterator[int], backend: LiveBackend, recorder: Recorder) -> None:
    """Make calls as long as there are any; each is a task of its own."""
    for k in numbers:
        setting = TaskSetting(
            task_id=f"bench/{k}",
            k=k,
            session=k,
            workload="bench",
            preset=None,
            seed=0,
            scheduled_ns=CLOCK.now_ns(),
            origin_ns=0,
            salt="bench",
        )
        step = Step(setting, backend, clock=CLOCK, recorder=recorder)
        blocks = (*step.salt("shared"), Block(f"bench/{k}/user", PROMPT_TOKENS, Role.USER))
        await step.call(PlannedCall(blocks, OUTPUT_TOKENS))
        recorder.writer.task(step.finish(TaskOutcome.COMPLETED, phase=Phase.MEASURE))


async def main(url: str, streams: int, requests: int) -> None:
    numbers = iter(range(requests))
    with tempfile.TemporaryDirectory() as folder, RecordWriter(Path(folder)) as writer:
        recorder = Recorder(writer)
        async with HttpExchange(Endpoint(url), limits=LIMITS, clock=CLOCK) as http:
            backend = LiveBackend("bench", "bench-1", DIALECTS["openai-chat"], http, "keep-alive")
            async with asyncio.TaskGroup() as group:
                for _ in range(streams):
                    group.create_task(user(numbers, backend, recorder))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
