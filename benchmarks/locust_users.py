"""What Locust costs: spawning thousands of users on one worker, and stamps while its web interface is asked.

PYTHONPATH=. python benchmarks/locust_users.py [USERS]
"""

import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np

from harness.measure.events import event_bounds
from harness.records import CallRecord, EventsRecord
from harness.sinks.records import read_records

AGENTS = Path(__file__).parents[1] / "locustfiles" / "agents.py"
SPAWN_BAR_S, MEMORY_BAR_KB = 2.0, 20.0
ROUNDS = 3
POLLS_PER_S = 10
EXACT_NS, PATH_NS = 1_000, 200_000
SCENARIO = """
schema = 1
name = "users"
seed = 3
[backends.standard]
simulate = "gpt-5.6-sol-standard"
behaviour = {{ rtt_ms = 0 }}
[backends.ultrafast]
simulate = "gpt-5.6-sol-ultrafast"
behaviour = {{ rtt_ms = 0 }}
[[workloads]]
kind = "agent"
preset = "demo"
calls = {{ value = 1 }}
agent_s = {{ value = {agent_s} }}
[load]
kind = "closed"
users = 4
{end}
drain_s = 0
"""
IDLE = SCENARIO.format(agent_s=8.0, end="tasks = 1")  # one user a backend has a task, all others none
BUSY = SCENARIO.format(agent_s=0.01, end="measure_s = 600")


def free_port() -> int:
    """Find a port of loopback that nobody has."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start(folder: Path, text: str, *words: object, **env: str) -> "subprocess.Popen[str]":
    """Start Locust on a scenario; its log is read from the pipe."""
    path = folder / "scenario.toml"
    path.write_text(text)
    port = free_port()
    place = ["--master-bind-port", port, "--master-port", port, "--master-host", "127.0.0.1"]
    command = ["-m", "locust", "-f", AGENTS, "--scenario", path, "--out", folder / "out", *place, *words]
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        process_group=0,
        env=os.environ | env,
    )


def pss_kb(pid: int) -> float:
    """Memory of a process, shared pages by their share."""
    return float(re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)[1])


def children(pid: int) -> list[int]:
    """List the processes that a process started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def spawned(users: int) -> tuple[float, float, float]:
    """Spawn users on one worker: seconds, KB each in the Locust worker, KB each in its engine."""
    with tempfile.TemporaryDirectory() as name:
        words = ["--headless", "--only-summary", "--processes", 1, "-u", users, "-r", users]
        process = start(Path(name), IDLE, *words)
        before: list[float] = []
        began = seconds = 0.0
        pids: list[int] = []
        for line in process.stderr or ():
            if "measuring into" in line:
                began = time.monotonic()
                worker = next(pid for pid in children(process.pid) if children(pid))
                pids = [worker, *children(worker)]
                before = [pss_kb(pid) for pid in pids]
            if "All users spawned" in line:
                seconds = time.monotonic() - began
                break
        time.sleep(3)
        each = [(pss_kb(pid) - was) / users for pid, was in zip(pids, before, strict=True)]
        threading.Thread(target=(process.stderr or sys.stdin).read).start()
        process.wait()
    return seconds, each[0], each[1]


def ask(url: str, **form: object) -> None:
    """Ask the web interface."""
    data = urllib.parse.urlencode(form).encode() if form else None
    with urllib.request.urlopen(url, data, timeout=30) as answer:
        answer.read()


def polled(*, polls_per_s: int, seconds: float) -> tuple[float, float, float, float]:
    """Run under the web interface: error p50 and p99 in us, share exact, share inside bounds."""
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        log = folder / "sends.jsonl"
        words = ["--web-host", "127.0.0.1", "--web-port", port]
        process = start(folder, BUSY, *words, HARNESS_SIMULATOR_LOG=str(log))
        threading.Thread(target=(process.stderr or sys.stdin).read, daemon=True).start()
        url = f"http://127.0.0.1:{port}"
        for _ in range(200):
            try:
                ask(url + "/stats/requests")
                break
            except OSError:
                time.sleep(0.1)
        ask(url + "/swarm", user_count=16, spawn_rate=16)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if polls_per_s:
                ask(url + "/stats/requests")
            time.sleep(1 / (polls_per_s or POLLS_PER_S))
        process.send_signal(signal.SIGINT)
        process.wait()
        return errors(folder / "out", log)


def errors(out: Path, log: Path) -> tuple[float, float, float, float]:
    """Hold records against the simulator's log; tests/integration/test_bounds.py says what that proves."""
    origin = json.loads((out / "run.json").read_text())["origin_monotonic_ns"]
    lines = map(json.loads, log.read_text().splitlines())
    sends = {line["call_id"]: [at - origin for at, _, _ in line["sends"]] for line in lines}
    events = {one.call_id: one for one in read_records(out, "events.jsonl", EventsRecord)}
    error_us, inside = [np.zeros(0)], [np.zeros(0)]
    count = 0
    for call in read_records(out, "calls.jsonl", CallRecord):
        low, high = event_bounds(call, events[call.call_id])
        sent = np.array(sends.get(call.call_id, [])[: len(high)])
        if not sent.size or len(sent) != len(high):
            continue
        count += len(sent)
        error_us.append(((high - sent) / 1e3)[high - low <= EXACT_NS])
        inside.append((sent <= high + EXACT_NS) & (low <= sent + PATH_NS))
    exact = np.concatenate(error_us)
    p50, p99 = np.quantile(exact, [0.5, 0.99], method="inverted_cdf")
    return float(p50), float(p99), len(exact) / count, float(np.concatenate(inside).mean())


def main() -> None:
    users = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    rounds = [spawned(users) for _ in range(ROUNDS)]
    seconds, locust_kb, engine_kb = (statistics.median(column) for column in zip(*rounds, strict=True))
    held = seconds < SPAWN_BAR_S and locust_kb + engine_kb <= MEMORY_BAR_KB
    print(
        f"{users:,} Locust users on one worker: spawned in {seconds:.2f} s, {locust_kb:.1f} KB each in Locust"
        f" and {engine_kb:.1f} KB in the engine (bars {SPAWN_BAR_S:g} s, {MEMORY_BAR_KB:g} KB):"
        f" {'HOLDS' if held else 'MISSED'}; median of {ROUNDS}; load {os.getloadavg()[0]:.1f}"
    )
    for polls in (0, POLLS_PER_S) * 2:
        p50, p99, exact, inside = polled(polls_per_s=polls, seconds=12)
        print(
            f"web interface asked {polls:2} times a second: error of exact events p50 {p50:.0f} us,"
            f" p99 {p99:.0f} us; exact {exact:.0%}, inside bounds {inside:.2%}; load {os.getloadavg()[0]:.1f}"
        )


if __name__ == "__main__":
    main()
