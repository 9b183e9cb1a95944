"""What a master makes of its workers' records, without Locust: whole percentiles, counts, losses."""

import re
import urllib.request
from dataclasses import asdict

import numpy as np
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.bridge.ledger import share_ks
from harness.bridge.merge import Run
from harness.certificate import write
from harness.job import Share
from harness.link import Began, Call, Drained, Finished, Gone, Ready, Settled, Task, packed, plain
from harness.measure.histogram import histogram
from harness.preparation import Options, Prepared, read_scenario
from harness.sinks.records import RecordWriter, told
from tests.certifying import a_certificate
from tests.making import MS, S, a_call, a_task

SCENARIO = """
schema = 1
name = "two workers"
seed = 7
[backends.b]
url = "http://127.0.0.1:9/v1"
model = "m"
[[workloads]]
kind = "agent"
preset = "demo"
name = "w"
[load]
kind = "closed"
users = 2
tasks = {tasks}
"""


def a_run(tmp_path, *, tasks, nodes=("A", "B"), allowed=False, port=None, away=()):
    """A run of two workers that say what a test wants; gives it, and what was sent to them."""
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO.format(tasks=tasks))
    options = Options(path, out=tmp_path / "out", prometheus_port=port)
    sent = []

    def send(node, values):
        sent.append((node, values["is"]))
        index = nodes.index(node)
        if values["is"] == "Begin":
            events = tmp_path / "out" / f"events.{index}.jsonl"
            events.touch()
            run.hear(node, plain(Ready(node not in away, str(events), 100 + index, "here")))

    prepared = Prepared(options, read_scenario(options), {}, None)
    writer = RecordWriter(tmp_path / "out")
    run = Run(prepared, writer, send=send, finished=lambda _: None, drain_s=0.0, lost_allowed=allowed)
    run.begin(nodes)
    return run, sent


def done(run, node, k, *, ms):
    """A task of one call, as a worker tells it."""
    task_id, start, end = f"b/w/{k}", k * S, k * S + ms * MS
    run.hear(node, plain(Began(task_id, "b", "w", "measure", 1)))
    call = a_call(
        call_id=f"{task_id}/1", task_id=task_id, k=k, sent_ns=start, done_ns=end, last_output_ns=end
    )
    task = a_task(task_id=task_id, k=k, session=k, scheduled_ns=start, started_ns=start, ended_ns=end)
    run.hear(node, plain(Call(travelled(told(call)), packed(histogram(np.array([ms * 1000]))))))
    run.hear(node, plain(Task(travelled(asdict(task)))))


def travelled(values):
    return orjson.loads(orjson.dumps(values))


def settle(run, node, *, tasks, calls=None):
    account = {
        "phases": {"measure": 0, "end": 9 * S},
        "lanes": {"b": {"dropped": 0, "lost": None}},
        "planned": [],
        "interrupted": False,
    }
    run.hear(node, plain(Drained(tasks, tasks if calls is None else calls, account, 0.1, 0.2)))
    run.hear(node, plain(Settled()))


def concluded(run):
    run.drain()
    code = run.conclude()
    return code, orjson.loads((run.folder / "summary.json").read_bytes())


def of(summary):
    return summary["backends"]["b"]["workloads"]["w"]


def test_d03_percentiles_are_of_all_tasks_not_means_of_the_workers_percentiles(tmp_path):
    run, sent = a_run(tmp_path, tasks=1000)
    assert sent == [("A", "Begin"), ("B", "Begin"), ("A", "Go"), ("B", "Go")]
    for k in range(100):
        done(run, "A", k, ms=100)
    for k in range(100, 1000):
        done(run, "B", k, ms=1000)
    settle(run, "A", tasks=100)
    settle(run, "B", tasks=900)
    code, summary = concluded(run)
    time = of(summary)["task_time"]
    assert (time["p50_s"]["value"], time["p99_s"]["value"]) == (1.0, 1.0)
    assert time["p50_s"]["n"] == 1000
    assert code == 0


