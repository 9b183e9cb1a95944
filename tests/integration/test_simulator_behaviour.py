"""A simulator that departs from its profile: limits, failures, another tier, distance."""

import asyncio
import contextlib
import itertools
import json
import resource
import ssl
import time

import aiohttp
import openai
import pytest
import trustme

from harness.behaviour import Behaviour
from harness.errors import UsageError
from harness.simulator.output import WORDS
from harness.simulator.process import simulators
from tests.integration.asking import B200, ULTRAFAST, Server, ask, body, connect, output_events
from tests.integration.running import SHORT_TASKS, run_once, scenario, simulated

STANDARD = "gpt-5.6-sol-standard"


@contextlib.contextmanager
def behaving(profile=B200, *, log=None, **behaviour):
    with simulators([profile], log=log, behaviours=[Behaviour(**behaviour)]) as process:
        yield Server({profile: process.urls()[0]}, log)


def create(client, **fields):
    return client.chat.completions.create(
        model="gpt-oss-120b", messages=[{"role": "user", "content": "go on"}], **fields
    )


def test_a_limit_on_requests_refuses_tells_when_and_lets_in_then():
    with behaving(requests_per_min=600) as server, server.client(B200) as client:
        raw = client.chat.completions.with_raw_response
        fields = {"model": "gpt-oss-120b", "messages": [{"role": "user", "content": "go"}], "max_tokens": 1}
        left = raw.create(**fields).headers
        assert left["x-ratelimit-limit-requests"] == "600"
        assert int(left["x-ratelimit-remaining-requests"]) == 599
        assert left["x-ratelimit-reset-requests"].endswith("ms")
        assert "x-ratelimit-limit-tokens" not in left


def test_a_limit_on_tokens_counts_prompt_and_most_output():
    with behaving(tokens_per_min=1000) as server, server.client(B200) as client:
        create(client, max_tokens=996, extra_body={"x_plan": {"output_tokens": 1}})
        with pytest.raises(openai.RateLimitError) as refused:
            create(client, max_tokens=100)
        error = refused.value
        assert (error.status_code, error.code, error.type) == (429, "rate_limit_exceeded", "tokens")
        headers = error.response.headers
        assert 0 < int(headers["retry-after-ms"]) <= 6000
        assert int(headers["retry-after"]) >= int(headers["retry-after-ms"]) / 1000
        assert headers["x-ratelimit-limit-tokens"] == "1000"
        assert server.stats(B200)["refused"] == {"429": 1}
        retrying = client.with_options(max_retries=2)
        started = time.monotonic()
        create(retrying, max_tokens=20)
        assert time.monotonic() - started > 0.5


def test_what_can_never_fit_says_so():
    with behaving(tokens_per_min=100) as server, server.client(B200) as client:
        with pytest.raises(openai.RateLimitError) as refused:
            create(client.with_options(max_retries=2), max_tokens=200)
        assert refused.value.response.headers["x-should-retry"] == "false"
        assert server.stats(B200)["refused"] == {"429": 1}


@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_the_first_requests_fail_and_the_sdk_comes_again(status):
    with (
        behaving(fail_first=2, fail_status=status, retry_after_s=0.05) as server,
        server.client(B200) as client,
    ):
        with pytest.raises(openai.APIStatusError) as refused:
            create(client)
        assert refused.value.status_code == status
        assert refused.value.response.headers["retry-after-ms"] == "50"
        assert create(client.with_options(max_retries=1), max_tokens=1).usage.completion_tokens == 1
        assert server.stats(B200)["refused"] == {str(status): 2}


def test_a_share_fails_whatever_came_before():
    with behaving(fail_share=0.5) as server:
        connection, path = connect(server.urls[B200])
        with contextlib.closing(connection):
            got = [ask(connection, path, body(max_tokens=1))[0] for _ in range(40)]
    assert set(got) == {200, 503}
    assert 5 < got.count(503) < 35


def tiers(server, asked="ultrafast", calls=3):
    connection, path = connect(server.urls[ULTRAFAST])
    told = []
    with contextlib.closing(connection):
        for call in range(calls):
            plan = {"call_id": str(call), "output_tokens": 4}
            _, events = ask(connection, path, body(ULTRAFAST, service_tier=asked, x_plan=plan))
            told += {event["service_tier"] for event in events}
    served = [server.logged(str(call))["profile"] for call in range(calls)]
    return list(zip(told, served, strict=True))


@pytest.mark.parametrize(
    ("echo", "told"), [("served", "default"), ("asked", "ultrafast")], ids=["told", "contradiction"]
)
def test_a_fallback_serves_unasked_after_the_first_call(tmp_path, echo, told):
    behaviour = {"rtt_ms": 0, "fallback": STANDARD, "fallback_after": 1, "fallback_echo": echo}
    with behaving(ULTRAFAST, log=tmp_path / "log", **behaviour) as server:
        assert tiers(server) == [("ultrafast", ULTRAFAST), (told, STANDARD), (told, STANDARD)]
        assert server.stats(ULTRAFAST)["fallback"]["streams"] == 2


def test_a_share_of_the_calls_falls_back_so_the_tier_changes_amid_a_task(tmp_path):
    with behaving(ULTRAFAST, log=tmp_path / "log", rtt_ms=0, fallback=STANDARD, fallback_share=0.5) as server:
        told = tiers(server, calls=12)
    assert set(told) == {("ultrafast", ULTRAFAST), ("default", STANDARD)}


