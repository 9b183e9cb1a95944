"""What a simulator answers, asked by OpenAI's SDK and by bare HTTP."""

import asyncio
import contextlib
import itertools
import json
import time

import aiohttp
import openai
import pytest

from harness.simulator.process import simulators
from tests.integration.asking import B200, ULTRAFAST, Server, ask, body, connect, output_events


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    log = tmp_path_factory.mktemp("simulator") / "sends.jsonl"
    with simulators([ULTRAFAST, B200], log=log, seed=7) as process:
        yield Server(dict(zip((ULTRAFAST, B200), process.urls(), strict=True)), log)


def test_sdk_reads_text_and_usage(server):
    chunks = list(
        server.client(ULTRAFAST).chat.completions.create(
            model="gpt-5.6-sol",
            messages=[{"role": "system", "content": "you are it"}, {"role": "user", "content": "go on"}],
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"x_plan": {"output_tokens": 30, "reasoning_tokens": 10}},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert len(text.split()) == 20
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == [
        "stop"
    ]
    usage = chunks[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5, 30, 35)
    assert usage.completion_tokens_details.reasoning_tokens == 10
    assert usage.prompt_tokens_details.cached_tokens == 0
    assert {chunk.service_tier for chunk in chunks} == {"ultrafast"}


def test_sdk_reads_tool_calls_with_valid_arguments(server):
    tools = [{"name": "read_file", "tokens": 9}, {"name": "stop", "tokens": 1}, {"name": "run", "tokens": 3}]
    with server.client(B200).chat.completions.stream(
        model="gpt-oss-120b",
        messages=[{"role": "user", "content": "go"}],
        extra_body={"x_plan": {"output_tokens": 20, "tool_calls": tools}},
    ) as stream:
        completion = stream.get_final_completion()
    [choice] = completion.choices
    assert choice.finish_reason == "tool_calls"
    assert len(choice.message.content.split()) == 7
    calls = choice.message.tool_calls
    assert [call.function.name for call in calls] == ["read_file", "stop", "run"]
    assert len({call.id for call in calls}) == 3
    arguments = [json.loads(call.function.arguments) for call in calls]
    # Name and 8 pieces of arguments, the last of which is the closing brace behind a word
    assert [len(a.get("input", "").split()) for a in arguments] == [8, 0, 2]


def test_sdk_reads_a_whole_answer(server):
    completion = server.client(B200).chat.completions.create(
        model="gpt-oss-120b",
        messages=[{"role": "user", "content": "go"}],
        max_completion_tokens=12,
        extra_body={"x_plan": {"output_tokens": 40, "reasoning_tokens": 4}},
    )
    [choice] = completion.choices
    assert choice.finish_reason == "length"
    assert len(choice.message.content.split()) == 8
    assert len(choice.message.reasoning.split()) == 4
    assert completion.usage.completion_tokens == 12


@pytest.mark.parametrize(
    ("fields", "tokens", "finish"),
    [
        pytest.param({}, 128, "stop", id="nothing said"),
        pytest.param({"max_tokens": 9}, 9, "length", id="limit"),
        pytest.param({"max_tokens": 9, "min_tokens": 4}, 4, "stop", id="forced length below the limit"),
        pytest.param({"max_tokens": 9, "min_tokens": 9}, 9, "length", id="forced length at the limit"),
        pytest.param({"max_tokens": 9, "x_plan": {"output_tokens": 9}}, 9, "stop", id="plan at the limit"),
        pytest.param({"max_tokens": 9, "x_plan": {"output_tokens": 10}}, 9, "length", id="plan cut"),
    ],
)
def test_output_length(server, fields, tokens, finish):
    connection, path = connect(server.urls[B200])
    with contextlib.closing(connection):
        _, events = ask(connection, path, body(**fields))
    assert len(output_events(events)) == tokens
    assert events[-1]["choices"][0]["finish_reason"] == finish
    assert all("usage" not in event for event in events)


@pytest.mark.parametrize(
    ("asked", "served"),
    [(None, "ultrafast"), ("auto", "ultrafast"), ("ultrafast", "ultrafast"), ("default", "default")],
)
def test_tier_is_echoed(server, asked, served):
    connection, path = connect(server.urls[ULTRAFAST])
    with contextlib.closing(connection):
        _, events = ask(connection, path, body(ULTRAFAST, max_tokens=1, service_tier=asked))
    assert {event["service_tier"] for event in events} == {served}


def test_running_usage_tells_each_events_tokens(server):
    connection, path = connect(server.urls[ULTRAFAST])
    plan = {
        "call_id": "running",
        "output_tokens": 60,
        "reasoning_tokens": 20,
        "tool_calls": [{"name": "a", "tokens": 9}],
    }
    options = {"include_usage": True, "continuous_usage_stats": True}
    with contextlib.closing(connection):
        _, events = ask(connection, path, body(ULTRAFAST, x_plan=plan, stream_options=options))
    outputs = [event for event in events if output_events([event])]
    running = [event["usage"]["completion_tokens"] for event in outputs]
    sends = server.logged("running")["sends"]
    assert running[-1] == 60
    assert running[0] >= 21  # the hidden ones are in
    steps = [after - before for before, after in itertools.pairwise(running)]
    assert steps == [tokens for _, tokens, _ in sends[1:]]


def test_second_prompt_with_the_same_start_is_cached(server):
    connection, path = connect(server.urls[B200])
    options = {"include_usage": True}
    start = {"role": "system", "content": " ".join(["cached"] * 3000)}
    cached = []
    with contextlib.closing(connection):
        for question in ("one", "two"):
            messages = [start, {"role": "user", "content": question}]
            _, events = ask(
                connection, path, body(max_tokens=1, stream_options=options) | {"messages": messages}
            )
            cached.append(events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached == [0, 3000]


def test_log_tells_what_was_received_in_count_and_order(server):
    connection, path = connect(server.urls[B200])
    plan = {
        "call_id": "in order",
        "output_tokens": 30,
        "reasoning_tokens": 8,
        "tool_calls": [{"name": "look", "tokens": 5}, {"name": "see", "tokens": 6}],
    }
    before = time.monotonic_ns()
    with contextlib.closing(connection):
        _, events = ask(connection, path, body(x_plan=plan))
    after = time.monotonic_ns()
    line = server.logged("in order")
    assert [kind for _, _, kind in line["sends"]] == [kind for kind, _ in output_events(events)]
    assert [kind for _, _, kind in line["sends"]] == ["reasoning"] * 8 + ["text"] * 11 + ["tool"] * 11
    times = [
        line["received_ns"],
        line["first_byte_ns"],
        *(ns for ns, _, _ in line["sends"]),
        line["ended_ns"],
    ]
    assert times == sorted(times)
    assert before < times[0] < times[-2] < after
    assert (line["profile"], line["cancelled"], line["queued_ns"]) == (B200, False, 0)


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        pytest.param({"model": "gpt-2"}, 404, ["gpt-2", "gpt-oss-120b"], id="unknown model"),
        pytest.param({"messages": []}, 400, ["messages"], id="no messages"),
        pytest.param({"messages": [{"role": "user", "content": 5}]}, 400, ["message 0"], id="bad message"),
        pytest.param({"max_tokens": 0}, 400, ["max_tokens"], id="no tokens"),
        pytest.param(
            {"x_plan": {"output_tokens": 3, "reasoning_tokens": 4}}, 400, ["output_tokens"], id="plan"
        ),
        pytest.param(
            {"x_plan": {"tool_calls": [{"tokens": 4}]}}, 400, ["tool_calls"], id="tool without name"
        ),
        pytest.param({"x_plan": []}, 400, ["x_plan"], id="plan is no object"),
    ],
)
def test_bad_requests_get_a_sentence_and_keep_the_connection(server, fields, status, words):
    connection, path = connect(server.urls[B200])
    with contextlib.closing(connection):
        got, error = ask(connection, path, body() | fields)
        assert got == status
        assert all(word in error["error"]["message"] for word in words)
        assert ask(connection, path, body(max_tokens=1))[0] == 200


