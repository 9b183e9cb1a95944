"""How a run ends before its end: by Ctrl-C, by a kill, by a backend or a disk that goes away, by a fault."""

import json
import os
import resource
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness.simulator.process import simulators
from tests.integration.asking import eventually
from tests.integration.running import (
    B200,
    LONG_TASKS,
    Folder,
    at,
    end,
    harness,
    scenario,
    simulated,
    start,
)

MANY = 'kind = "closed"\nusers = 3\ntasks = 1000'


def begun(folder, path, *words, lines=4, **how):
    """Start a run and wait until it has kept so many calls."""
    process = start("run", path, "--out", folder / "out", *words, **how)
    calls = folder / "out" / "calls.jsonl"
    eventually(
        lambda: process.poll() is not None or (calls.exists() and calls.read_bytes().count(b"\n") >= lines)
    )
    assert process.poll() is None, process.stderr.read()
    return process


def check_joined(out):
    """What is on disk is whole and joins, however the run ended."""
    events = {line["call_id"] for line in out.lines("events")}
    assert {call["call_id"] for call in out.lines("calls")} <= events
    tasks = {task["task_id"]: task for task in out.lines("tasks")}
    for task in tasks.values():
        assert sum(call["task_id"] == task["task_id"] for call in out.lines("calls")) == task["calls"]


def test_ctrl_c_drains(tmp_path):
    process = begun(tmp_path, scenario(tmp_path, {"b": simulated()}, load=MANY))
    process.send_signal(signal.SIGINT)
    ended, out = end(process), Folder(tmp_path / "out")
    assert ended.code == 130
    assert "draining: open tasks may end; Ctrl-C again cuts them" in ended.err
    assert "Traceback" not in ended.err
    assert "somebody stopped this run" in ended.out
    assert out.findings()["interrupted"] == "somebody stopped this run"
    assert {task["outcome"] for task in out.lines("tasks")} == {"completed"}
    check_joined(out)
    counts = out.json("summary")["backends"]["b"]["workloads"]["demo"]["tasks"]
    assert counts["completed"] == len(out.tasks())
    assert counts["scheduled"] == 1000 == counts["completed"] + counts["dropped"]
    assert out.findings()["unsent_tasks"] == (
        f"not complete: {counts['dropped']} of 1000 planned tasks were never started:"
        " somebody stopped the run"
    )


INTERRUPTED_AT = """
import os, signal, sys
from harness.__main__ import main

class Interrupt:
    def find_spec(self, name, *rest):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
main()
"""
INTERRUPTED_IN = """
import os, signal, sys
import harness.{module} as module
from harness.__main__ import main

honest = module.{name}
def interrupted(*words, **more):
    os.kill(os.getpid(), signal.SIGINT)
    return honest(*words, **more)

module.{name} = interrupted
main()
"""


@pytest.mark.parametrize(
    "program",
    [
        *(
            pytest.param(INTERRUPTED_AT.format(module=module), id=f"at the import of {module}")
            for module in ("typer", "harness.scenario", "numpy", "harness.engine")
        ),
        *(
            pytest.param(INTERRUPTED_IN.format(module=module, name=name), id=f"in {module}.{name}")
            for module, name in (
                ("preparation", "read_scenario"),
                ("run", "describe"),
                ("run", "connect"),
                ("run", "raise_file_limit"),
            )
        ),
    ],
)
def test_ctrl_c_before_the_first_call_is_a_sentence_and_leaves_nothing(tmp_path, program):
    path = scenario(tmp_path, {"b": simulated()}, load=MANY)
    ended = harness("run", path, "--out", tmp_path / "out", "--tasks", "9", program=("-c", program))
    assert (ended.code, ended.out, ended.sentence()) == (130, "", "interrupted before the first call")
    assert not (tmp_path / "out").exists()


def test_ctrl_c_while_the_answer_is_made_says_where_the_records_are(tmp_path):
    path = scenario(tmp_path, {"b": simulated()}, load='kind = "closed"\nusers = 2\ntasks = 2')
    program = INTERRUPTED_IN.format(module="report", name="conclude")
    ended = harness("run", path, "--out", tmp_path / "out", "--quiet", program=("-c", program))
    told = f"interrupted; its records until then stay in {tmp_path / 'out'}"
    assert (ended.code, ended.sentence()) == (130, told)
    assert harness("report", tmp_path / "out").code == 0
    ended = harness("report", tmp_path / "out", program=("-c", program))
    assert (ended.code, ended.sentence()) == (130, "interrupted")


def test_ctrl_c_twice_cuts(tmp_path):
    path = scenario(tmp_path, {"b": simulated()}, load=MANY, workload=LONG_TASKS)
    process = begun(tmp_path, path, lines=3)  # every user waits now, as the agent program
    process.send_signal(signal.SIGINT)
    eventually(lambda: "draining" in process.stderr.readline())
    process.send_signal(signal.SIGINT)
    ended, out = end(process), Folder(tmp_path / "out")
    assert ended.code == 130
    assert ended.err.splitlines()[0] == "stopping now"
    cut = [task for task in out.tasks() if task["outcome"] == "cut"]
    assert len(cut) == 3
    assert all(task["reason"] == "the run ended" for task in cut)
    assert out.json("summary")["backends"]["b"]["workloads"]["demo"]["tasks"]["cut"] == 3
    assert {"interrupted", "cut_tasks"} <= set(out.findings())
    check_joined(out)


