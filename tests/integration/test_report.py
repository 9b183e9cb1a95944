"""What is made from records alone: the same summary again, gates, comparisons, repeats."""

import itertools
import shutil
from pathlib import Path

import orjson
import pytest

from tests.integration.running import B200, at, harness, run, scenario, serving, simulated

BACKENDS = {
    "standard": {"simulate": "gpt-5.6-sol-standard"},
    "fast": {"simulate": "gpt-5.6-sol-ultrafast", "service_tier": "ultrafast"},
}
COMPARED = """
[objectives.fast]
task_time = "within(60s) >= 0.5"
[compare]
baseline = "standard"
fast = ["speedup_p50 >= 1", "cost_per_task <= 1000x"]
"""
"""As TOML, below the tables of the scenario."""


def compared(folder, *, load=None, top=COMPARED, backends=BACKENDS):
    path = scenario(folder, backends, load=load or 'kind = "closed"\nusers = 4\ntasks = 16')
    path.write_text(path.read_text() + top)
    return path


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    return run(folder, compared(folder))


def test_objectives_decide_the_verdict_and_the_exit_code(first):
    ended, folder = first
    verdict = folder.json("verdict")
    assert (ended.code, verdict["verdict"]) == (0, "PASS")
    assert [row["verdict"] for row in verdict["objectives"]] == ["PASS"] * 3
    found = folder.json("summary")["compare"]["fast"]["demo"]
    assert found["pairs"] == 16
    assert found["speedup_p50"]["value"] > 1
    cost = next(row for row in verdict["objectives"] if "cost_per_task" in row["objective"])
    assert cost["estimate"]["value"] > 3  # six times the price, and a little more or less work
    names = {finding["name"] for finding in folder.json("summary")["findings"]}
    assert "assumed_price" in names


def test_the_answer_says_it_in_a_sentence_a_plot_and_a_table(first):
    out = first[0].out
    assert "times as fast as on standard" in out
    assert "tasks done by" in out
    assert "against standard" in out
    assert "USD per completed task" in out
    assert "verdict PASS" in out
    order = [
        "times as fast",
        "tasks done by",
        "task time p50",
        "where the time goes",
        "USD in all",
        "verdict",
    ]
    assert [out.index(text) for text in order] == sorted(out.index(text) for text in order)


def test_2m6_report_makes_the_same_summary_from_the_records(first, tmp_path):
    folder = first[1]
    copy = tmp_path / "copy"
    shutil.copytree(folder.path, copy)
    for name in ("summary.json", "verdict.json"):
        (copy / name).unlink()
    ended = harness("report", str(copy))
    assert ended.code == 0
    for name in ("summary.json", "verdict.json"):
        assert (copy / name).read_bytes() == (folder.path / name).read_bytes()
    assert ended.out.replace(str(copy), "DIR") == first[0].out.replace(str(folder.path), "DIR")


def test_gate_decides_again(first, tmp_path):
    assert harness("gate", str(first[1].path)).code == 0
    strict = tmp_path / "strict"
    shutil.copytree(first[1].path, strict)
    about = orjson.loads((strict / "run.json").read_bytes())
    about["facts"]["objectives"]["held"][0]["objective"]["limit"] = 1.1  # nobody is done more often than that
    (strict / "run.json").write_bytes(orjson.dumps(about))
    ended = harness("gate", str(strict))
    assert ended.code == 1
    assert "verdict FAIL" in ended.out
    assert "fast/demo: task_time within(60s) >= 0.5" in ended.out


def test_a_run_is_not_slower_than_itself(first):
    path = str(first[1].path)
    ended = harness("gate", path, "--baseline", path)
    assert ended.code == 0
    assert "1.00 x" in ended.out
    assert harness("compare", path, path).code == 0


def test_a_slower_run_fails_against_a_faster_one(first, tmp_path):
    slower = tmp_path / "slower"
    shutil.copytree(first[1].path, slower)
    lines = (slower / "tasks.jsonl").read_bytes().splitlines()
    tasks = [orjson.loads(line) for line in lines]
    for task in tasks:
        task["ended_ns"] += 4 * (task["ended_ns"] - task["scheduled_ns"])
    (slower / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in tasks))
    ended = harness("gate", str(slower), "--baseline", str(first[1].path), "--allow-inconclusive")
    assert ended.code == 1
    assert "slower than in" in ended.out


def test_unlike_runs_are_refused(first, tmp_path):
    _, other = run(tmp_path, compared(tmp_path), "--seed", "99", "--tasks", "6")
    ended = harness("compare", str(first[1].path), str(other.path))
    assert ended.code == 2
    assert ended.err.strip().endswith("are unlike runs: they differ in seed, load")


def changed(folder, to, change):
    """Copy a run, with something else in its run.json."""
    shutil.copytree(folder, to)
    about = orjson.loads((to / "run.json").read_bytes())
    change(about)
    (to / "run.json").write_bytes(orjson.dumps(about))
    return to


def test_runs_with_other_numbers_of_users_are_compared_and_the_load_is_told(first, tmp_path):
    ours = first[1].path
    other = changed(ours, tmp_path / "one", lambda about: about["scenario"]["load"].update(users=1))
    ended = harness("compare", ours, other)
    assert ended.code == 0
    assert "pairs (bounded, lost)" in ended.out
    assert f"* the load differs: users a backend: 4 in {ours}, 1 in {other}; " in ended.out
    refused = harness("gate", other, "--baseline", ours)  # it asks about the backend: under the same load
    assert refused.code == 2
    assert refused.sentence() == f"{ours} and {other} are unlike runs: they differ in load"


