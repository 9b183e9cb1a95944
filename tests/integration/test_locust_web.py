"""Locust's own ways of steering: web interface, load shapes, ramp-down; and workers on other machines."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import pytest

from tests.integration.locusting import AGENTS, ended, reconciled, tasks_in, tree, until
from tests.integration.running import LONG_TASKS, Folder, at, scenario, serving, simulated
from tests.servers.starting import free_port

TWO = {"a": simulated(), "b": simulated()}
CLOSED = 'kind = "closed"\nusers = 2\nmeasure_s = 600\ndrain_s = 20'


def asked(url, **form):
    """Ask the web interface; a form is posted."""
    data = urllib.parse.urlencode(form).encode() if form else None
    with urllib.request.urlopen(url, data, timeout=60) as answer:
        return answer.read().decode()


def up(url):
    try:
        return asked(url)
    except OSError:
        return None


class Web:
    """Locust's web interface, as a browser uses it."""

    def __init__(self, path, out, *, port):
        self.url = f"http://127.0.0.1:{port}"
        self.form = {"user_count": 4, "spawn_rate": 10, "scenario": str(path), "out": str(out)}
        self.page = until(lambda: up(self.url + "/"), what="the web interface")

    def swarm(self, **changed):
        return json.loads(asked(self.url + "/swarm", **self.form | changed))

    def stats(self):
        return json.loads(asked(self.url + "/stats/requests"))

    def edit(self, users):
        asked(self.url + "/swarm", user_count=users, spawn_rate=10)
        until(lambda: self.stats()["user_count"] == users, what=f"{users} users")

    def workers(self, state, *, number):
        until(
            lambda: [w["state"] for w in self.stats().get("workers", [])] == [state] * number,
            what=f"{state} workers",
        )

    def stop(self):
        asked(self.url + "/stop", stop="now")
        until(lambda: self.stats()["state"] == "stopped", what="the stop")


@pytest.mark.parametrize("processes", [0, 2], ids=["alone", "two processes"])
def test_runs_are_started_edited_and_stopped_in_the_web_interface_each_with_a_dir(tmp_path, processes):
    path, out, again = scenario(tmp_path, TWO, load=CLOSED), tmp_path / "out", tmp_path / "out-2"
    port = free_port()
    with tree() as one:
        words = ["--web-host", "127.0.0.1", "--web-port", port, "--scenario", path, "--out", out]
        process = one.locust(*words, *["--processes", processes][: processes and 2], *one.place)
        web = Web(path, out, port=port)
        assert '"scenario"' in web.page  # the start form asks for it
        web.workers("ready", number=processes)
        wrong = web.swarm(scenario="no-such.toml")
        assert wrong["success"] is False
        assert "no-such.toml" in wrong["message"]
        assert web.swarm()["success"]
        until(lambda: tasks_in(out) >= 8, what="tasks")
        web.edit(8)
        time.sleep(1.5)  # users are noted once a second
        web.edit(4)
        web.stop()
        until((out / "verdict.json").exists, what="the first verdict")
        web.workers("ready", number=processes)
        assert web.swarm()["success"]
        until(lambda: tasks_in(again) >= 4, what="tasks of the second run")
        os.kill(process.pid, signal.SIGINT)
        told = ended(process)
        assert one.left_after(5) == []
    assert told.code == 130, told.err
    first, second = reconciled(out), reconciled(again)
    assert {finding["name"] for finding in first["findings"]} & {"interrupted", "worker_lost"} == set()
    assert "interrupted" in {finding["name"] for finding in second["findings"]}
    users = [span["wanted"] for span in Folder(out).json("run")["users"]]
    assert (max(users), users[-1]) == (8, 4)
    for name in TWO:
        ks = [task["k"] for task in Folder(out).tasks(name)]
        assert len(ks) == len(set(ks)) >= 4


SHAPE = """
from pathlib import Path
from locust import LoadTestShape
from harness.bridge.plug import plug_in
from harness.bridge.users import AgentUser

plug_in(scenario=Path("none.toml"))


class Agent(AgentUser):
    abstract = False


class Steps(LoadTestShape):
    def tick(self):
        seconds = self.get_run_time()
        return (2, 2) if seconds < 4 else (6, 6) if seconds < 9 else (2, 6) if seconds < 12 else None
"""


