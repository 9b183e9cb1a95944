"""Formulas over one task."""

from collections.abc import Sequence

from harness.measure.metrics.recorded import ttft_ns
from harness.records import CallRecord, TaskRecord


def task_time_ns(task: TaskRecord) -> int:
    """Last mark - scheduled start - human time (DESIGN: task time)."""
    return task.ended_ns - task.scheduled_ns - task.human_ns


def start_lag_ns(task: TaskRecord) -> int:
    """Give started - scheduled: how late the harness itself was."""
    return task.started_ns - task.scheduled_ns


def llm_busy_ns(calls: Sequence[CallRecord]) -> int:
    """Sum of sent to done over a task's calls: calls side by side count each, so it may exceed task time."""
    return sum(call.done_ns - call.sent_ns for call in calls)


def task_ttft_ns(calls: Sequence[CallRecord]) -> int | None:
    """TTFT of the task's call that was sent first; None if it had no output or there is no call."""
    return ttft_ns(min(calls, key=lambda call: call.sent_ns)) if calls else None