def test_live_numbers_are_of_all_workers_and_a_lost_ones_open_tasks_are_in_flight_no_more(tmp_path, caplog):
    caplog.set_level("INFO")
    run, _ = a_run(tmp_path, tasks=10, port=0)
    [url] = re.findall(r"http://\S+", caplog.text)
    for node, k in (("A", 0), ("B", 1), ("B", 2)):
        done(run, node, k, ms=100)
    for node, k in (("A", 3), ("B", 4), ("B", 5)):
        run.hear(node, plain(Began(f"b/w/{k}", "b", "w", "measure", 1)))
    assert page(url, "tasks_in_flight") == 3
    run.hear("B", plain(Gone()))
    assert page(url, "tasks_in_flight") == 1
    assert page(url, "tasks_total", outcome="completed") == 3
    for name in ("task", "call_ttft", "event_gap"):
        assert page(url, f"{name}_seconds_count") == 3
    run.take_down(wait=False)
    run.writer.close()


def page(url, name, **labels):
    """Sum of a metric of phase measure on a page."""
    with urllib.request.urlopen(url, timeout=20) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    wanted = ({"phase": "measure"} | labels).items()
    samples = [sample for family in families for sample in family.samples]
    return sum(one.value for one in samples if one.name == f"harness_{name}" and wanted <= one.labels.items())


@pytest.mark.parametrize(("away", "certified"), [((), True), (("B",), None)], ids=["here", "elsewhere"])
def test_a_certificate_is_of_the_machine_that_measures(tmp_path, monkeypatch, away, certified):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(a_certificate())
    run, _ = a_run(tmp_path, tasks=2, away=away)
    for node, k in (("A", 0), ("B", 1)):
        done(run, node, k, ms=100)
        settle(run, node, tasks=1)
    _, summary = concluded(run)
    assert summary["meter"]["certified"] is certified
    found = [finding["detail"] for finding in summary["findings"] if finding["name"] == "uncertified"]
    assert found == [
        f"worker {'AB'.index(node)} (on here, engine 101) measured on other machines" for node in away
    ]
    assert orjson.loads((run.folder / "run.json").read_bytes())["certificate"]["made"] == a_certificate().made


def test_d01_no_percentile_is_above_the_largest_time(tmp_path):
    run, _ = a_run(tmp_path, tasks=368)  # so many that a p99 is printed
    for k in range(368):
        done(run, "AB"[k % 2], k, ms=575)
    settle(run, "A", tasks=184)
    settle(run, "B", tasks=184)
    _, summary = concluded(run)
    assert {of(summary)["task_time"][f"p{q}_s"]["value"] for q in (50, 90, 95, 99)} == {0.575}


def test_a_workers_lost_tasks_are_those_of_its_share_that_never_came(tmp_path):
    run, _ = a_run(tmp_path, tasks=10)
    for k in (0, 2, 4, 6, 8):
        done(run, "A", k, ms=100)
    done(run, "B", 1, ms=100)
    settle(run, "A", tasks=5)
    run.hear("B", plain(Gone()))
    code, summary = concluded(run)
    assert code == 4
    tasks = of(summary)["tasks"]
    assert (tasks["scheduled"], tasks["completed"], tasks["lost"]) == (10, 6, 4)
    [finding] = [one for one in summary["findings"] if one["name"] == "worker_lost"]
    assert "worker 1 (on here, engine 101) was lost" in finding["detail"]
    assert finding["detail"].endswith("every 2. session from number 1 on): 4 on b")


def test_records_that_an_engine_wrote_and_that_did_not_come_make_its_worker_a_lost_one(tmp_path):
    run, _ = a_run(tmp_path, tasks=4)
    for k in range(3):
        done(run, "AB"[k % 2], k, ms=100)
    settle(run, "A", tasks=2)
    settle(run, "B", tasks=2)  # it has told one
    code, summary = concluded(run)
    assert code == 4
    [finding] = [one for one in summary["findings"] if one["name"] == "worker_lost"]
    assert "of its 2 tasks and 2 calls 1 and 1 came here" in finding["detail"]


def test_shares_of_a_plan_are_the_plan(tmp_path):
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO.format(tasks=37).replace('name = "w"', 'name = "w"\nsession_tasks_max = 5'))
    read = read_scenario(Options(path))
    for count in (1, 2, 3, 5):
        shares = [share_ks(read, Share(index, count)) for index in range(count)]
        assert set().union(*shares) == set(range(37))
        assert sum(map(len, shares)) == 37


def test_the_run_ends_when_every_share_is_done_or_lost(tmp_path):
    ended = []
    run, _ = a_run(tmp_path, tasks=4)
    run.finished = ended.append
    run.hear("A", plain(Finished()))
    assert not run.ending
    run.lose(run.workers["B"], "gone")
    assert run.ending
    run.writer.close()