def test_a_load_shape_rules_users_and_the_end(tmp_path):
    path = scenario(tmp_path, TWO, load='kind = "closed"\nusers = 50\ntasks = 1\ndrain_s = 20')
    file = tmp_path / "shaped.py"
    file.write_text(SHAPE)
    with tree() as one:
        told = ended(one.headless("--scenario", path, "--out", tmp_path / "out", file=file))
        assert one.left_after(5) == []
    assert told.code in (0, 4), told.err  # 4: this machine was too busy
    reconciled(tmp_path / "out")
    spans = Folder(tmp_path / "out").json("run")["users"]  # a new one where users are missing, too
    users = [wanted for wanted, _ in itertools.groupby(span["wanted"] for span in spans)]
    assert users in ([2, 6, 2], [6, 2])  # engines that are slow to start miss the shape's first step
    assert len(Folder(tmp_path / "out").tasks("a")) > 1  # the scenario's own end does not hold


def test_users_that_ramp_down_let_their_task_end_first(tmp_path):
    path = scenario(tmp_path, TWO, load=CLOSED, workload=LONG_TASKS)
    port, out = free_port(), tmp_path / "out"
    with tree() as one:
        words = ["--web-host", "127.0.0.1", "--web-port", port, "--stop-timeout", 60]
        process = one.locust(*words, "--scenario", path, "--out", out)
        web = Web(path, out, port=port)
        assert web.swarm()["success"]
        until(lambda: (out / "calls.jsonl").exists() and (out / "calls.jsonl").stat().st_size, what="a call")
        asked(web.url + "/swarm", user_count=2, spawn_rate=10)  # two of four are asked to go
        time.sleep(2)
        assert tasks_in(out) == 0  # none of them was cut
        os.kill(process.pid, signal.SIGINT)
        time.sleep(1)
        os.kill(process.pid, signal.SIGINT)
        ended(process)
        assert one.left_after(5) == []
    assert {task["reason"] for task in Folder(out).lines("tasks")} == {"the run ended"}


def test_too_few_users_for_the_plan_and_other_mistakes_are_a_sentence(tmp_path):
    path = scenario(tmp_path, TWO, load='kind = "closed"\nusers = 2\ntasks = 4\nwarm_up_s = 5')
    with tree() as one:
        few = ended(one.headless("--processes", 2, "-u", 2, "--scenario", path, "--out", tmp_path / "a"))
        odd = ended(one.headless("-u", 3, "--scenario", path, "--out", tmp_path / "b"))
        short = ended(one.headless("-t", "4s", "--scenario", path, "--out", tmp_path / "c"))
        none = ended(one.headless("--scenario", tmp_path / "none.toml", "--out", tmp_path / "d"))
        assert one.left_after(5) == []
    assert [one.code for one in (few, odd, short, none)] == [2, 2, 2, 2]
    assert "2 users are too few: 2 workers with 2 kinds of users (one a backend) need at least 4" in few.err
    assert "3 users cannot be shared evenly by 2 backends" in odd.err
    assert "--run-time 4s: the scenario warms up for 5 s" in short.err
    assert "none.toml" in none.err
    assert not any("Traceback" in one.err for one in (few, odd, short, none))
    assert not any((tmp_path / name).exists() for name in "abcd")


def test_our_options_stand_among_locusts_own():
    # `locust --help` ends before it has read a locustfile (2.47), so the parser that it then makes is asked
    code = "import locustfile, locust.argument_parser as a; print(a.get_parser().format_help())"
    told = subprocess.run(
        [sys.executable, "-c", code.replace("locustfile", "agents")],
        capture_output=True,
        text=True,
        check=True,
        cwd=AGENTS.parent,
    )
    for word in ("--scenario", "--out", "--allow-lost-workers", "--prometheus-port", "HARNESS_SCENARIO"):
        assert word in told.stdout


OWN = """
from pathlib import Path
from locust import between, constant, tag, task
from harness.bridge.plug import plug_in
from harness.bridge.users import AgentUser

plug_in(scenario=Path("none.toml"))


@tag("fast")
class Fast(AgentUser):
    abstract = False


@tag("slow")
class Slow(AgentUser):
    abstract = False
    weight = 3
    wait_time = between(0.01, 0.02)
"""


