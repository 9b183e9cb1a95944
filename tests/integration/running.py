"""Ways to run `harness` as its users do: a scenario in a file, a process, a folder of results."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from harness.simulator.process import simulators

B200 = "b200x8-gpt-oss-120b-trtllm"
ULTRAFAST = "gpt-5.6-sol-ultrafast"
PATIENCE_S = 60
FILES = ("tasks.jsonl", "calls.jsonl", "events.jsonl")

# of agents that take their time: else the harness' own part of so short a task makes the run INVALID
SHORT_TASKS = """
[[workloads]]
kind = "agent"
preset = "demo"
length_scale = 0.02
tool_s_max = 0.02
agent_s = { value = 0.1 }
"""
LONG_TASKS = SHORT_TASKS.replace(
    "agent_s = { value = 0.1 }", "agent_s = { value = 9.0 }\ncalls = { value = 10 }"
)


def simulated(profile=B200, **said):
    return {"simulate": profile, **said}


def at(url, **said):
    return {"url": url, "model": "gpt-oss-120b", **said}


def scenario(folder, backends, *, load, workload=SHORT_TASKS, top=""):
    """Write a scenario; `backends` maps names to their keys, `load` is TOML lines."""
    tables = "\n".join(
        f"[backends.{name}]\n" + "\n".join(f"{key} = {_toml(value)}" for key, value in said.items())
        for name, said in backends.items()
    )
    path = Path(folder) / "scenario.toml"
    path.write_text(
        f'schema = 1\nname = "A small run"\nseed = 7\n{top}\n{tables}\n{workload}\n[load]\n{load}\n'
    )
    return path


def _toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


@dataclass
class Ended:
    """A process that has ended."""

    code: int
    out: str
    err: str

    def sentence(self):
        """The only line on standard error: what a person is told, no traceback."""
        [line] = self.err.splitlines()
        return line


def start(*words, env=None, program=("-m", "harness"), **how):
    """Start `harness WORDS` in a process group of its own, so that a signal reaches no other."""
    return subprocess.Popen(
        [sys.executable, *program, *map(str, words)],
        stdout=how.pop("stdout", subprocess.PIPE),
        stderr=how.pop("stderr", subprocess.PIPE),
        text=True,
        process_group=0,
        env=os.environ | (env or {}),
        **how,
    )


def end(process):
    out, err = process.communicate(timeout=PATIENCE_S)
    return Ended(process.returncode, out, err)


def harness(*words, **how):
    return end(start(*words, **how))


class Folder:
    """What a run wrote. Every line must parse."""

    def __init__(self, path):
        self.path = Path(path)

    def lines(self, name):
        text = (self.path / f"{name}.jsonl").read_text()
        assert text == "" or text.endswith("\n"), "a torn line"
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def json(self, name):
        return json.loads((self.path / f"{name}.json").read_text())

    def tasks(self, backend=None, phases=("measure", "tail")):
        return [
            task
            for task in self.lines("tasks")
            if task["phase"] in phases and backend in (None, task["backend"])
        ]

    def findings(self):
        return {finding["name"]: finding["detail"] for finding in self.json("summary")["findings"]}


def late(folder):
    """Whether a run is INVALID for this machine being busy with something else."""
    verdict = folder.json("verdict")
    words = ("ms late at p99", "the harness itself took")
    return verdict["verdict"] == "INVALID" and any(w in why for why in verdict["reasons"] for w in words)


def only_late(folder):
    """Whether a run is INVALID for nothing but this machine being busy with something else."""
    verdict = folder.json("verdict")
    words = ("ms late at p99", "the harness itself took")
    return verdict["verdict"] == "INVALID" and all(any(w in why for w in words) for why in verdict["reasons"])


def run_once(folder, path, *words, **how):
    """Run a scenario into FOLDER; for tests of what is counted, which holds on a busy machine, too."""
    out = Folder(folder)
    return harness("run", path, "--out", out.path, *words, **how), out


def run(folder, path, *words, **how):
    """Run a scenario into FOLDER/out, again if this machine was too busy to keep the plan."""
    for place in ("out", "again", "once-more"):
        ended, out = run_once(Path(folder) / place, path, *words, **how)
        if ended.code != 4 or not (out.path / "verdict.json").exists() or not only_late(out):
            break
    return ended, out


@contextlib.contextmanager
def serving(*profiles):
    """Simulators at a URL, as if they were real backends."""
    with simulators(profiles or [B200]) as process:
        yield process.urls()[0]


@contextlib.contextmanager
def answering(answer):
    """A server whose every POST gets `answer(headers) -> (status, content type, bytes)`; gives its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            status, kind, body = answer(self.headers)
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
