"""Agent tasks against PyPI's llmock, which breaks answers on request: each fault is told by its name."""

from collections import Counter

import pytest

from tests.integration.running import only_late, run_once, scenario
from tests.servers.starting import ask, llmock

pytestmark = pytest.mark.needs("llmock")

TASK = """
[[workloads]]
kind = "agent"
preset = "demo"
length_scale = 0.02
calls_scale = 1
calls = {{ value = {calls} }}
tools_per_step = {{ weights = {{ "1" = 1 }} }}
tool_s_max = 0.01
agent_s = {{ value = 0.8 }} # else the harness' own part of so short a task is too large to be valid
"""
STALL_S = 0.4
SLOW_S = 0.5


def breaks(kind, **how):
    return {"type": "stream_fault", "kind": kind, "after_chunks": 3, **how}


FAULTS = {
    "429": ({"type": "fail", "status": 429, "retry_after": 2}, "http_error", 429, "HTTP 429: "),
    "503": ({"type": "fail", "status": 503}, "http_error", 503, "HTTP 503: "),
    "disconnect": (breaks("disconnect"), "truncated", 200, ""),
    "truncate": (breaks("truncate"), "truncated", 200, "the stream ended without its end mark"),
    "stall": (breaks("stall", stall_seconds=60), "idle_timeout", 200, ""),
    "malformed": (breaks("malformed"), "malformed_event", 200, "1 events were not JSON"),
}


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    with llmock(tmp_path_factory.mktemp("llmock")) as url:
        yield url


@pytest.fixture
def server(started):
    ask(f"{started}/_llmock/reset", method="POST")
    return started


def script(server, *behaviors):
    ask(f"{server}/_llmock/scenario", method="POST", body={"behaviors": behaviors})


def ran(folder, server, *, models=("gpt-4o",), calls=1, tasks=4, first_output_s=20):
    """Each backend is named like its model, and all users start at once."""
    limits = {"connect_s": 10, "first_output_s": first_output_s, "stall_s": STALL_S, "total_s": 30}
    backends = {model: {"url": f"{server}/v1", "model": model, "limits": limits} for model in models}
    load = f'kind = "closed"\nusers = {tasks}\ntasks = {tasks}'
    path = scenario(folder, backends, load=load, workload=TASK.format(calls=calls))
    ended, out = run_once(folder / "out", path, "--quiet")
    assert len(out.lines("events")) == len(out.lines("calls"))
    return ended, out, out.lines("calls")


def counted(out, model="gpt-4o"):
    told = out.json("summary")["backends"][model]["workloads"]["demo"]["tasks"]
    return {outcome: n for outcome, n in told.items() if n}


def received(server):
    """The requests that the server got, in order: nobody but the harness sent any."""
    return ask(f"{server}/_llmock/requests")["requests"]


def test_a_tool_loop_without_a_fault(tmp_path, server):
    ended, out, calls = ran(tmp_path, server, calls=2)
    assert ended.code == 0 or only_late(out), ended.err
    assert {(task["outcome"], task["plan_mismatch"]) for task in out.tasks()} == {("completed", 0)}
    assert Counter(call["finish_reason"] for call in calls) == {"tool_calls": 4, "stop": 4}
    assert len(received(server)) == 8
    assert ask(f"{server}/_llmock/verdict")["findings"] == []


@pytest.fixture(scope="module")
def broken(started, tmp_path_factory):
    """A run in which each backend has one fault, in all of its answers; what the server got."""
    ask(f"{started}/_llmock/reset", method="POST")
    for name, (behavior, *_) in FAULTS.items():
        script(started, {**behavior, "times": None, "match": {"model": name}})
    ended, out, _ = ran(tmp_path_factory.mktemp("broken"), started, models=FAULTS)
    return ended, out, received(started)


def test_where_every_call_fails_the_run_is_invalid(broken):
    ended, out, _ = broken
    assert ended.code == 4
    verdict = out.json("verdict")
    assert verdict["verdict"] == "INVALID"
    assert len(verdict["reasons"]) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_has_its_name_and_fails_the_task(broken, fault):
    _, out, requests = broken
    _, kind, status, told = FAULTS[fault]
    calls = [call for call in out.lines("calls") if call["backend"] == fault]
    assert {(call["outcome"], call["error"]["kind"], call["status"]) for call in calls} == {
        ("failed", kind, status)
    }
    assert all(told in call["error"]["message"] for call in calls)
    assert {(task["outcome"], task["calls"]) for task in out.tasks(fault)} == {("failed", 1)}
    assert len(calls) == len(out.tasks(fault)) == 4
    assert counted(out, fault) == {"scheduled": 4, "failed": 4}
    [reason] = [one for one in out.json("verdict")["reasons"] if one.startswith(f"{fault}/demo: ")]
    assert f"4 of 4 calls failed: {kind} 4; most often: " in reason
    faults = [one["fault"] for one in requests if one["model"] == fault]
    assert len(faults) == 4  # nothing was tried twice
    assert all(fault in one for one in faults)


def test_a_stall_ends_by_its_limit(broken):
    _, out, requests = broken
    for call in out.lines("calls"):
        if call["backend"] == "stall":
            assert STALL_S <= (call["done_ns"] - call["last_output_ns"]) / 1e9 < 5
            assert call["streamed_events"] > 0  # what came before it is kept
    assert all(one["stall_waited"] < 5 for one in requests if one["model"] == "stall")  # it saw us hang up


def test_each_fault_once_and_then_none(tmp_path, server):
    script(server, *(behavior for behavior, *_ in FAULTS.values()))
    ended, out, calls = ran(tmp_path, server, calls=2, tasks=8)
    assert ended.code == 0 or only_late(out), ended.err
    kinds = Counter(call["error"]["kind"] for call in calls if call["error"])
    assert kinds == Counter(kind for _, kind, *_ in FAULTS.values())
    tasks = Counter((task["outcome"], task["calls"]) for task in out.tasks())
    assert tasks == {("failed", 1): 6, ("completed", 2): 2}
    assert counted(out) == {"scheduled": 8, "completed": 2, "failed": 6}
    assert len(received(server)) == len(calls) == 10  # nothing was tried twice


def test_a_slow_first_token_is_time_to_first_token(tmp_path, server):
    script(server, {"type": "slow_first_token", "seconds": SLOW_S, "times": None})
    ended, out, calls = ran(tmp_path, server, tasks=6)
    assert ended.code == 0 or only_late(out), ended.err
    for call in calls:
        assert SLOW_S <= (call["first_output_ns"] - call["sent_ns"]) / 1e9 < SLOW_S + 2
    one = out.json("summary")["backends"]["gpt-4o"]["workloads"]["demo"]
    assert SLOW_S <= one["ttft_s"]["p50"]["value"] < SLOW_S + 2
    assert one["breakdown"]["ttft"] > 0.5


def test_a_first_token_beyond_the_limit(tmp_path, server):
    script(server, {"type": "slow_first_token", "seconds": 60, "times": None})
    ended, _, calls = ran(tmp_path, server, tasks=2, first_output_s=0.3)
    assert ended.code == 4
    assert {call["error"]["kind"] for call in calls} == {"first_output_timeout"}