def test_two_runs_of_one_backend_do_not_share_its_quota_and_each_is_named(tmp_path):
    """The runs were one after the other; a sentence about both says which one it means."""
    with serving(B200) as url:
        _, folder = run(tmp_path, compared(tmp_path, top="", backends={"mine": at(url)}), "--tasks", "4")

    def say(about):
        about["facts"]["backends"]["mine"]["identity"]["body"] = '{"user":"me"}'

    ours, other = folder.path, changed(folder.path, tmp_path / "other", say)
    ended = harness("compare", ours, other)
    assert ended.code == 0
    assert "both ask" not in ended.out
    assert f"* mine: mine in {ours} and mine in {other} differ in more than tier: request body" in ended.out


@pytest.mark.parametrize("command", ["report", "gate"])
def test_a_folder_without_a_run_is_told(command, tmp_path):
    ended = harness(command, str(tmp_path))
    assert ended.code == 2
    assert ended.err.strip() == f"{tmp_path}: no run here: run.json: No such file or directory"


def test_a_run_that_never_ended_is_told(first, tmp_path):
    half = tmp_path / "half"
    shutil.copytree(first[1].path, half)
    about = orjson.loads((half / "run.json").read_bytes())
    del about["facts"]
    (half / "run.json").write_bytes(orjson.dumps(about))
    ended = harness("report", str(half))
    assert ended.code == 2
    assert "did not come to its end" in ended.err


def doubled(path):
    path.write_bytes(path.read_bytes() * 2)


def changed_key(key, value):
    def change(path):
        path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | {key: value}))

    return change


@pytest.mark.parametrize(
    ("name", "harm", "told"),
    [
        ("events.jsonl", Path.unlink, "{path}: cannot be read: No such file or directory"),
        ("tasks.jsonl", Path.unlink, "{path}: cannot be read: No such file or directory"),
        ("tasks.jsonl", doubled, "{path}: "),
        ("calls.jsonl", doubled, "{path}: "),
        ("run.json", changed_key("schema", 2), "{path}: of schema 2; this version reads schema 1"),
        ("run.json", changed_key("scenario", None), "{path}: this is not about a run"),
        ("run.json", lambda path: path.write_text("[]"), "{path}: this is not about a run"),
        ("run.json", changed_key("facts", 3), "{path}: written by another version of the harness"),
    ],
    ids=["no events", "no tasks", "tasks twice", "calls twice", "schema", "no scenario", "a list", "facts"],
)
def test_an_odd_folder_is_told(first, tmp_path, name, harm, told):
    odd = tmp_path / "odd"
    shutil.copytree(first[1].path, odd)
    harm(odd / name)
    for words in (("report", odd), ("gate", odd), ("compare", first[1].path, odd)):
        ended = harness(*words)
        assert ended.code == 2
        assert ended.sentence().startswith(told.format(path=odd / name))


@pytest.mark.parametrize("name", ["tasks.jsonl", "calls.jsonl", "events.jsonl"])
@pytest.mark.parametrize("left", [0, -9], ids=["empty", "its last line torn"])
def test_a_folder_that_lacks_records_still_says_what_it_has(first, tmp_path, name, left):
    odd = tmp_path / "odd"
    shutil.copytree(first[1].path, odd)
    (odd / name).write_bytes((odd / name).read_bytes()[:left])
    assert harness("compare", first[1].path, odd).code == 0
    ended = harness("report", odd)
    assert ended.code == 0
    assert "Traceback" not in ended.err
    assert ("no task completed" in ended.out) is (name == "tasks.jsonl" and left == 0)


def test_repeats_do_the_same_tasks_again_in_one_folder(tmp_path):
    load = 'kind = "closed"\nusers = 4\ntasks = 4\nwarm_up_s = 0.3'
    quick = {"quick": simulated()}
    _, folder = run(tmp_path, compared(tmp_path, load=load, top="", backends=quick), "--repeat", "5")
    tasks = folder.tasks("quick")
    assert sorted((task["repeat"], task["k"]) for task in tasks) == [
        (r, k) for r in range(5) for k in range(4)
    ]
    assert len({task["task_id"] for task in folder.lines("tasks")}) == len(folder.lines("tasks"))
    by_repeat = [[task for task in tasks if task["repeat"] == r] for r in range(5)]
    for before, after in itertools.pairwise(by_repeat):
        assert max(t["ended_ns"] for t in before) <= min(t["scheduled_ns"] for t in after)
    summary = folder.json("summary")
    assert summary["intervals"] == "between runs"
    assert summary["backends"]["quick"]["workloads"]["demo"]["task_time"]["p50_s"]["n"] == 20
    ended = harness("report", str(folder.path))
    assert "intervals between runs" in ended.out


def test_an_inconclusive_run_exits_3_unless_allowed(tmp_path):
    top = '[objectives.quick]\ntask_time = "p99 <= 100s"\n'
    path = compared(tmp_path, top=top, backends={"quick": simulated()})
    ended, folder = run(tmp_path, path, "--tasks", "8")
    assert (ended.code, folder.json("verdict")["verdict"]) == (3, "INCONCLUSIVE")
    assert harness("gate", str(folder.path)).code == 3
    assert harness("gate", str(folder.path), "--allow-inconclusive").code == 0


def test_a_backend_that_is_gone_fails_the_gate(first, tmp_path):
    less = tmp_path / "less"
    shutil.copytree(first[1].path, less)
    about = orjson.loads((less / "run.json").read_bytes())
    del about["facts"]["backends"]["fast"]
    about["facts"] |= {"baseline": None, "objectives": {"held": [], "compared": [], "policy": "point"}}
    (less / "run.json").write_bytes(orjson.dumps(about))
    ended = harness("gate", str(less), "--baseline", str(first[1].path))
    assert ended.code == 1
    assert f"FAIL fast: in {first[1].path}, but not in this run" in ended.out
    assert "fast: in" in harness("compare", str(first[1].path), str(less)).out
