"""One scenario by `harness run` and under Locust in four ways: the same DIR, tasks and rule."""

import pytest

from tests.integration.locusting import ended, reconciled, tree
from tests.integration.running import Folder, harness, late, scenario, simulated

FILES = {"run.json", "tasks.jsonl", "calls.jsonl", "events.jsonl", "summary.json", "verdict.json"}
BACKENDS = {
    "standard": simulated("gpt-5.6-sol-standard"),
    "ultrafast": simulated("gpt-5.6-sol-ultrafast"),
}
LOAD = 'kind = "closed"\nusers = 4\nramp_s = 0.5\nwarm_up_s = 0.5\ntasks = 16'
ASKED = '[objectives]\ntask_time = ["p50 <= {limit}"]\n[compare]\nbaseline = "standard"\n'


def by_harness(path, out, one):
    return harness("run", path, "--out", out)


def by_harness_workers(path, out, one):
    return harness("run", path, "--out", out, "--workers", 2)


def alone(path, out, one):
    return ended(one.headless("--scenario", path, "--out", out))


def by_processes(path, out, one):
    return ended(one.headless("--processes", 2, "--scenario", path, "--out", out))


def by_master(path, out, one):
    workers = [one.worker(), one.worker()]
    master = one.master("--scenario", path, "--out", out, workers=2)
    told = ended(master)
    assert [ended(worker).code for worker in workers] == [0, 0]
    return told


WAYS = [by_harness, by_harness_workers, alone, by_processes, by_master]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("limit", "code"), [("20s", 0), ("1ms", 1)], ids=["pass", "fail"])
def test_the_same_scenario_gives_the_same_run_whatever_starts_it(tmp_path, way, limit, code):
    path = scenario(tmp_path, BACKENDS, load=LOAD, top=ASKED.format(limit=limit))
    for place in ("out", "again", "once-more"):  # this machine may be too busy to keep a plan
        with tree() as one:
            told = way(path, tmp_path / place, one)
            assert one.left_after(5) == []
        out = Folder(tmp_path / place)
        if not late(out):
            break
    assert told.code == code, told.err
    assert {file.name for file in out.path.iterdir()} == FILES
    summary = reconciled(out)
    for name in BACKENDS:
        assert sorted(task["k"] for task in out.tasks(name)) == list(range(16))
        assert summary["backends"][name]["workloads"]["demo"]["tasks"]["completed"] == 16
    assert summary["compare"]["ultrafast"]["demo"]["pairs"] == 16
    assert summary["verdict"] == ("PASS" if code == 0 else "FAIL")
