"""`quota` and `retry` of a scenario, from the command line to the summary."""

import json
import threading

import pytest

from tests.integration.running import answering, at, run_once, scenario

USAGE = {"prompt_tokens": 100, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}
EVENTS = [
    {"choices": [{"index": 0, "delta": {"content": "one"}}]},
    {"choices": [{"index": 0, "delta": {"content": "two"}, "finish_reason": "stop"}]},
    {"choices": [], "usage": USAGE},
]
STREAM = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in EVENTS) + b"data: [DONE]\n\n"
LOAD = 'kind = "closed"\nusers = 1\ntasks = 6\n'


@pytest.fixture
def server():
    """Refuses every third request; its URL."""
    lock, asked = threading.Lock(), [0]

    def answer(_):
        with lock:
            asked[0] += 1
            refused = asked[0] % 3 == 0
        if refused:
            return 429, "application/json", b'{"error": {"message": "slow down"}}'
        return 200, "text/event-stream", STREAM

    with answering(answer) as url:
        yield url


def test_a_run_with_retries_keeps_each_attempt_and_its_time(tmp_path, server):
    path = scenario(tmp_path, {"b": at(server, retry="sdk")}, load=LOAD)
    _, out = run_once(tmp_path / "out", path, "--quiet")
    calls, [told] = out.lines("calls"), out.json("summary")["backends"]["b"]["workloads"].values()
    resent = [call for call in calls if call["attempts"]]
    assert resent
    assert all([one["status"] for one in call["attempts"]] == [429, 200] for call in resent)
    assert {call["outcome"] for call in calls} == {"ok"}
    assert sum(told["breakdown"].values()) == pytest.approx(1)
    assert told["breakdown"]["retry"] > 0
    assert told["breakdown"]["limit"] == 0
    assert told["extra"]["user_ttft_p95_s"]["n"] == len(calls)
    assert {"throttled", "waited_for_limits"} <= out.findings().keys()


def test_without_retries_a_refusal_fails_its_task(tmp_path, server):
    path = scenario(tmp_path, {"b": at(server)}, load=LOAD)
    _, out = run_once(tmp_path / "out", path, "--quiet")
    refused = [call for call in out.lines("calls") if call["status"] == 429]
    assert refused
    assert all(call["error"]["message"] == "HTTP 429: slow down" for call in refused)
    assert all(call["attempts"] == [] for call in refused)
    assert "throttled" in out.findings()


def test_a_quota_that_is_used_up_cuts_what_still_waits_and_sends_nothing_of_it(tmp_path):
    asked = []

    def answer(headers):
        asked.append(headers)
        return 200, "text/event-stream", STREAM

    with answering(answer) as url:
        backend = at(url, quota={"requests_per_min": 5}, price={"input": 1, "cached": 0, "output": 1})
        load = 'kind = "closed"\nusers = 2\nmeasure_s = 3\ndrain_s = 0\n'
        _, out = run_once(tmp_path / "out", scenario(tmp_path, {"b": backend}, load=load), "--quiet")
    assert len(asked) == 5
    waiting = [call for call in out.lines("calls") if call["sent_ns"] == call["done_ns"]]
    assert {call["outcome"] for call in waiting} == {"cut"}
    assert all(call["limit_wait_ns"] > 0 for call in waiting)
    [told] = out.json("summary")["backends"]["b"]["workloads"].values()
    assert told["cost"]["total_usd"]["value"] == pytest.approx(5 * 102e-6)
