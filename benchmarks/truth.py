"""Servers on loopback whose events tell when they were sent, each in a process of its own.

`sse_server.c`, where it is (the folder HARNESS_TRUTH_SERVER, else `../shared/truth_server` beside the
checkout) and a C compiler is; it speaks no TLS. Else, and for TLS, the one of `harness selftest`.
"""

import os
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from harness.selftest.command import loopback
from harness.selftest.truth import Times, Truth, events_of
from harness.selftest.truth import told as told_by_ours
from harness.simulator.process import truth_server

HERE = Path(__file__).parent
FOLDER = "HARNESS_TRUTH_SERVER"
BESIDE = HERE.parents[1] / "shared" / "truth_server"

RATE = 750
"""Tokens a second of each stream: what the fastest backend on sale streams."""

TTFT_NS = 100_000_000
PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; `url` is the base of its paths."""

    url: str
    trust: ssl.SSLContext | None

    def stats(self) -> dict[str, int]:
        """Ask what it has sent so far (`events`, `done`) and how late (`late_over_1ms`, `max_late_ns`)."""
        stats = self.url.removesuffix("/v1") + "/stats"
        with urllib.request.urlopen(stats, context=self.trust, timeout=PATIENCE_S) as response:
            return orjson.loads(response.read())


def compiled(folder: Path) -> Path | None:
    """Build the C server into `folder`; None where there is no source or no compiler."""
    source = Path(os.environ.get(FOLDER) or BESIDE) / "sse_server.c"
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not source.exists() or compiler is None:
        return None
    binary = folder / "sse_server"
    subprocess.run([compiler, "-O2", "-pthread", "-o", str(binary), str(source)], check=True)
    return binary


@contextmanager
def serving(binary: Path | None, *, tokens: int, tls: bool = False) -> Iterator[Server]:
    """Run a server whose answers have `tokens` events: the C one, or ours if `binary` is None or for TLS."""
    words = ["--rate", str(RATE), "--tokens", str(tokens), "--ttft-ms", str(TTFT_NS // 1_000_000)]
    if binary is None or tls:
        with loopback() as (pem, trust), truth_server(*words, pem=pem) as ours:
            yield Server(ours.urls()[tls], trust if tls else None)
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(binary), "--port", str(port), *words]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(port)
            yield Server(f"http://127.0.0.1:{port}/v1", None)
        finally:
            process.terminate()


def told(bodies: list[bytes]) -> list[Truth]:
    """Read the truth out of the bodies that one server sent."""
    bodies_events = [events_of(body) for body in bodies]
    if "last_ns" in bodies_events[0][0]:
        return [told_by_ours(body) for body in bodies]
    clocks = np.unique([event["t_ns"] for events in bodies_events for event in events])
    return [_told_by_c(events, clocks) for events in bodies_events]


def _told_by_c(events: list[dict[str, Any]], clocks: Times) -> Truth:
    """Of one thread, the next reading of its clock lies behind the write."""
    sent = np.array([event["t_ns"] for event in events if event["choices"][0]["delta"]])
    schedule = np.arange(len(sent)) * int(1e9 / RATE)
    asked_ns = int((sent - schedule).min()) - TTFT_NS  # no event is early, and some are in time
    behind = np.append(clocks, np.iinfo(np.int64).max)
    return Truth(sent, behind[np.searchsorted(clocks, sent, side="right")], asked_ns)


def _wait_for(port: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return
