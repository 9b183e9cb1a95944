"""Servers on loopback that tell when they sent each output event: the simulator, and one written in C."""

import socket
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import trustme
from numpy.typing import NDArray

from harness.simulator.process import simulators
from harness.values import OnRead, Progress

Times = NDArray[np.int64]
Tls = tuple[Path, Path, ssl.SSLContext]

PROFILE, SLOTS = "gpt-5.6-sol-ultrafast", 16
START_S = 0.2


@dataclass(frozen=True, slots=True)
class Server:
    """A running server of `urls`. To be asked after the streams, which are numbered from 0 in their start.

    `wrap` goes around each stream's on_read. `late()`: the server's own lateness in us. `sent()`: for
    each stream, the clock (monotonic ns) just before each output event's write.
    """

    urls: list[str]
    wrap: Callable[[OnRead], OnRead]
    late: Callable[[], str]
    sent: Callable[[], list[Times]]


@contextmanager
def simulator(streams: int, *, tls: Tls | None) -> Iterator[Server]:
    """Start as many simulated machines as the streams fill, in one process; its log is the truth."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "sends.jsonl"
        with simulators([PROFILE] * -(-streams // SLOTS), log=log, tls=tls and tls[:2]) as process:
            urls = process.urls()

            def late() -> str:
                stats = [_read_json(url.replace("/v1", "/stats"), tls and tls[2]) for url in urls]
                return "/".join(
                    f"{max(told[key] for told in stats):.0f}" for key in ("late_p50_us", "late_p99_us")
                )

            def sent() -> list[Times]:
                process.stop()
                lines = {line["call_id"]: line for line in map(orjson.loads, log.read_bytes().splitlines())}
                return [np.array([at for at, _, _ in lines[str(i)]["sends"]]) for i in range(streams)]

            yield Server(urls, lambda on_read: on_read, late, sent)


@contextmanager
def c_server(binary: str, *, tokens: int) -> Iterator[Server]:
    """Start the server at `binary`: one event a token, and the truth stands in each event as `t_ns`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url, bodies = f"http://127.0.0.1:{port}", list[list[bytes]]()

    def wrap(on_read: OnRead) -> OnRead:
        pieces: list[bytes] = []
        bodies.append(pieces)

        def keep(data: bytes, stamp: int) -> Progress:
            pieces.append(data)
            return on_read(data, stamp)

        return keep

    def sent() -> list[Times]:
        frames = [b"".join(pieces).split(b"\n\n") for pieces in bodies]
        events = [[orjson.loads(frame[6:]) for frame in body if frame[6:7] == b"{"] for body in frames]
        return [np.array([one["t_ns"] for one in body if one["choices"][0]["delta"]]) for body in events]

    command = [binary, "--port", str(port), "--rate", "750", "--tokens", str(tokens), "--ttft-ms", "50"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            time.sleep(START_S)
            late = lambda: f"max {_read_json(f'{url}/stats', None)['max_late_ns'] / 1000:.0f}"  # noqa: E731
            yield Server([f"{url}/v1"], wrap, late, sent)
        finally:
            process.terminate()


def certificate(folder: Path) -> Tls:
    """Make a certificate and its key in `folder`, and a context that trusts it."""
    authority, trust = trustme.CA(), ssl.create_default_context()
    issued, cert, key = authority.issue_cert("127.0.0.1"), folder / "cert.pem", folder / "key.pem"
    issued.cert_chain_pems[0].write_to_path(str(cert))
    issued.private_key_pem.write_to_path(str(key))
    authority.configure_trust(trust)
    return cert, key, trust


def _read_json(url: str, trust: ssl.SSLContext | None) -> dict[str, float]:
    with urllib.request.urlopen(url, context=trust, timeout=10) as response:
        return orjson.loads(response.read())
