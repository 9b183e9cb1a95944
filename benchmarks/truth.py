"""Servers on loopback whose events tell when they were sent, each in a process of its own.

`sse_server.c`, where it is (the folder HARNESS_TRUTH_SERVER, else `../shared/truth_server` beside the
checkout) and a C compiler is; it speaks no TLS. Else, and for TLS, `truth_server.py`.
"""

import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import trustme
from numpy.typing import NDArray

Times = NDArray[np.int64]

HERE = Path(__file__).parent
FOLDER = "HARNESS_TRUTH_SERVER"
BESIDE = HERE.parents[1] / "shared" / "truth_server"

RATE = 750
"""Tokens a second of each stream: what the fastest backend on sale streams."""

TTFT_NS = 100_000_000
PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Tls:
    """A certificate for loopback with its key, and a context that trusts it."""

    cert: Path
    key: Path
    trust: ssl.SSLContext


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


@dataclass(frozen=True, slots=True)
class Stream:
    """What the server said of one answer; times in ns on CLOCK_MONOTONIC, one entry an output event.

    sent, written: the server's clock just before the write, and one it read behind it. asked_ns: when it
    had read the request.
    """

    sent: Times
    written: Times
    asked_ns: int


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
def serving(binary: Path | None, *, tokens: int, tls: Tls | None = None) -> Iterator[Server]:
    """Run a server whose answers have `tokens` events: the C one, or ours if `binary` is None or for TLS."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ours = [sys.executable, str(HERE / "truth_server.py")]
    command = ours if binary is None or tls is not None else [str(binary)]
    command += ["--port", str(port), "--rate", str(RATE), "--tokens", str(tokens)]
    command += ["--ttft-ms", str(TTFT_NS // 1_000_000)]
    if tls is not None:
        command += ["--cert", str(tls.cert), "--key", str(tls.key)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(port)
            yield Server(f"http{'s' if tls else ''}://127.0.0.1:{port}/v1", tls and tls.trust)
        finally:
            process.terminate()


def told(bodies: list[bytes]) -> list[Stream]:
    """Read the truth out of the bodies that one server sent."""
    bodies_events = [[orjson.loads(line[6:]) for line in _lines(body)] for body in bodies]
    clocks = np.unique([event["t_ns"] for events in bodies_events for event in events])
    return [_stream(events, clocks) for events in bodies_events]


def _lines(body: bytes) -> list[bytes]:
    return [line for line in body.split(b"\n\n") if line[6:7] == b"{"]


def _stream(events: list[dict[str, object]], clocks: Times) -> Stream:
    """Of one thread, the next reading of its clock lies behind the write; our server told it exactly."""
    output = [event for event in events if event["choices"][0]["delta"]]
    began = np.array([event["t_ns"] for event in output])
    schedule = np.arange(len(output)) * int(1e9 / RATE)
    asked_ns = int((began - schedule).min()) - TTFT_NS  # no event is early, and some are in time
    if "last_ns" in events[0]:
        sent, written = np.array([event["last_ns"] for event in events[1:]])[: len(output)].T
        return Stream(sent, written, asked_ns)
    behind = np.append(clocks, np.iinfo(np.int64).max)
    return Stream(began, behind[np.searchsorted(clocks, began, side="right")], asked_ns)


def certificate(folder: Path) -> Tls:
    """Make a certificate and its key in `folder`."""
    authority, trust = trustme.CA(), ssl.create_default_context()
    issued, cert, key = authority.issue_cert("127.0.0.1"), folder / "cert.pem", folder / "key.pem"
    issued.cert_chain_pems[0].write_to_path(str(cert))
    issued.private_key_pem.write_to_path(str(key))
    authority.configure_trust(trust)
    return Tls(cert, key, trust)


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
