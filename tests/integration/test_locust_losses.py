"""What dies in a run under Locust is named, costs the run its verdict, and leaves nothing behind."""

import os
import signal

import pytest

from tests.integration.locusting import ended, reconciled, tasks_in, tree, until
from tests.integration.running import Folder, late, scenario, simulated

BACKENDS = {
    "standard": simulated("gpt-5.6-sol-standard"),
    "ultrafast": simulated("gpt-5.6-sol-ultrafast"),
}
CLOSED = 'kind = "closed"\nusers = {users}\nramp_s = 0.5\ntasks = {tasks}\ndrain_s = 5'
OPEN = 'kind = "open"\narrivals = "poisson"\ntasks_per_s = 4\ntasks = 48\ndrain_s = 20'
COMPARED = '[compare]\nbaseline = "standard"\n'


def a_run(one, tmp_path, load, *words, workers=2):
    """Start a master and its workers; gives them and DIR when some tasks have ended."""
    path = scenario(tmp_path, BACKENDS, load=load, top=COMPARED)
    out = tmp_path / "out"
    started = [one.worker() for _ in range(workers)]
    master = one.master("--scenario", path, "--out", out, *words, workers=workers)
    until(lambda: tasks_in(out) >= 6 or master.poll() is not None, what="six tasks")
    return master, started, out


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def lost_in(summary):
    return {
        name: told["tasks"]["lost"]
        for name, backend in summary["backends"].items()
        for told in backend["workloads"].values()
    }


def test_d06_a_dead_worker_is_named_its_tasks_are_lost_and_the_run_is_invalid(tmp_path):
    with tree() as one:
        master, workers, out = a_run(one, tmp_path, CLOSED.format(users=20, tasks=160), workers=4)
        engines = one.engines()
        until(lambda: tasks_in(out) >= 100, what="half of the tasks")
        kill(workers[1])
        until(lambda: len(one.engines()) == len(engines) - 1, seconds=5, what="the end of its engine")
        told = ended(master)
        assert one.left_after(5) == []
    assert told.code == 4
    summary = reconciled(out)
    lost = lost_in(summary)
    assert all(0 < n <= 40 for n in lost.values())  # of its quarter of the plan what had not ended
    assert (
        summary["backends"]["ultrafast"]["workloads"]["demo"]["tasks"]["completed"] == 160 - lost["ultrafast"]
    )
    about = Folder(out).json("run")
    [dead] = [worker for worker in about["workers"] if worker["lost"]]
    assert dead["tasks"] > 0  # what it had told is kept
    spans = [span for span in about["users"] if span["from_s"] >= dead["lost_s"]]
    assert {(span["wanted"], span["have"]) for span in spans} == {
        (40, 30)
    }  # the shortage, from its second on
    [finding] = [one for one in summary["findings"] if one["name"] == "worker_lost"]
    assert f"worker {dead['index']}" in finding["detail"]
    assert any(f"worker {dead['index']}" in why for why in Folder(out).json("verdict")["reasons"])


def test_an_open_load_goes_on_without_a_dead_workers_share_which_is_named(tmp_path):
    with tree() as one:
        master, workers, out = a_run(one, tmp_path, OPEN)
        kill(workers[0])
        told = ended(master)
        assert one.left_after(5) == []
    assert told.code == 4
    summary = reconciled(out)
    [dead] = [worker for worker in Folder(out).json("run")["workers"] if worker["lost"]]
    share = set(range(dead["index"], 48, 2))
    for name, lost in lost_in(summary).items():
        ks = {task["k"] for task in Folder(out).tasks(name)}
        assert ks | share == set(range(48))  # the others' share is whole
        assert lost == len(share - ks) > 0
    [finding] = [one for one in summary["findings"] if one["name"] == "worker_lost"]
    assert f"every 2. session from number {dead['index']} on" in finding["detail"]


def test_a_dead_engine_is_a_lost_worker_too_and_a_run_may_be_allowed_to_lose_some(tmp_path):
    with tree() as one:
        load = CLOSED.format(users=4, tasks=60)
        master, workers, out = a_run(one, tmp_path, load, "--allow-lost-workers")
        os.kill(one.engines()[0], signal.SIGKILL)
        told = ended(master)
        assert [ended(worker).code for worker in workers] == [0, 0]
        assert one.left_after(5) == []
    verdict = Folder(out).json("verdict")
    assert not any("was lost" in why for why in verdict["reasons"])
    assert (told.code, verdict["verdict"]) == (0, "NONE") or late(Folder(out))
    [finding] = [one for one in reconciled(out)["findings"] if one["name"] == "worker_lost"]
    assert "its engine ended" in finding["detail"]


def test_when_all_workers_die_the_run_ends_and_says_so(tmp_path):
    with tree() as one:
        master, workers, out = a_run(one, tmp_path, CLOSED.format(users=4, tasks=60))
        for worker in workers:
            kill(worker)
        told = ended(master)
        assert one.left_after(5) == []
    assert told.code == 4
    assert len([1 for one in reconciled(out)["findings"] if one["name"] == "worker_lost"]) == 2


@pytest.mark.parametrize("forked", [False, True], ids=["workers apart", "--processes"])
def test_d12_nothing_outlives_a_master_that_is_killed(tmp_path, forked):
    load = CLOSED.format(users=4, tasks=200)
    with tree() as one:
        if forked:
            path = scenario(tmp_path, BACKENDS, load=load)
            out = tmp_path / "out"
            master = one.headless("--processes", 2, "--scenario", path, "--out", out)
            until(lambda: tasks_in(out) >= 6, what="six tasks")
        else:
            master, _, out = a_run(one, tmp_path, load)
        kill(master)
        assert one.left_after(5) == []
    assert Folder(out).lines("tasks")  # what had ended is there, every line whole
    assert Folder(out).lines("calls")
