"""Formulas over tasks."""

import numpy as np

from harness.measure.calls import Calls
from harness.measure.metrics.recorded import ttft_ns, wall_ns
from harness.records import TaskRecord


def task_time_ns(task: TaskRecord) -> int:
    """Last mark - scheduled start - human time (DESIGN: task time)."""
    return task.ended_ns - task.scheduled_ns - task.human_ns


def start_lag_ns(task: TaskRecord) -> int:
    """Give started - scheduled: how late the harness itself was."""
    return task.started_ns - task.scheduled_ns


def llm_busy_ns(calls: Calls) -> dict[str, float]:
    """Sum of sent to done over each task's calls: side by side each counts, so it may exceed task time."""
    return calls.per_task(wall_ns(calls))


def task_ttft_ns(calls: Calls) -> dict[str, float]:
    """TTFT of each task's call that was sent first, nan if it had no output; of tasks that have calls."""
    order = np.lexsort((calls.sent_ns, calls.task_id.codes))
    codes, first = np.unique(calls.task_id.codes[order], return_index=True)
    ttft = ttft_ns(calls)[order[first]]
    return {calls.task_id.names[code]: float(value) for code, value in zip(codes, ttft, strict=True)}
