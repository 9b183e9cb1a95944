"""Starts servers that nobody here wrote, each a process of its own at a free port of 127.0.0.1."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

PLACES = os.pathsep.join([f"{sys.prefix}/bin", f"{sys.prefix}/node/bin", os.environ.get("PATH", os.defpath)])
"""Where programs are looked for: this virtual environment, what tests/servers/install put there, PATH."""

PATIENCE_S = 20


def found(program):
    """Where a program stands, or None."""
    return shutil.which(program, path=PLACES)


@contextlib.contextmanager
def aimock(folder, fixtures):
    """@copilotkit/aimock that answers by `fixtures`, the first that matches exactly; gives its URL."""
    file = Path(folder) / "fixtures.json"
    file.write_text(json.dumps({"fixtures": fixtures}))
    words = ("--port", "0", "--fixtures", file, "--strict", "--validate-on-load")
    with _started(folder, "aimock", *words, env={"AIMOCK_STRICT_TURN_INDEX": "1"}) as url:
        yield url


@contextlib.contextmanager
def llmock(folder):
    """PyPI's llmock; gives its URL."""
    with _started(folder, "llmock", "serve", "--host", "127.0.0.1", "--port", "0") as url:
        yield url


@contextlib.contextmanager
def prometheus(folder, port, *, every="3s"):
    """Debian's Prometheus with data of its own, scraping 127.0.0.1:PORT as job `harness`; gives its URL."""
    folder = Path(folder) / "prometheus"
    folder.mkdir()
    config = {
        "global": {"scrape_interval": every, "scrape_timeout": every},
        "scrape_configs": [
            {"job_name": "harness", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]},
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    address = f"127.0.0.1:{free_port()}"
    words = (f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data")
    with _running(folder, "prometheus", *words, f"--web.listen-address={address}") as (process, log):
        _wait_for(f"http://{address}/-/ready", process, log)
        yield f"http://{address}"


def free_port():
    """A port of loopback that nobody has now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ask(url, *, method="GET", body=None):
    """Speak JSON with a server's own control interface."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer)


@contextlib.contextmanager
def _started(folder, program, *words, env=None):
    """Run a program until the with-block ends; its log tells the port that it was given."""
    with _running(folder, program, *words, env=env) as (process, log):
        yield _url(process, log)


@contextlib.contextmanager
def _running(folder, program, *words, env=None):
    place = found(program)
    assert place is not None, f"{program} is not installed: make .venv/servers, or .ci/run"
    log = Path(folder) / f"{program}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [place, *map(str, words)],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PATH": PLACES} | (env or {}),
        )
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


def _url(process, log):
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        if told := re.search(r"(?:running|listening) on (http://127\.0\.0\.1:[1-9]\d*)", log.read_text()):
            return told[1]
        time.sleep(0.02)
    raise AssertionError(f"it does not listen: {log.read_text()}")


def _wait_for(url, process, log):
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError):  # not up yet
            urllib.request.urlopen(url, timeout=PATIENCE_S).close()
            return
        time.sleep(0.02)
    raise AssertionError(f"it does not answer: {log.read_text()}")
