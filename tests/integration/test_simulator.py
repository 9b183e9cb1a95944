"""The simulator as a process of its own, asked by OpenAI's SDK and by bare HTTP."""

import asyncio
import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from urllib.parse import urlsplit

import aiohttp
import openai
import pytest
import trustme

from harness.errors import UsageError
from harness.simulator.process import simulators

ULTRAFAST = "gpt-5.6-sol-ultrafast"
B200 = "b200x8-gpt-oss-120b-trtllm"
MODELS = {ULTRAFAST: "gpt-5.6-sol", B200: "gpt-oss-120b"}
PATIENCE_S = 20


class Server:
    """The URLs and the log of a running simulator."""

    def __init__(self, urls, log):
        self.urls = urls
        self._log = log

    def client(self, profile, key="none"):
        return openai.OpenAI(base_url=self.urls[profile], api_key=key, max_retries=0, timeout=PATIENCE_S)

    def stats(self, profile):
        connection, _ = connect(self.urls[profile])
        with contextlib.closing(connection):
            connection.request("GET", "/stats")
            return json.load(connection.getresponse())

    def logged(self, call_id):
        """Wait for the line of a call: it is written after the client has seen the end."""
        return eventually(lambda: next((line for line in self._lines() if line["call_id"] == call_id), None))

    def _lines(self):
        return [json.loads(line) for line in self._log.read_text().splitlines()]


def eventually(ask):
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := ask()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return answer


def connect(url, tls=None):
    parts = urlsplit(url)
    if tls:
        return http.client.HTTPSConnection(parts.netloc, context=tls, timeout=PATIENCE_S), parts.path
    return http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_S), parts.path


def body(profile=B200, *, prompt="say it", **fields):
    message = {"role": "user", "content": prompt}
    return {"model": MODELS[profile], "messages": [message], "stream": True, **fields}


def ask(connection, path, fields):
    """Return the status and the decoded events, or the error, of one request on an open connection."""
    connection.request("POST", f"{path}/chat/completions", json.dumps(fields))
    response = connection.getresponse()
    data = response.read()
    if response.status != 200:
        return response.status, json.loads(data)
    frames = data.decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    return 200, [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


def output_events(events):
    """(kind, text) of each event that carries output, read apart from the code under test."""
    found = []
    for event in events:
        for choice in event["choices"]:
            delta = choice["delta"]
            if delta.get("content"):
                found.append(("text", delta["content"]))
            if delta.get("reasoning"):
                found.append(("reasoning", delta["reasoning"]))
            functions = [call["function"] for call in delta.get("tool_calls", ())]
            found += [("tool", function.get("name", "") + function["arguments"]) for function in functions]
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    log = tmp_path_factory.mktemp("simulator") / "sends.jsonl"
    with simulators([ULTRAFAST, B200], log=log, seed=7) as process:
        yield Server(process.urls(), log)


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


def test_a_key_is_wanted_when_one_is_set(monkeypatch):
    monkeypatch.setenv("HARNESS_SIMULATOR_KEY", "sesame")
    with simulators([B200]) as process:
        one = Server(process.urls(), None)
        with pytest.raises(openai.AuthenticationError):
            one.client(B200, key="wrong").models.list()
        assert [model.id for model in one.client(B200, key="sesame").models.list()] == ["gpt-oss-120b"]


def test_a_connection_is_used_again_after_a_stream(server):
    connection, path = connect(server.urls[B200])
    with contextlib.closing(connection):
        ports = set()
        for _ in range(3):
            assert ask(connection, path, body(max_tokens=5))[0] == 200
            ports.add(connection.sock.getsockname())
    assert len(ports) == 1


def test_tls_streams_and_keeps_the_connection(tmp_path):
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.cert_chain_pems[0].write_to_path(str(cert))
    certificate.private_key_pem.write_to_path(str(key))
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    with simulators([B200], tls=(cert, key)) as process:
        url = process.urls()[B200]
        assert url.startswith("https://")
        connection, path = connect(url, trust)
        with contextlib.closing(connection):
            assert len(output_events(ask(connection, path, body(max_tokens=50))[1])) == 50
            local = connection.sock.getsockname()
            assert len(output_events(ask(connection, path, body(max_tokens=5))[1])) == 5
            assert connection.sock.getsockname() == local


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


def test_a_taken_port_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            simulators([B200], port=port) as process,
            pytest.raises(UsageError, match=f"port {port} .*in use"),
        ):
            process.urls()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        pytest.param({"profiles": ["nobody"]}, "nobody.*gpt-5.6-sol-standard", id="unknown profile"),
        pytest.param({"profiles": [B200], "log": "/nowhere/log"}, "/nowhere/log", id="log in no folder"),
    ],
)
def test_a_child_that_cannot_start_says_why(fields, words):
    with simulators(**fields) as process, pytest.raises(UsageError, match=words):
        process.urls()


def test_stop_ends_open_streams_and_completes_the_log(tmp_path):
    log = tmp_path / "sends.jsonl"
    with simulators([B200], log=log) as process:
        connection, path = connect(process.urls()[B200])
        plan = {"call_id": "open", "output_tokens": 100_000}
        connection.request("POST", f"{path}/chat/completions", json.dumps(body(x_plan=plan)))
        connection.getresponse().read(2000)
        process.stop()
        connection.close()
    [line] = [json.loads(line) for line in log.read_text().splitlines()]
    assert line["call_id"] == "open"
    assert line["cancelled"]


def test_the_child_does_not_outlive_a_killed_parent():
    script = (
        "import time; from harness.simulator.process import simulators\n"
        f"process = simulators([{B200!r}]); print(process.urls()[{B200!r}], flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with parent:
        address = urlsplit(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)

    def refused():
        with socket.socket() as probe:
            return probe.connect_ex((address.hostname, address.port)) != 0

    assert eventually(refused)
