"""Agent tasks against @copilotkit/aimock: what it was asked to stream is what the harness measures."""

import pytest

from tests.integration.running import only_late, run_once, scenario
from tests.servers.starting import aimock, ask

pytestmark = pytest.mark.needs("aimock")

TASK = """
[[workloads]]
kind = "agent"
preset = "demo"
length_scale = 0.02
calls_scale = 1
calls = {{ value = {calls} }}
tools_per_step = {{ weights = {{ "{tools}" = 1 }} }}
tool_s_max = 0.01
agent_s = {{ value = 0.4 }} # else the harness' own part of so short a task is too large to be valid
"""
LOAD = 'kind = "closed"\nusers = {users}\ntasks = {tasks}'
TASKS = 2
CALLS = 3
ANSWER = "All of it is done."
CAME = {"talker": 0, "caller": 1, "parallel": 3}  # tool calls in each answer but the last
SPEEDS = {"slow": (300, 25), "fast": (50, 100)}  # ms to the first chunk, chunks a second
CHUNKS = 25


def usage(prompt, completion):
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def calling(model, turn):
    """The answer to call number `turn` of a task: some words, then tool calls side by side."""
    calls = [
        {"id": f"call_{turn}_{i}", "name": "read_file", "arguments": {"input": f"part {i} of turn {turn}"}}
        for i in range(CAME[model])
    ]
    said = {"content": f"Reading, turn {turn}.", "toolCalls": calls, "usage": usage(100 + turn, 20)}
    return {"match": {"model": model, "turnIndex": turn}, "response": said}


def looping(model):
    """A model that calls tools until its last answer, and knows no call beyond it."""
    last = {"model": model, "turnIndex": CALLS - 1}
    return [
        *(calling(model, turn) for turn in range(CALLS - 1)),
        {"match": last, "response": {"content": ANSWER, "usage": usage(200, 7)}},
    ]


def pacing(model, ttft_ms, tps):
    """A model that streams CHUNKS chunks of four letters, each told to be one token."""
    return {
        "match": {"model": model},
        "response": {"content": "word" * CHUNKS, "usage": usage(50, CHUNKS)},
        "chunkSize": 4,
        "streamingProfile": {"ttft": ttft_ms, "tps": tps},
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    fixtures = [
        {"match": {"model": "talker"}, "response": {"content": ANSWER, "usage": usage(200, 7)}},
        *looping("caller"),
        *looping("parallel"),
        *(pacing(model, *speed) for model, speed in SPEEDS.items()),
    ]
    with aimock(tmp_path_factory.mktemp("aimock"), fixtures) as url:
        yield url


def ran(folder, server, models, *, calls, tools, tasks, users=2):
    backends = {model: {"url": f"{server}/v1", "model": model} for model in models}
    workload = TASK.format(calls=calls, tools=tools)
    path = scenario(folder, backends, load=LOAD.format(tasks=tasks, users=users), workload=workload)
    ended, out = run_once(folder / "out", path)
    assert ended.code == 0 or only_late(out), ended.err
    assert [task["outcome"] for task in out.tasks()] == ["completed"] * (tasks * len(models))
    return out


@pytest.fixture(scope="module", params=[1, 3], ids=["one planned", "three planned"])
def looped(request, server, tmp_path_factory):
    """A run of tool loops: how many tool calls a step were planned, its folder, what the server was sent."""
    folder = tmp_path_factory.mktemp("looped")
    before = len(journal(server))
    out = ran(folder, server, CAME, calls=CALLS, tools=request.param, tasks=TASKS)
    return request.param, out, conversations(journal(server)[before:], out)


def journal(server):
    """All requests that the server got."""
    return ask(f"{server}/__aimock/journal")


def conversations(entries, out):
    """By backend, the messages of each task's last request; none was sent but those in the records."""
    assert len(entries) == len(out.lines("calls"))
    last = [entry["body"] for entry in entries if len(answers(entry["body"]["messages"])) == CALLS - 1]
    return {
        model: [body["messages"] for body in last if body["model"] == model]
        for model in out.json("summary")["backends"]
    }


def answers(messages):
    return [message for message in messages if message["role"] == "assistant"]


def ids(messages, turn):
    """Of the answer number `turn`: the ids called, and the ids of the results that follow it at once."""
    start = messages.index(answers(messages)[turn])
    called = [call["id"] for call in messages[start].get("tool_calls", [])]
    results = []
    for message in messages[start + 1 :]:
        if message["role"] != "tool":
            break
        assert message["content"]
        results.append(message["tool_call_id"])
    return called, results


@pytest.mark.parametrize("model", CAME)
def test_tool_results_answer_the_calls_by_their_ids(looped, model):
    planned, _, sent = looped
    assert len(sent[model]) == TASKS
    for messages in sent[model]:
        for turn in range(CALLS - 1):
            came = [f"call_{turn}_{i}" for i in range(CAME[model])]
            assert ids(messages, turn) == (came, came)
        told = sum(message["role"] == "user" for message in messages[messages.index(answers(messages)[0]) :])
        assert told == (CALLS - 1 if planned > CAME[model] else 0)  # results that no call asked for


@pytest.mark.parametrize("model", CAME)
def test_history_is_what_the_model_said(looped, model):
    _, _, sent = looped
    words = [ANSWER] * 2 if model == "talker" else ["Reading, turn 0.", "Reading, turn 1."]
    assert [[m["content"] for m in answers(messages)] for messages in sent[model]] == [words] * TASKS


@pytest.mark.parametrize("model", CAME)
def test_what_differs_from_the_plan_is_counted(looped, model):
    planned, out, _ = looped
    for task in out.tasks(model):
        assert task["plan_mismatch"] == (CALLS - 1) * abs(planned - CAME[model])
        assert len(task["tools"]) == (CALLS - 1) * planned  # the plan is done, whatever the model says


def test_usage_is_what_the_server_told(looped):
    _, out, _ = looped
    calls = [call for call in out.lines("calls") if call["backend"] == "parallel"]
    told = [(call["input_tokens"], call["output_tokens"], call["finish_reason"]) for call in calls]
    assert sorted(told) == sorted(
        [(100, 20, "tool_calls"), (101, 20, "tool_calls"), (200, 7, "stop")] * TASKS
    )
    assert {call["token_source"] for call in calls} == {"usage"}
    tokens = out.json("summary")["backends"]["parallel"]["workloads"]["demo"]["tokens"]
    assert (tokens["input"], tokens["output"]) == (TASKS * 401, TASKS * 47)


def test_speed_is_what_the_server_was_asked_for(tmp_path, server):
    out = ran(tmp_path, server, SPEEDS, calls=1, tools=1, tasks=6, users=6)
    assert {call["streamed_events"] for call in out.lines("calls")} == {CHUNKS}
    for model, (ttft_ms, tps) in SPEEDS.items():
        one = out.json("summary")["backends"][model]["workloads"]["demo"]
        # the first chunk has a role and no text: the first text is one gap later. A timer of Node.js may
        # fire a millisecond early, and as late as it likes on a busy machine
        asked_s = (ttft_ms + 1000 / tps) / 1000
        assert asked_s - 0.003 < one["ttft_s"]["p50"]["value"] < 1.5 * asked_s + 0.1
        assert 0.5 * tps < one["decode_tokens_per_s"]["value"] < 1.1 * tps
        assert 900 / tps < one["tpot_ms"]["p50"]["value"] < 2000 / tps
        task_s = (ttft_ms + CHUNKS * 1000 / tps) / 1000
        assert 0.95 * task_s < one["task_time"]["p50_s"]["value"] < 2 * task_s + 0.1
