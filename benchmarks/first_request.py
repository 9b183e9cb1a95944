"""How soon `harness run` sends its first request: from exec to the simulator's log, five times.

python benchmarks/first_request.py
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DEMO = Path(__file__).parents[1] / "scenarios" / "demo.toml"
RUNS = 5
PATIENCE_S = 30


def first_request_s(folder: Path) -> float:
    """Start the demo and give the seconds until a simulator had its first request; the run is then cut."""
    log = folder / "sends.jsonl"
    command = [sys.executable, "-m", "harness", "run", str(DEMO), "--out", str(folder / "out"), "--quiet"]
    # what is compiled stays on disk, as for everybody: some machines switch that off for the sake of tests
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    began_ns = time.monotonic_ns()  # the axis of the log
    process = subprocess.Popen(
        command,
        env=environment | {"HARNESS_SIMULATOR_LOG": str(log)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    while not (log.exists() and b"\n" in log.read_bytes()):  # a line is written when its answer has ended
        if process.poll() is not None or time.monotonic_ns() - began_ns > PATIENCE_S * 1e9:
            process.kill()
            sys.exit("the run made no request")
        time.sleep(0.01)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)  # the second one cuts
        time.sleep(0.1)
    received_ns = min(json.loads(line)["received_ns"] for line in log.read_text().splitlines())
    return (received_ns - began_ns) / 1e9


def first_requests_s() -> list[float]:
    """Measure it RUNS times."""
    times_s = []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            times_s.append(first_request_s(Path(folder)))
    return times_s


if __name__ == "__main__":
    print("  ".join(f"{value:.3f} s" for value in first_requests_s()))
