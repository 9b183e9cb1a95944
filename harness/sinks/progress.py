"""What a person reads while it runs, on standard error."""

from collections.abc import Mapping

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness.records import TaskOutcome
from harness.scenario import Scenario
from harness.screen import Screen

PLAIN_EVERY = 10
"""Without a terminal, a line of progress after so many tasks of a backend."""
SILENT_BEATS = 15
"""And a line a backend after so many beats without any."""
BEAT_S = 1.0


class LiveProgress:
    """A bar a backend on a terminal; elsewhere a line now and then. `totals` may be None: unknown."""

    def __init__(self, totals: Mapping[str, int | None], *, quiet: bool) -> None:
        self._console = Screen(stderr=True, quiet=quiet)
        self._plain = not self._console.is_terminal
        self._totals = totals
        self._done = dict.fromkeys(totals, 0)
        self._failed = dict.fromkeys(totals, 0)
        self._open = dict.fromkeys(totals, 0)
        self._phase = "start"
        self._silent = 0
        self._bars = Progress(
            TextColumn("{task.description:>20}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=quiet or self._plain,
        )
        self._ids = {name: self._bars.add_task(name, total=total, note="") for name, total in totals.items()}

    def __enter__(self) -> "LiveProgress":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self._silent = 0
        self._console.tell(text)

    def task_ended(self, backend: str, outcome: TaskOutcome) -> None:
        """Count a measured task."""
        self._done[backend] += 1
        self._failed[backend] += outcome is not TaskOutcome.COMPLETED
        self._bars.update(self._ids[backend], advance=1, note=self._note(backend))
        if self._plain and self._done[backend] % PLAIN_EVERY == 0:
            self._tell(backend, self._failures(backend))

    def beat(self, open_tasks: Mapping[str, int], *, phase: str) -> None:
        """Tell now and then that the run lives: which phase it is in, and how many tasks are open."""
        self._phase = phase
        for backend, number in open_tasks.items():
            self._open[backend] = number
            self._bars.update(self._ids[backend], note=self._note(backend))
        self._silent += 1
        if self._plain and self._silent >= SILENT_BEATS:
            for backend in open_tasks:
                self._tell(backend, f", {self._note(backend)}")

    def _tell(self, backend: str, note: str) -> None:
        total = self._totals[backend]
        of = f" of {total}" if total else ""
        self.say(f"{backend}: {self._done[backend]}{of} tasks ended{note}")

    def _note(self, backend: str) -> str:
        return f"{self._phase}: {self._open[backend]} open{self._failures(backend)}"

    def _failures(self, backend: str) -> str:
        return f", {self._failed[backend]} not completed" if self._failed[backend] else ""


def limits_line(scenario: Scenario) -> str:
    """Say the time limits of each backend's calls, defaults included, and the tasks' own."""
    limits = {
        name: ", ".join(
            f"{key[:-2].replace('_', ' ')} {value:g} s" for key, value in b.limits.model_dump().items()
        )
        for name, b in scenario.backends.items()
    }
    tasks = ", ".join(f"{entry.name} {entry.task_limit_s:g} s" for entry in scenario.workloads)
    calls = "; ".join(f"{name}: {text}" for name, text in limits.items())
    if len(set(limits.values())) == 1:
        calls = next(iter(limits.values()))
    return f"time limits of a call: {calls}; of a task: {tasks}"