def test_a_fallback_has_a_cache_of_its_own():
    prompt = " ".join(["word"] * 2000)
    with behaving(ULTRAFAST, rtt_ms=0, fallback=STANDARD, fallback_after=2) as server:
        connection, path = connect(server.urls[ULTRAFAST])
        cached = []
        with contextlib.closing(connection):
            for _ in range(4):
                fields = body(ULTRAFAST, prompt=prompt, max_tokens=1, stream_options={"include_usage": True})
                usage = ask(connection, path, fields)[1][-1]["usage"]
                cached.append(usage["prompt_tokens_details"]["cached_tokens"])
    assert cached == [0, 2000, 0, 2000]


def test_distance_costs_a_round_trip_a_call_and_one_more_a_connection(tmp_path):
    with behaving(rtt_ms=500, log=tmp_path / "log") as server:
        took = []
        connection, path = connect(server.urls[B200])
        with contextlib.closing(connection):
            for call in range(2):
                started = time.monotonic_ns()
                plan = {"call_id": str(call), "output_tokens": 1}
                options = {"include_usage": True}
                _, events = ask(connection, path, body(x_plan=plan, stream_options=options))
                took.append((time.monotonic_ns() - started) / 1e6)
                assert events[-1]["x_sim"]["rtt_ms"] == 500
        lines = [server.logged(str(call)) for call in range(2)]
        served = [(line["ended_ns"] - line["received_ns"]) / 1e6 for line in lines]
        over = [all_of_it - here for all_of_it, here in zip(took, served, strict=True)]
    assert 1000 <= over[0] < 1500
    assert 500 <= over[1] < 1000


def test_over_tls_a_new_connection_costs_one_round_trip_more(tmp_path):
    authority = trustme.CA()
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(str(cert))
    certificate.private_key_pem.write_to_path(str(key))
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    with simulators([B200], tls=(cert, key), behaviours=[Behaviour(rtt_ms=500)]) as process:
        connection, path = connect(process.urls()[0], trust)
        with contextlib.closing(connection):
            started = time.monotonic()
            connection.connect()
            secure_ms = (time.monotonic() - started) * 1e3
            assert ask(connection, path, body(max_tokens=1))[0] == 200
            whole_ms = (time.monotonic() - started) * 1e3
    assert 1000 <= secure_ms < 1500
    assert 1500 <= whole_ms < 2500


def test_distance_keeps_order_and_holds_nothing_back_for_long():
    with behaving(rtt_ms=40) as server:
        connection, path = connect(server.urls[B200])
        connection.request("POST", f"{path}/chat/completions", json.dumps(body(max_tokens=400)))
        response = connection.getresponse()
        running, times = [], []
        while line := response.readline():
            if line.startswith(b"data: {"):
                running.append(json.loads(line[6:]))
                times.append(time.monotonic())
        connection.close()
    words = [text for _, text in output_events(running)]
    there = [WORDS.index(word) for word in words]
    assert [(after - before) % len(WORDS) for before, after in itertools.pairwise(there)] == [1] * 399
    assert times[-1] - times[0] > 0.4  # 400 tokens of 2 ms


def test_a_run_knows_what_each_transport_costs_over_distance(tmp_path):
    far = simulated(B200, dialect="openai-responses", behaviour={"rtt_ms": 100})
    backends = {how: far | {"transport": how} for how in ("new-connection", "keep-alive", "websocket")}
    workload = f"{SHORT_TASKS}calls = {{ value = 10 }}\n"  # the preset takes a fifth of them
    path = scenario(tmp_path, backends, load='kind = "closed"\nusers = 1\ntasks = 2', workload=workload)
    _, folder = run_once(tmp_path / "out", path)
    told = {}
    for call in folder.lines("calls"):
        assert call["outcome"] == "ok"
        told.setdefault(call["backend"], {}).setdefault(call["connection"], set()).add(call["network_ns"])
    assert set(told["new-connection"]) == {"new"}
    assert min(told["new-connection"]["new"]) >= 200_000_000  # handshake, call
    assert told["keep-alive"]["reused"] == {100_000_000}
    assert told["websocket"]["reused"] == {100_000_000}
    assert min(told["websocket"]["new"]) > 290_000_000  # handshake, upgrade, call


def test_many_connections_at_a_distance_need_more_files_than_most_systems_give():
    async def one(session, url):
        async with session.post(f"{url}/chat/completions", json=body(max_tokens=20)) as response:
            return (await response.read()).count(b'"content":" ')

    async def all_of_them(url):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(session, url)) for _ in range(120)]
            return [task.result() for task in tasks]

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        process = simulators([B200], behaviours=[Behaviour(rtt_ms=50)])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with process:
        assert asyncio.run(all_of_them(process.urls()[0])) == [20] * 120


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [('{"fail_first": -1}', "fail_first"), ('{"no_such": 1}', "no_such"), ("{", "behaviour")],
)
def test_a_behaviour_that_cannot_be_read_is_named(behaviour, words, capsys):
    from harness.simulator.server import main

    assert main(["--profile", B200, "--behaviour", behaviour]) == 2
    assert words in capsys.readouterr().err


def test_a_fallback_that_is_no_profile_is_named():
    with (
        simulators([B200], behaviours=[Behaviour(fallback="nobody")]) as process,
        pytest.raises(UsageError, match="nobody"),
    ):
        process.urls()
