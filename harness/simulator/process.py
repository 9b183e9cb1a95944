"""Simulated backends as a child process of whoever needs them."""

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import orjson

from harness.behaviour import Behaviour
from harness.errors import UsageError

STOP_S = 5.0


class SimulatorProcess:
    """A running server of `harness.simulator`; leaving the `with` block ends it.

    It is started at once and waited for in `urls`, so that the caller can import its own things
    meanwhile. The child ends with its parent, however that dies: it watches its stdin.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", errors: IO[bytes], *, listeners: int) -> None:
        self._process = process
        self._errors = errors
        self._listeners = listeners
        self._urls: list[str] = []

    def urls(self) -> list[str]:
        """Wait until all of it is served; its base URLs (`http://127.0.0.1:PORT/v1`) in order.

        Raises UsageError with the child's sentence if it could not start.
        """
        out = self._process.stdout
        while out and len(self._urls) < self._listeners:
            line = out.readline()
            if not line:
                self._process.wait()
                words = self._last_words()
                self.stop()
                raise UsageError(words)
            told = orjson.loads(line)
            self._urls.append(told["url"])
        return self._urls

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def stop(self) -> None:
        """End the child and wait for it; its log is complete then. May be called twice."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe:
                pipe.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"The simulator ended with exit code {self._process.returncode}."

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def simulators(
    profiles: Iterable[str],
    *,
    log: Path | None = None,
    seed: int = 0,
    port: int = 0,
    tls: tuple[Path, Path] | None = None,
    behaviours: Iterable[Behaviour | None] = (),
) -> SimulatorProcess:
    """Start a server of `profiles` at once and do not wait for it; one named twice is two machines.

    log: file for true send times. port: of the first profile, 0 for any free ones. tls: certificate and key.
    behaviours: of the profiles, in their order; those left out, and None, are as the profile says.
    """
    names = list(profiles)
    command = [sys.executable, "-m", "harness.simulator.server", "--watch-stdin"]
    command += ["--seed", str(seed), "--port", str(port)]
    for name in names:
        command += ["--profile", name]
    for behaviour in behaviours:
        told = (behaviour or Behaviour()).model_dump_json(exclude_defaults=True)
        command += ["--behaviour", told]
    if log:
        command += ["--log", str(log)]
    if tls:
        command += ["--tls-cert", str(tls[0]), "--tls-key", str(tls[1])]
    return serve(command, listeners=len(names))


def truth_server(*words: str, pem: Path | None = None) -> SimulatorProcess:
    """Start `harness.simulator.truth_server`; with `pem` (certificate and key) its second URL is TLS."""
    command = [sys.executable, "-m", "harness.simulator.truth_server", *words]
    return serve([*command, "--pem", str(pem)] if pem else command, listeners=2 if pem else 1)


def serve(command: list[str], *, listeners: int) -> SimulatorProcess:
    """Start a server that prints a JSON line with its `url` for each listener, and ends with its stdin."""
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process; a pipe could fill and block it
    # In a process group of its own: an interrupt from the keyboard must not end it before the run drains.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, process_group=0
    )
    return SimulatorProcess(process, errors, listeners=listeners)
