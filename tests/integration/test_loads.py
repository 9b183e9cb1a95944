"""Kinds of load through whole runs: by time, open, by turns; and twice the same machine."""

import itertools

import pytest

from tests.integration.running import B200, only_late, run, scenario, simulated

TWO = {"one": simulated(B200), "other": simulated(B200)}
LONG = [f"gpt-oss-120b-on-eight-b200-in-{place}-by-the-hour" for place in ("frankfurt", "oregon", "tokyo")]


def test_a_run_by_time_ends_when_its_time_is_over(tmp_path):
    path = scenario(tmp_path, TWO, load='kind = "closed"\nusers = 2\ntasks = 1000')
    ended, out = run(tmp_path, path, "--duration", "0.8", "--backend", "one")
    [phases] = out.json("run")["phases"]
    assert ended.code == 0 or only_late(out)  # what was planned and sent holds on a busy machine, too
    assert list(out.json("summary")["backends"]) == ["one"]
    assert phases["drain"] >= 800_000_000
    assert 2 <= len(out.tasks()) < 100
    assert all(task["scheduled_ns"] < phases["drain"] for task in out.tasks())
    assert {task["phase"] for task in out.tasks()} == {"measure"}


@pytest.mark.parametrize("arrivals", ["constant", "poisson"])
def test_an_open_load_starts_tasks_on_plan_on_both(tmp_path, arrivals):
    load = f'kind = "open"\narrivals = "{arrivals}"\ntasks_per_s = 12.0\nmeasure_s = 1.0\nwarm_up_s = 0.3'
    ended, out = run(tmp_path, scenario(tmp_path, TWO, load=load))
    assert ended.code == 0 or only_late(out)  # what was planned and sent holds on a busy machine, too
    plans = [[(t["k"], t["scheduled_ns"]) for t in in_order(out.tasks(name))] for name in TWO]
    assert plans[0] == plans[1]
    times = [at for _, at in plans[0]]
    gaps = {b - a for a, b in itertools.pairwise(times)}
    assert times[0] >= 300_000_000
    assert times[-1] < 1_300_000_000
    assert (max(gaps) - min(gaps) <= 1) is (arrivals == "constant")
    assert out.tasks(phases=["warm-up"])


def in_order(tasks):
    return sorted(tasks, key=lambda task: task["scheduled_ns"])


def test_an_open_load_over_its_cap_tells_what_was_never_sent(tmp_path):
    load = 'kind = "open"\narrivals = "constant"\ntasks_per_s = 40.0\nmeasure_s = 1.0\nin_flight_max = 1'
    ended, out = run(tmp_path, scenario(tmp_path, {"one": simulated(B200)}, load=load))
    tasks = out.json("summary")["backends"]["one"]["workloads"]["demo"]["tasks"]
    assert ended.code == 0 or only_late(out)  # what was planned and sent holds on a busy machine, too
    assert tasks["dropped"] > 0
    assert tasks["scheduled"] == 40 == tasks["dropped"] + len(out.tasks())
    assert "asked 40 tasks/s, achieved " in out.findings()["unsent_tasks"]


def test_turns_give_one_user_both_backends(tmp_path):
    load = 'kind = "closed"\nusers = 1\ntasks = 6\npairing = "alternate"'
    ended, out = run(tmp_path, scenario(tmp_path, TWO, load=load))
    tasks = in_order(out.tasks())
    assert ended.code == 0 or only_late(out)  # what was planned and sent holds on a busy machine, too
    assert [task["k"] for task in tasks] == [k for k in range(6) for _ in TWO]
    assert {tuple(task["backend"] for task in tasks[2 * k : 2 * k + 2]) for k in range(6)} == {
        ("one", "other"),
        ("other", "one"),
    }
    assert all(a["ended_ns"] <= b["started_ns"] for a, b in itertools.pairwise(tasks))


def test_one_profile_thrice_is_three_machines_each_with_its_whole_name(tmp_path):
    load = 'kind = "closed"\nusers = 1\ntasks = 2'
    path = scenario(tmp_path, {name: simulated(B200) for name in LONG}, load=load)
    ended, out = run(tmp_path, path)
    assert ended.code == 0 or only_late(out)  # what was planned and sent holds on a busy machine, too
    assert all(name in ended.out for name in LONG)
    ids = [[c["request_id"] for c in out.lines("calls") if c["backend"] == name] for name in LONG]
    assert ids[0] == ids[1] == ids[2]  # each machine counts its own jobs from 1
