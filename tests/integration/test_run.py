"""A whole run through `harness run`: what stands in its folder, on its outputs, and how it all joins."""

import json
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

from harness.records import CallRecord, EventsRecord, TaskRecord
from tests.integration.running import B200, FILES, ULTRAFAST, end, harness, run, scenario, simulated, start

CALLS = (
    "schema call_id task_id k backend workload phase turn depth parent_call_id dialect"
    " transport connection clock scheduled_ns sent_ns headers_ns first_output_ns first_answer_ns"
    " last_output_ns done_ns first_output_low_ns first_answer_low_ns last_output_low_ns"
    " shared_read_events input_tokens cached_tokens output_tokens reasoning_tokens hidden_tokens"
    " token_source outcome status error attempts limit_wait_ns tier_asked tier_served"
    " finish_reason cancelled_ns request_id server_timing"
)
TASKS = (
    "schema task_id k backend workload preset session phase seed scheduled_ns started_ns ended_ns human_ns"
    " outcome reason turns calls tools breakdown breakdown_unknown cost_usd plan_mismatch"
)
EVENTS = "schema call_id gaps_us kinds tokens reads"
QUANTILES = ("p50", "p90", "p95", "p99")
OUTCOMES = ("dropped", "completed", "failed", "timeout", "abandoned", "cut", "lost")
BACKENDS = {"standard": simulated(B200), "fast": simulated(ULTRAFAST, service_tier="ultrafast")}
LOAD = 'kind = "closed"\nusers = 3\nramp_s = 0.2\ntasks = 12\nwarm_up_s = 0.3'
BANNER = "simulated backends: a model, not a measurement"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """One run of two backends, and its folder, for all that only looks."""
    folder = tmp_path_factory.mktemp("small")
    return run(folder, scenario(folder, BACKENDS, load=LOAD))


def test_it_ends_well_with_an_answer(small):
    ended, folder = small
    assert ended.code == 0
    assert {path.name for path in folder.path.iterdir()} == {
        *FILES,
        "run.json",
        "summary.json",
        "verdict.json",
    }
    verdict = folder.json("verdict")
    assert verdict == {"verdict": "NONE", "policy": "point", "reasons": [], "objectives": [], "schema": 1}
    assert folder.json("summary")["verdict"] == "NONE"


def test_the_answer_stands_on_standard_output_and_progress_on_standard_error(small):
    ended, folder = small
    for text in (
        "A small run",
        BANNER,
        "standard",
        "fast",
        "task time p50",
        "verdict NONE",
        str(folder.path),
    ):
        assert text in ended.out
    for finding in folder.json("summary")["findings"]:
        assert finding["detail"] in ended.out
    assert "tasks ended" not in ended.out
    assert ended.err.splitlines()[0] == (
        "time limits of a call: connect 10 s, first output 120 s, stall 60 s, total 600 s;"
        " of a task: demo 600 s"
    )
    assert "fast: 10 of 12 tasks ended" in ended.err
    assert len(ended.err.splitlines()) == 3


@pytest.mark.parametrize(
    ("name", "keys", "record"),
    [
        pytest.param("tasks", TASKS, TaskRecord, id="tasks"),
        pytest.param("calls", CALLS, CallRecord, id="calls"),
        pytest.param("events", EVENTS, EventsRecord, id="events"),
    ],
)
def test_every_record_has_the_promised_keys(small, name, keys, record):
    for line in small[1].lines(name):
        assert line["schema"] == 1
        assert set(keys.split()) <= set(line) <= {field.name for field in fields(record)}


def test_a_call_is_a_short_line(small):
    lines = (small[1].path / "calls.jsonl").read_bytes().splitlines()
    assert max(map(len, lines)) < 1024


