"""Ways to run Locust as its users do: processes at free ports, marked so that none of them is missed."""

import contextlib
import os
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.running import Ended, Folder
from tests.servers.starting import found, free_port

AGENTS = Path(__file__).parents[2] / "locustfiles" / "agents.py"
PATIENCE_S = 120
MARK = "HARNESS_TEST_MARK"


@dataclass
class Tree:
    """Locust processes of one test, and all that they start: found by a variable in their environment."""

    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    port: int = field(default_factory=free_port)
    started: list = field(default_factory=list)

    def locust(self, *words, file=AGENTS, env=None, wrap=()):
        """Start `locust WORDS` in a process group of its own."""
        process = subprocess.Popen(
            [*wrap, found("locust"), "-f", str(file), *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            process_group=0,
            env=os.environ | {MARK: self.mark} | (env or {}),
        )
        self.started.append(process)
        return process

    def headless(self, *words, **how):
        return self.locust("--headless", "--only-summary", *words, *self.place, **how)

    def master(self, *words, workers, **how):
        return self.headless("--master", "--expect-workers", workers, *words, **how)

    def worker(self, *words, **how):
        return self.locust("--worker", *words, *self.place, **how)

    @property
    def place(self):
        return [
            "--master-bind-host", "127.0.0.1", "--master-bind-port", self.port,
            "--master-host", "127.0.0.1", "--master-port", self.port,
        ]  # fmt: skip

    def pids(self, *, of=""):
        """Those that live and whose command line holds `of`."""
        found_pids = []
        for folder in Path("/proc").glob("[1-9]*"):
            with contextlib.suppress(OSError):
                if f"{MARK}={self.mark}".encode() not in (folder / "environ").read_bytes().split(b"\0"):
                    continue
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and of in (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode():
                    found_pids.append(int(folder.name))
        return sorted(found_pids)

    def engines(self):
        return self.pids(of="harness.worker")

    def left_after(self, seconds):
        """What still lives after so long; returns as soon as nothing does."""
        until = time.monotonic() + seconds
        while (left := self.pids()) and time.monotonic() < until:
            time.sleep(0.1)
        return [(pid, _command(pid)) for pid in left]


@contextlib.contextmanager
def tree():
    """A tree of processes of which nothing is left behind, whatever the test does."""
    one = Tree()
    try:
        yield one
    finally:
        for pid in one.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in one.started:
            process.wait()
            for pipe in (process.stdout, process.stderr):
                pipe.close()


def ended(process):
    out, err = process.communicate(timeout=PATIENCE_S)
    return Ended(process.returncode, out, err)


def until(true, *, seconds=60, what="it"):
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not (found_now := true()):
        assert time.monotonic() < end, f"{what} did not come about in {seconds} s"
        time.sleep(0.05)
    return found_now


def tasks_in(path):
    """How many tasks have ended so far in a run that goes on."""
    try:
        return Path(path, "tasks.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def reconciled(folder):
    """Check that what was planned, recorded and summed up is the same; gives the summary."""
    out = Folder(folder) if not isinstance(folder, Folder) else folder
    summary = out.json("summary")
    calls = out.lines("calls")
    spare = {events["call_id"] for events in out.lines("events")} - {call["call_id"] for call in calls}
    assert not spare or any(one["name"] == "worker_lost" for one in summary["findings"])
    assert len({call["call_id"] for call in calls}) == len(calls) == len(out.lines("events")) - len(spare)
    for name, backend in summary["backends"].items():
        for told in backend["workloads"].values():
            tasks = told["tasks"]
            assert tasks["scheduled"] == sum(n for key, n in tasks.items() if key != "scheduled")
            recorded = out.tasks(name)
            assert len(recorded) == tasks["scheduled"] - tasks["dropped"] - tasks["lost"]
            ids = {task["task_id"] for task in recorded}
            assert sum(told["calls"].values()) == sum(call["task_id"] in ids for call in calls)
    return summary


def _command(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return "?"
