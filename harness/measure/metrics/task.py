"""Formulas over one task."""

from harness.records import TaskRecord


def task_time_ns(task: TaskRecord) -> int:
    """Last mark - scheduled start - human time (DESIGN: task time)."""
    return task.ended_ns - task.scheduled_ns - task.human_ns


def start_lag_ns(task: TaskRecord) -> int:
    """Give started - scheduled: how late the harness itself was."""
    return task.started_ns - task.scheduled_ns