def test_records_join(small):
    folder = small[1]
    tasks = {task["task_id"]: task for task in folder.lines("tasks")}
    calls = {call["call_id"]: call for call in folder.lines("calls")}
    assert Counter(call["task_id"] for call in calls.values()) == {
        name: task["calls"] for name, task in tasks.items()
    }
    assert sorted(calls) == sorted(events["call_id"] for events in folder.lines("events"))
    for events in folder.lines("events"):
        call = calls[events["call_id"]]
        assert call["backend"] == tasks[call["task_id"]]["backend"]
        assert len(events["gaps_us"]) == call["streamed_events"] == sum(n for _, n in events["kinds"])
        assert (
            sum(map(abs, events["reads"])) == sum(n for _, n in events["tokens"]) == call["streamed_events"]
        )
        span_us = (call["last_output_ns"] - call["first_output_ns"]) / 1000
        assert sum(events["gaps_us"]) == pytest.approx(span_us, abs=1)
        assert call["scheduled_ns"] <= call["sent_ns"] <= call["first_output_ns"] <= call["done_ns"]


def test_both_backends_did_the_same_tasks(small):
    for task in small[1].tasks():
        assert sum(task["breakdown"].values()) == pytest.approx(1)
        assert task["outcome"] == "completed"
    for backend in BACKENDS:
        assert sorted(task["k"] for task in small[1].tasks(backend)) == list(range(12))
    assert small[1].tasks(phases=["warm-up"])


def is_estimate(value):
    assert set(value) == {"value", "low", "high", "n", "reason", "needed"}
    assert (value["value"] is None) == (value["reason"] is not None)
    if value["reason"] == "too_few":
        assert value["n"] < value["needed"]
    elif value["low"] is not None and value["high"] is not None:
        assert value["low"] <= value["value"] <= value["high"]


def test_the_summary_has_the_promised_keys(small):
    summary = small[1].json("summary")
    assert set(summary) == {
        *("backends", "compare", "meter", "findings", "verdict", "intervals", "schema"),
    }
    for name in BACKENDS:
        one = summary["backends"][name]["workloads"]["demo"]
        assert set(one["tasks"]) == {"scheduled", *OUTCOMES}
        assert set(one["task_time"]) == {*(f"{q}_s" for q in QUANTILES), "within"}
        estimates = [one["task_time"][f"{q}_s"] for q in QUANTILES]
        estimates += [
            *one["task_time"]["within"].values(),
            one["decode_tokens_per_s"],
            one["headline"]["value"],
        ]
        for metric in ("ttft_s", "ttfo_s", "gap_ms", "tpot_ms"):
            assert set(one[metric]) == set(QUANTILES)
            estimates += one[metric].values()
        for value in estimates:
            is_estimate(value)
        assert one["task_time"]["p50_s"]["value"] is not None
        assert one["task_time"]["p99_s"]["needed"] == 368
        for key in ("total_usd", "per_completed_task_usd"):
            is_estimate(one["cost"][key])
        assert {"10"} <= set(one["task_time"]["within"])
        assert set(one["headline"]) == {"name", "unit", "better", "value"}
        assert set(one["tokens"]) == {"input", "cached", "output", "reasoning", "wasted", "source"}
        assert sum(one["breakdown"].values()) == pytest.approx(1)
        assert set(one["tier"]) == {"asked", "served", "measured"}
        assert set(one["tier"]["measured"]) == set(one["tier"]["served"])
    assert summary["backends"]["fast"]["workloads"]["demo"]["tier"]["asked"] == "ultrafast"
    meter = summary["meter"]
    assert meter["clock"] == "kernel"
    assert meter["certified"] is None
    for key in ("loop_lag_p99_ms", "start_lag_p99_ms", "shared_read_share", "cpu_share", "bound_p99_us"):
        is_estimate(meter[key])
    for finding in summary["findings"]:
        assert set(finding) == {"name", "backend", "workload", "detail"}
    assert {"simulated", "shortened", "warm_up", "uncertified"} <= set(small[1].findings())