def test_sdk_raises_its_own_errors(server):
    with pytest.raises(openai.NotFoundError) as error:
        server.client(B200).chat.completions.create(
            model="gpt-2", messages=[{"role": "user", "content": "go"}]
        )
    assert error.value.code == "model_not_found"
    connection, path = connect(server.urls[B200])
    with contextlib.closing(connection):
        connection.request("POST", f"{path}/chat/completions", "{not json")
        response = connection.getresponse()
        assert response.status == 400
        assert "not JSON" in json.load(response)["error"]["message"]
        connection.request("GET", "/v2/nothing")
        assert "Not Found" in json.load(connection.getresponse())["error"]["message"]


def test_a_connection_is_used_again_after_a_stream(server):
    connection, path = connect(server.urls[B200])
    with contextlib.closing(connection):
        ports = set()
        for _ in range(3):
            assert ask(connection, path, body(max_tokens=5))[0] == 200
            ports.add(connection.sock.getsockname())
    assert len(ports) == 1


def test_many_streams_at_once(server):
    async def one(session, number):
        plan = {"call_id": f"many {number}", "output_tokens": 40}
        url = f"{server.urls[B200]}/chat/completions"
        async with session.post(url, json=body(prompt=f"number {number}", x_plan=plan)) as response:
            return (await response.read()).count(b'"content":" ')

    async def all_of_them():
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(session, number)) for number in range(64)]
            return [task.result() for task in tasks]

    assert asyncio.run(all_of_them()) == [40] * 64
    assert len(server.logged("many 63")["sends"]) == 40
    stats = server.stats(B200)
    assert stats["active"] == stats["queued"] == 0
    assert stats["peak"] > 32
    assert stats["events"] >= 64 * 40


def test_a_client_that_leaves_frees_its_place(server):
    plan = {"call_id": "left", "output_tokens": 100_000}
    with server.client(B200).chat.completions.create(
        model="gpt-oss-120b",
        messages=[{"role": "user", "content": "go"}],
        stream=True,
        extra_body={"x_plan": plan},
    ) as stream:
        next(iter(stream))
    line = server.logged("left")
    assert line["cancelled"]
    assert 0 < len(line["sends"]) < 100_000
    assert server.stats(B200)["active"] == 0