def test_classes_tags_and_weights_of_a_locustfile_of_ones_own(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    path = scenario(tmp_path, TWO, load='kind = "closed"\nusers = 4\ntasks = 8\ndrain_s = 20')
    with tree() as one:
        words = ["--scenario", path, "--out"]
        told = ended(one.headless("-u", 4, "--processes", 2, *words, tmp_path / "both", file=file))
        slow = ended(one.headless("-T", "slow", *words, tmp_path / "slow", file=file))
        none = ended(one.headless("-T", "nosuch", *words, tmp_path / "none", file=file))
        assert one.left_after(5) == []
    assert told.code in (0, 4), told.err  # 4: this machine was too busy
    summary = reconciled(tmp_path / "both")
    assert all(
        backend["workloads"]["demo"]["tasks"]["completed"] == 8 for backend in summary["backends"].values()
    )
    assert slow.code == none.code == 2
    assert "leave no task to Fast_a, Fast_b" in slow.err
    assert "leave no task to Fast_a, Fast_b, Slow_a, Slow_b" in none.err


def test_arrivals_of_an_open_load_are_the_plans_on_every_backend_and_a_late_worker_waits(tmp_path):
    load = 'kind = "open"\narrivals = "poisson"\ntasks_per_s = 3\ntasks = 30\ndrain_s = 30'
    path, out = scenario(tmp_path, TWO, load=load), tmp_path / "out"
    with tree() as one:
        workers = [one.worker(), one.worker()]
        master = one.master("--scenario", path, "--out", out, workers=2)
        until(lambda: tasks_in(out) >= 2, what="tasks")
        workers.append(one.worker())
        told = ended(master)
        assert [ended(worker).code for worker in workers] == [0, 0, 0]
        assert one.left_after(5) == []
    assert told.code in (0, 4), told.err  # 4: this machine was too busy
    reconciled(out)
    starts = {
        name: {t["k"]: t["scheduled_ns"] for t in Folder(out).tasks(name) if t["k"] == t["session"]}
        for name in TWO
    }
    assert set(starts["a"]) == set(range(30))
    assert starts["a"] == starts["b"]
    assert Folder(out).json("run")["users"][-1]["have"] == 2


@pytest.mark.parametrize("processes", [[], ["--processes", 2]], ids=["alone", "two processes"])
def test_users_that_ask_while_the_time_runs_out_are_told_that_it_is_over(tmp_path, processes):
    load = 'kind = "closed"\nusers = 6\nmeasure_s = 3\ndrain_s = 0.2'
    path = scenario(tmp_path, TWO, load=load)
    with tree() as one:
        told = ended(one.headless(*processes, "--scenario", path, "--out", tmp_path / "out"))
        assert one.left_after(5) == []
    assert "TaskGroup" not in told.err
    assert "is lost" not in told.err
    reconciled(tmp_path / "out")


ELSEWHERE = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']
"""A worker that does not see DIR, as on another machine; tmpfs hides it."""

rootly = pytest.mark.skipif(os.geteuid() != 0, reason="another view of the file system needs root")


@rootly
def test_a_worker_on_another_machine_keeps_its_events_and_the_answer_is_whole(tmp_path):
    own = tmp_path / "own"
    with serving() as url, tree() as one:
        path = scenario(
            tmp_path,
            {"a": at(url)},
            load='kind = "closed"\nusers = 4\ntasks = 12\ndrain_s = 20',
        )
        hidden = tmp_path / "hidden"
        hidden.mkdir()
        there = one.worker("--out", own, wrap=[*ELSEWHERE, str(hidden)])
        here = one.worker()
        told = ended(one.master("--scenario", path, "--out", hidden / "out", workers=2))
        assert [ended(one).code for one in (there, here)] == [0, 0]
    out = Folder(hidden / "out")
    assert told.code in (0, 4)  # 4: this machine was too busy
    summary = out.json("summary")
    [finding] = [one for one in summary["findings"] if one["name"] == "remote_events"]
    [far] = own.iterdir()
    assert str(far) in finding["detail"]
    calls = {call["call_id"] for call in out.lines("calls")}
    near = {events["call_id"] for events in out.lines("events")}
    away = {json.loads(line)["call_id"] for line in far.read_text().splitlines()}
    assert near | away == calls
    assert away == {gaps["call_id"] for gaps in out.lines("gaps")}
    assert summary["backends"]["a"]["workloads"]["demo"]["tasks"]["completed"] == 12


@rootly
def test_a_disk_that_is_full_ends_the_run_with_a_sentence(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "none", small], check=True)
    try:
        path = scenario(tmp_path, TWO, load='kind = "closed"\nusers = 4\ntasks = 400\ndrain_s = 20')
        with tree() as one:
            told = ended(one.headless("--processes", 2, "--scenario", path, "--out", small / "out"))
            assert one.left_after(5) == []
    finally:
        subprocess.run(["umount", small], check=True)
    assert told.code == 4
    assert "cannot be written: No space left on device" in told.err
    assert "Uncaught exception" not in told.err


@rootly
def test_simulated_backends_cannot_be_reached_from_another_machine(tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    path = scenario(tmp_path, TWO, load='kind = "closed"\nusers = 2\ntasks = 4')
    with tree() as one:
        there, here = one.worker(wrap=[*ELSEWHERE, str(hidden)]), one.worker()
        told = ended(one.master("--scenario", path, "--out", hidden / "out", workers=2))
        assert [ended(one).code for one in (there, here)] == [0, 0]
        assert one.left_after(5) == []
    assert told.code == 2
    assert "simulated backends are on the machine that starts them" in told.err
    assert not (hidden / "out").exists()