def test_the_summary_is_of_the_records(small):
    folder = small[1]
    for name in BACKENDS:
        one = folder.json("summary")["backends"][name]["workloads"]["demo"]
        measured = folder.tasks(name)
        assert one["tasks"]["scheduled"] == len(measured) == sum(one["tasks"][key] for key in OUTCOMES)
        assert one["tasks"]["completed"] == sum(task["outcome"] == "completed" for task in measured)
        ids = {task["task_id"] for task in measured}
        calls = [call for call in folder.lines("calls") if call["task_id"] in ids]
        for key in ("input", "cached", "output", "reasoning"):
            assert one["tokens"][key] == sum(call[f"{key}_tokens"] for call in calls)
        assert one["tier"]["served"] == dict(Counter(call["tier_served"] for call in calls))
        times = sorted(task["ended_ns"] - task["scheduled_ns"] for task in measured)
        assert one["task_time"]["p50_s"]["value"] == pytest.approx(times[len(times) // 2 - 1] / 1e9)


def test_the_run_tells_what_it_was(small):
    about = small[1].json("run")
    assert about["seed"] == 7
    assert list(about["scenario"]["backends"]) == list(BACKENDS)
    assert about["scenario"]["load"]["tasks"] == 12
    assert {"python", "kernel", "packages"} <= set(about["machine"])
    assert about["phases"][0]["measure"] == 300_000_000
    assert {"run_id", "started", "facts", "certificate"} <= set(about)


def test_a_second_run_into_the_same_folder_is_refused_and_harms_nothing(small, tmp_path):
    folder = small[1]
    before = {path: path.read_bytes() for path in folder.path.iterdir()}
    again = harness("run", scenario(tmp_path, BACKENDS, load=LOAD), "--out", folder.path)
    assert again.code == 2
    assert again.sentence() == f"{folder.path}: holds a run already; give another --out"
    assert {path: path.read_bytes() for path in folder.path.iterdir()} == before


def planned(folder, backend):
    """What of each measured task is decided before it starts."""
    calls = sorted(folder.lines("calls"), key=lambda call: call["sent_ns"])
    return {
        task["k"]: (
            [
                (c["input_tokens"], c.get("output_asked", c["output_tokens"]))
                for c in calls
                if c["task_id"] == task["task_id"]
            ],
            [(tool["name"], tool["ended_ns"] - tool["started_ns"]) for tool in task["tools"]],
            task["session"],
        )
        for task in folder.tasks(backend)
    }


def test_a_seed_gives_the_same_tasks_again_and_another_seed_others(small, tmp_path):
    path = scenario(tmp_path, BACKENDS, load=LOAD.replace("0.3", "0"))
    same = run(tmp_path, path, "--quiet")
    (tmp_path / "other").mkdir()
    ended, other = run(tmp_path / "other", path, "--seed", "8", "--tasks", "5", "--backend", "fast")
    assert planned(same[1], "fast") == planned(small[1], "fast")
    assert planned(small[1], "fast") == planned(small[1], "standard")
    assert sum(len(calls) for calls, _, _ in planned(small[1], "fast").values()) > 12
    assert same[0].err == ""  # --quiet
    assert BANNER in same[0].out

    assert ended.code == 0
    assert list(other.json("summary")["backends"]) == ["fast"]
    assert sorted(planned(other, "fast")) == list(range(5))
    assert all(plan != planned(small[1], "fast")[k] for k, plan in planned(other, "fast").items())
    assert other.json("run")["seed"] == 8


def test_the_simulators_log_knows_every_call(tmp_path):
    log = tmp_path / "sends.jsonl"
    path = scenario(tmp_path, BACKENDS, load=LOAD)
    _, folder = run(tmp_path, path, "--tasks", "2", env={"HARNESS_SIMULATOR_LOG": str(log)})
    logged = {line["call_id"]: line for line in map(json.loads, log.read_text().splitlines())}
    begun = folder.json("run")["origin_monotonic_ns"]
    assert set(logged) == {call["call_id"] for call in folder.lines("calls")}
    for call in folder.lines("calls"):
        # the same clock on both sides: what was sent was received after it, and before the first output
        received_ns = logged[call["call_id"]]["received_ns"] - begun
        assert call["sent_ns"] <= received_ns <= call["first_output_ns"]


def test_two_runs_in_the_same_second_have_folders_of_their_own(tmp_path):
    path = scenario(tmp_path, BACKENDS, load=LOAD)
    words = ("run", path, "--tasks", "1", "--quiet")
    together = [start(*words, cwd=tmp_path, env={"PYTHONPATH": str(Path.cwd())}) for _ in range(3)]
    assert {end(one).code for one in together} <= {0, 4}  # 4: this machine was too busy
    folders = list((tmp_path / "runs").iterdir())
    assert len(folders) == 3
    assert all((folder / "summary.json").exists() for folder in folders)
