"""Fault rows of distributed Locust: what is counted where, whole percentiles, ends that come."""

import asyncio
import contextlib
import csv
import json
import os
import signal
import threading
import time

from tests.integration.locusting import ended, reconciled, tasks_in, tree, until
from tests.integration.running import LONG_TASKS, Folder, at, scenario, serving, simulated
from tests.raw_server import LAST_CHUNK, STREAM_HEAD, chunk, serve

ONE_CALL = """
[[workloads]]
kind = "agent"
preset = "demo"
length_scale = 0.02
calls = {{ value = 1 }}
agent_s = {{ value = 0.0 }}
{more}
"""


def by_class(path):
    """Rows of Locust's stats file by (type, name)."""
    with path.open() as file:
        return {(row["Type"], row["Name"]): row for row in csv.DictReader(file)}


@contextlib.contextmanager
def answering_bytes(answer):
    """A raw server in a thread of its own; gives its URL."""
    loop, ports = asyncio.new_event_loop(), []
    ready, stop = threading.Event(), asyncio.Event()

    async def run():
        async with serve(answer) as port:
            ports.append(port)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    ready.wait()
    yield f"http://127.0.0.1:{ports[0]}/v1"
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


def event(text="", finish=None):
    delta = {"choices": [{"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}]}
    return b"data: %s\n\n" % json.dumps(delta).encode()


def test_d11_d05_locusts_own_tables_count_calls_alone_and_no_call_of_the_ramp_is_missing(tmp_path):
    log = tmp_path / "sent.jsonl"
    load = 'kind = "closed"\nusers = 10\nramp_s = 4\ntasks = 30\ndrain_s = 20'
    path = scenario(tmp_path, {"a": simulated(), "b": simulated()}, load=load)
    with tree() as one:
        out = tmp_path / "out"
        words = ["--csv", tmp_path / "own", "--html", tmp_path / "own.html", "--reset-stats"]
        master = one.headless(
            "--processes",
            2,
            "--scenario",
            path,
            "--out",
            out,
            *words[:4],
            env={"HARNESS_SIMULATOR_LOG": str(log)},
        )
        ended(master)
        assert one.left_after(5) == []
    reconciled(out)
    calls = Folder(out).lines("calls")
    served = {json.loads(line)["call_id"] for line in log.read_text().splitlines()}
    assert {call["call_id"] for call in calls} == served
    rows = by_class(tmp_path / "own_stats.csv")
    assert {key: int(row["Request Count"]) for key, row in rows.items()} == {
        ("a", "demo"): sum(call["backend"] == "a" for call in calls),
        ("b", "demo"): sum(call["backend"] == "b" for call in calls),
        ("", "Aggregated"): len(calls),
    }
    assert "<html" in (tmp_path / "own.html").read_text()


def test_d14_a_call_ends_with_its_stream_and_its_size_is_the_streams(tmp_path):
    body = [event("x") for _ in range(9)] + [event(finish="stop"), b"data: [DONE]\n\n"]
    size = sum(map(len, body))

    async def slow(peer):
        while True:
            await peer.request()
            await asyncio.sleep(0.02)
            await peer.send(STREAM_HEAD)
            for piece in body[:-2]:
                await asyncio.sleep(0.3)
                await peer.send(chunk(piece))
            await peer.send(b"".join(map(chunk, body[-2:])) + LAST_CHUNK)

    with answering_bytes(slow) as url, tree() as one:
        load = 'kind = "closed"\nusers = 1\ntasks = 2\ndrain_s = 20'
        path = scenario(tmp_path, {"a": at(url)}, load=load, workload=ONE_CALL.format(more=""))
        ended(one.headless("--scenario", path, "--out", tmp_path / "out", "--csv", tmp_path / "own"))
    row = by_class(tmp_path / "own_stats.csv")["a", "demo"]
    assert int(row["Request Count"]) == 2
    assert 2700 <= float(row["Average Response Time"]) < 4000  # not the 20 ms to the headers
    assert float(row["Average Content Size"]) == size
    for call in Folder(tmp_path / "out").lines("calls"):
        assert call["received_bytes"] == size
        ttft_ms = (call["first_output_ns"] - call["sent_ns"]) / 1e6
        assert 300 <= ttft_ms < 1500


def test_d16_d09_time_outs_are_failures_and_twenty_users_of_one_worker_stream_at_once(tmp_path):
    asked, open_now, most = [], [0], [0]

    async def every_fourth_hangs(peer):
        await peer.request()
        asked.append(peer)
        hangs = len(asked) % 4 == 0
        open_now[0] += 1
        most[0] = max(most[0], open_now[0])
        await peer.send(STREAM_HEAD)
        if hangs:
            await peer.gone()
            return
        until_all = time.monotonic() + 20
        while len(asked) < 20 and time.monotonic() < until_all:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        await peer.send(chunk(event("x")) + chunk(event(finish="stop") + b"data: [DONE]\n\n") + LAST_CHUNK)
        open_now[0] -= 1
        await peer.gone()

    with answering_bytes(every_fourth_hangs) as url, tree() as one:
        load = 'kind = "closed"\nusers = 20\ntasks = 20\ndrain_s = 20'
        backend = at(url, transport="new-connection", limits={"first_output_s": 3.0})
        path = scenario(tmp_path, {"a": backend}, load=load, workload=ONE_CALL.format(more=""))
        told = ended(one.headless("--scenario", path, "--out", tmp_path / "out", "--csv", tmp_path / "own"))
        assert one.left_after(5) == []
    assert most[0] == 20
    row = by_class(tmp_path / "own_stats.csv")["a", "demo"]
    assert (int(row["Request Count"]), int(row["Failure Count"])) == (20, 5)
    calls = Folder(tmp_path / "out").lines("calls")
    kinds = [call["error"]["kind"] for call in calls if call["outcome"] == "failed"]
    assert len(calls) == 20
    assert len(kinds) == 5
    assert all("timeout" in kind for kind in kinds), kinds
    assert "already running" not in told.err


def test_d12_streams_that_are_open_at_the_stop_are_cut_within_its_limit(tmp_path):
    load = 'kind = "closed"\nusers = 2\nmeasure_s = 600\ndrain_s = 600'
    path = scenario(tmp_path, {"a": simulated(), "b": simulated()}, load=load, workload=LONG_TASKS)
    with tree() as one:
        out = tmp_path / "out"
        words = ["--run-time", "6s", "--stop-timeout", "2", "--scenario", path, "--out", out]
        master = one.headless("--processes", 2, *words)
        until((out / "run.json").exists, what="the run")
        began = time.monotonic()
        ended(master)
        assert time.monotonic() - began < 6 + 2 + 30  # the answer and this machine's mood included
        assert one.left_after(5) == []
    cut = [task for task in Folder(out).lines("tasks") if task["outcome"] == "cut"]
    assert len(cut) == 4  # one a user
    assert all(task["reason"] == "the run ended" for task in cut)
    [phases] = Folder(out).json("run")["phases"]
    assert (phases["end"] - phases["drain"]) / 1e9 < 2 + 1
    reconciled(out)


def test_c08_a_worker_that_does_not_come_is_missed_and_the_exit_code_is_4(tmp_path):
    path = scenario(tmp_path, {"a": simulated()}, load='kind = "closed"\nusers = 2\ntasks = 2')
    with tree() as one:
        worker = one.worker()
        told = ended(
            one.master(
                "--scenario", path, "--out", tmp_path / "out", "--expect-workers-max-wait", 6, workers=2
            )
        )
        assert told.code == 4
        assert "1 of 2 expected workers did not come within 6 s; 1 came" in told.err
        assert "Traceback" not in told.err
        ended(worker)
        assert one.left_after(5) == []
    assert not (tmp_path / "out").exists()


def test_ctrl_c_drains_and_judges_and_a_second_one_cuts(tmp_path):
    load = 'kind = "closed"\nusers = 2\nmeasure_s = 600\ndrain_s = 60'
    path = scenario(tmp_path, {"a": simulated(), "b": simulated()}, load=load, workload=LONG_TASKS)
    with tree() as one:
        out = tmp_path / "out"
        master = one.headless("--processes", 2, "--scenario", path, "--out", out)
        until((out / "events.1.jsonl").exists, what="both engines")
        until(lambda: (out / "calls.jsonl").stat().st_size, what="a call")
        os.killpg(master.pid, signal.SIGINT)  # as the terminal does: master and forked workers
        time.sleep(2)
        assert master.poll() is None  # open tasks may end
        os.killpg(master.pid, signal.SIGINT)
        told = ended(master)
        assert one.left_after(5) == []
    assert told.code == 130
    assert "interrupted" in {one["name"] for one in reconciled(out)["findings"]}
    assert {task["outcome"] for task in Folder(out).lines("tasks")} == {"cut"}
    assert tasks_in(out) == 4


def test_a_backend_that_refuses_everything_ends_the_run_as_it_does_without_locust(tmp_path):
    with serving() as url:
        wrong = url.replace("/v1", "/nothing")
        load = 'kind = "closed"\nusers = 2\ntasks = 40\ndrain_s = 10'
        path = scenario(tmp_path, {"a": at(wrong), "b": simulated()}, load=load)
        with tree() as one:
            told = ended(one.headless("--processes", 2, "--scenario", path, "--out", tmp_path / "out"))
            assert one.left_after(5) == []
    assert told.code == 4
    assert any("given up" in why for why in Folder(tmp_path / "out").json("verdict")["reasons"])
    reconciled(tmp_path / "out")
