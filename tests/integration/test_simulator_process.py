"""How a simulator starts, refuses to start, and ends."""

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from urllib.parse import urlsplit

import openai
import pytest
import trustme

from harness.errors import UsageError
from harness.simulator.process import simulators
from tests.integration.asking import B200, ULTRAFAST, Server, ask, body, connect, eventually, output_events


def test_a_key_is_wanted_when_one_is_set(monkeypatch):
    monkeypatch.setenv("HARNESS_SIMULATOR_KEY", "sesame")
    with simulators([B200]) as process:
        one = Server({B200: process.urls()[0]}, None)
        with pytest.raises(openai.AuthenticationError):
            one.client(B200, key="wrong").models.list()
        assert [model.id for model in one.client(B200, key="sesame").models.list()] == ["gpt-oss-120b"]


def test_tls_streams_and_keeps_the_connection(tmp_path):
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.cert_chain_pems[0].write_to_path(str(cert))
    certificate.private_key_pem.write_to_path(str(key))
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    with simulators([B200], tls=(cert, key)) as process:
        url = process.urls()[0]
        assert url.startswith("https://")
        connection, path = connect(url, trust)
        with contextlib.closing(connection):
            assert len(output_events(ask(connection, path, body(max_tokens=50))[1])) == 50
            local = connection.sock.getsockname()
            assert len(output_events(ask(connection, path, body(max_tokens=5))[1])) == 5
            assert connection.sock.getsockname() == local


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


def test_one_profile_may_be_served_twice_each_a_machine_of_its_own():
    with simulators([B200, ULTRAFAST, B200]) as process:
        urls = process.urls()
        assert len(set(urls)) == 3
        models = [Server({B200: url}, None).client(B200).models.list().data[0].id for url in urls]
    assert models == ["gpt-oss-120b", "gpt-5.6-sol", "gpt-oss-120b"]


def test_the_seed_decides_how_tokens_are_grouped():
    def sizes(url):
        connection, path = connect(url)
        options = {"continuous_usage_stats": True}
        with contextlib.closing(connection):
            _, events = ask(connection, path, body(ULTRAFAST, max_tokens=60, stream_options=options))
        return [event["usage"]["completion_tokens"] for event in events]

    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(simulators([ULTRAFAST], seed=seed)) for seed in (1, 1, 2)]
        first, same, other = (sizes(process.urls()[0]) for process in started)
    assert first == same != other


def test_stop_ends_open_streams_and_completes_the_log(tmp_path):
    log = tmp_path / "sends.jsonl"
    log.write_text('{"call_id": "of a server before"}\n')
    with simulators([B200], log=log) as process:
        connection, path = connect(process.urls()[0])
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
        f"process = simulators([{B200!r}]); print(process.urls()[0], flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with parent:
        address = urlsplit(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)

    def refused():
        with socket.socket() as probe:
            return probe.connect_ex((address.hostname, address.port)) != 0

    assert eventually(refused)