def test_a_killed_run_leaves_whole_records_and_no_simulator(tmp_path):
    process = begun(tmp_path, scenario(tmp_path, {"b": simulated()}, load=MANY))
    children = simulators_of(process.pid)
    assert len(children) == 1
    process.kill()
    ended, out = end(process), Folder(tmp_path / "out")
    assert ended.code == -signal.SIGKILL
    assert len(out.lines("calls")) >= 4
    assert {call["call_id"] for call in out.lines("calls")} <= {e["call_id"] for e in out.lines("events")}
    assert out.json("run")["scenario"]["name"] == "A small run"
    assert not (out.path / "summary.json").exists()
    assert eventually(lambda: not any(alive(pid) for pid in children))


def simulators_of(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid):
    """Whether it runs; a zombie that nobody has fetched does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_no_simulator_outlives_its_run(tmp_path):
    process = begun(
        tmp_path,
        scenario(tmp_path, {"b": simulated()}, load='kind = "closed"\nusers = 2\ntasks = 6'),
        lines=1,
    )
    [child] = simulators_of(process.pid)
    assert end(process).code in (0, 4)  # 4: this machine was too busy
    assert not alive(child)


def test_a_backend_that_dies_half_way_ends_the_run(tmp_path):
    with simulators([B200]) as server:
        backends = {"dying": at(server.urls()[0]), "living": simulated()}
        load = 'kind = "closed"\nusers = 6\nmeasure_s = 50\ndrain_s = 5'
        process = begun(tmp_path, scenario(tmp_path, backends, load=load), lines=20)
        server.stop()
        ended, out = end(process), Folder(tmp_path / "out")
    place = urlsplit(backends["dying"]["url"]).netloc
    why = (
        f"dying: given up: 10 calls in a row failed, the last: cannot connect to {place}: Connection refused"
    )
    assert ended.code == 4
    assert out.json("verdict")["reasons"][0] == why
    assert why in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err
    outcomes = [task["outcome"] for task in out.tasks("dying")]
    assert outcomes.count("failed") >= 10
    assert "completed" in outcomes
    assert {task["outcome"] for task in out.tasks("living")} == {"completed"}
    check_joined(out)


FAULTY = """
import sys
from dataclasses import replace
import harness.workloads as workloads
from harness.cli import main

def faulty(step, plan, history, parameters):
    if plan.k >= FIRST:
        raise ZeroDivisionError("nothing to share")
    return agent.run(step, plan, history, parameters)

agent = workloads.WORKLOADS["agent"]
workloads.WORKLOADS["agent"] = replace(agent, run=faulty)
main()
"""


@pytest.mark.parametrize("first", [0, 3], ids=["c01 a task that raises on each run", "on the fourth"])
def test_a_fault_of_ours_is_recorded_and_no_success(tmp_path, first):
    path = scenario(tmp_path, {"b": simulated()}, load='kind = "closed"\nusers = 1\ntasks = 50')
    ended = harness(
        "run", path, "--out", tmp_path / "out", program=("-c", FAULTY.replace("FIRST", str(first)))
    )
    out = Folder(tmp_path / "out")
    fault = "fault in the harness: ZeroDivisionError: nothing to share (<string>:9)"
    assert ended.code == 4
    assert out.json("verdict")["reasons"][0] == f"b: given up: b/demo/{first}: {fault}"
    assert f"this run is INVALID: b: given up: b/demo/{first}: {fault}" in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err
    assert [(t["k"], t["outcome"]) for t in out.tasks()] == [
        *((k, "completed") for k in range(first)),
        (first, "failed"),
    ]
    assert out.tasks()[first]["reason"] == fault
    assert out.json("summary")["backends"]["b"]["workloads"]["demo"]["tasks"]["dropped"] == 49 - first


def test_a_full_disk_ends_the_run_with_a_sentence(tmp_path):
    def little_room():  # no file may grow beyond this: the system says so as it does of a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    path = scenario(tmp_path, {"b": simulated()}, load=MANY)
    ended = harness("run", path, "--out", tmp_path / "out", "--quiet", preexec_fn=little_room)
    assert ended.code == 4
    assert ended.sentence() == (
        f"{tmp_path / 'out' / 'calls.jsonl'}: cannot be written: File too large;"
        " the run ends here, its records until then stay"
    )
    lines = (tmp_path / "out" / "calls.jsonl").read_bytes().split(b"\n")
    assert len(lines) > 20
    assert all(json.loads(line)["schema"] == 1 for line in lines[:-1])


def test_a_reader_who_goes_away_ends_no_run(tmp_path):
    path = scenario(tmp_path, {"b": simulated()}, load='kind = "closed"\nusers = 6\ntasks = 24')
    read, write = os.pipe()
    process = start("run", path, "--out", tmp_path / "out", stdout=write, stderr=write)
    os.close(write)
    assert os.read(read, 10) == b"time limit"
    os.close(read)
    process.wait(60)
    out = Folder(tmp_path / "out")
    assert process.returncode == (4 if out.json("verdict")["verdict"] == "INVALID" else 0)
    assert len(out.tasks()) == 24
