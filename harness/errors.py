"""Everything the harness raises for a person to read: one sentence, no traceback.

A failed call is not here: it is a value (`values.CallError`), kept as a record.
"""

import asyncio

from harness.values import Timeline


class Interrupted(asyncio.CancelledError):
    """An exchange was cancelled; carries what it had measured until then. `step` keeps it as a record."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self.timeline = timeline


class HarnessError(Exception):
    """A run cannot go on; `str()` is the sentence to print. `exit_code` as in the command line contract."""

    exit_code = 2


class ScenarioError(HarnessError):
    """A scenario file is wrong; holds one line per fault, all of them at once."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class UsageError(HarnessError):
    """The command line asks for something that cannot be done."""


class UnreachableError(HarnessError):
    """A backend cannot be measured at all: it does not answer, or refuses every call."""

    exit_code = 4


class RefusedError(HarnessError):
    """A worker's engine cannot run; its own sentence, and the exit code that goes with it."""

    def __init__(self, sentence: str, exit_code: int) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


class StoppedError(HarnessError):
    """Somebody interrupted the command before it had an answer."""

    exit_code = 130


class LostRecordsError(HarnessError):
    """Records cannot be written any more: what the run would say from here on could not be believed."""

    exit_code = 4


def first_fault(group: ExceptionGroup[Exception]) -> Exception:
    """Take the first fault out of its nested groups: the others follow from it."""
    fault = group.exceptions[0]
    return first_fault(fault) if isinstance(fault, ExceptionGroup) else fault
