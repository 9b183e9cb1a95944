"""The metric registry: every number that a summary, a report, a dashboard or the docs may show.

Names, units and help stand here and nowhere else. `value` of a call metric takes Calls and gives a column,
nan where a record does not tell; that of a task metric takes a TaskRecord and gives a number. Gaps come from
events and have no function of a record.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from harness.measure.metrics.recorded import (
    call_tpot_ns,
    decode_tokens_per_s,
    events_per_token,
    last_output_low_ns,
    last_output_ns,
    tpot_low_ns,
    ttfo_low_ns,
    ttfo_ns,
    ttft_low_ns,
    ttft_ns,
    user_ttft_ns,
    wall_ns,
)
from harness.measure.metrics.task import start_lag_ns, task_time_ns


class Unit(StrEnum):
    """Unit of analysis: what one value of a metric is about."""

    GAP = "gap"
    CALL = "call"
    TASK = "task"


@dataclass(frozen=True, slots=True)
class Metric:
    """A line of the registry. `scale`: unit of `value`'s number in the metric's unit.

    `value` is an upper bound where stamps of shared reads are; `low` gives the lower one.
    """

    name: str
    unit: str
    of: Unit
    better: Literal["lower", "higher"]
    help: str
    source: str
    value: Callable[[Any], Any] | None = None
    scale: float = 1.0
    low: Callable[[Any], Any] | None = None


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "task_time_s",
            "s",
            Unit.TASK,
            "lower",
            "last mark - scheduled start - human time",
            "own definition: one waits for a task from when it was due",
            task_time_ns,
            1e-9,
        ),
        Metric(
            "start_lag_ms",
            "ms",
            Unit.TASK,
            "lower",
            "started - scheduled: how late the harness was",
            "MLPerf inference rules, scheduled against issued",
            start_lag_ns,
            1e-6,
        ),
        Metric(
            "ttft_s",
            "s",
            Unit.CALL,
            "lower",
            "first output event - sent; reasoning counts, a role-only event does not",
            "AIPerf time_to_first_token",
            ttft_ns,
            1e-9,
            ttft_low_ns,
        ),
        Metric(
            "user_ttft_s",
            "s",
            Unit.CALL,
            "lower",
            "first output event - sent of the first attempt (`retry`); ttft_s where there was one",
            "own definition: an SDK's user sees no attempts",
            user_ttft_ns,
            1e-9,
        ),
        Metric(
            "ttfo_s",
            "s",
            Unit.CALL,
            "lower",
            "first answer or tool output - sent",
            "AIPerf time_to_first_output_token",
            ttfo_ns,
            1e-9,
            ttfo_low_ns,
        ),
        Metric(
            "last_output_s",
            "s",
            Unit.CALL,
            "lower",
            "last output event - sent; usage and the end mark come after it",
            "AIPerf request_latency, up to the last content",
            last_output_ns,
            1e-9,
            last_output_low_ns,
        ),
        Metric(
            "call_time_s",
            "s",
            Unit.CALL,
            "lower",
            "end of the answer - sent",
            "AIPerf request_latency, up to the end mark",
            wall_ns,
            1e-9,
        ),
        Metric(
            "gap_ms",
            "ms",
            Unit.GAP,
            "lower",
            "time between neighbouring output events; an event may hold several tokens",
            "AIPerf inter_chunk_latency",
        ),
        Metric(
            "tpot_ms",
            "ms",
            Unit.CALL,
            "lower",
            "(last output - first output) / (streamed tokens between them)",
            "AIPerf inter_token_latency, without hidden tokens",
            call_tpot_ns,
            1e-6,
            tpot_low_ns,
        ),
        Metric(
            "decode_tokens_per_s",
            "tokens/s",
            Unit.CALL,
            "higher",
            "1 / TPOT of a call",
            "AIPerf output_token_throughput_per_user",
            decode_tokens_per_s,
        ),
        Metric(
            "events_per_token",
            "1",
            Unit.CALL,
            "higher",
            "output events / streamed tokens; below 0.8 a gap is no token's",
            "own definition",
            events_per_token,
        ),
    )
}
