"""Progress without a terminal: a line now and then, and never long silence."""

from harness.records import TaskOutcome
from harness.sinks.progress import PLAIN_EVERY, SILENT_BEATS, LiveProgress

DONE, FAILED = TaskOutcome.COMPLETED, TaskOutcome.FAILED


def lines(capsys):
    return capsys.readouterr().err.splitlines()


def test_a_line_after_so_many_tasks(capsys):
    with LiveProgress({"fast": 40}, quiet=False) as progress:
        for i in range(PLAIN_EVERY):
            progress.task_ended("fast", FAILED if i == 3 else DONE)
    assert lines(capsys) == ["fast: 10 of 40 tasks ended, 1 not completed"]


def test_a_run_in_which_nothing_ends_still_says_that_it_lives(capsys):
    with LiveProgress({"fast": None, "slow": None}, quiet=False) as progress:
        for _ in range(2 * SILENT_BEATS):
            progress.beat({"fast": 3, "slow": 4}, phase="warm-up")
    told = ["fast: 0 tasks ended, warm-up: 3 open", "slow: 0 tasks ended, warm-up: 4 open"]
    assert lines(capsys) == told * 2


def test_quiet_says_nothing(capsys):
    with LiveProgress({"fast": 10}, quiet=True) as progress:
        progress.say("x")
        for _ in range(2 * SILENT_BEATS):
            progress.beat({"fast": 3}, phase="measure")
            progress.task_ended("fast", DONE)
    assert lines(capsys) == []
