"""What a person gets wrong: one sentence on standard error, the right exit code, nothing left over."""

import json
import socket
from pathlib import Path

import pytest

from tests.integration.running import (
    B200,
    answering,
    at,
    harness,
    only_late,
    run,
    scenario,
    serving,
    simulated,
)

LOAD = 'kind = "closed"\nusers = 4\ntasks = 4'
MODEL = "gpt-oss-120b"


def refused(folder, path, *words, **how):
    """Run what must not start: the sentence told, and no folder of results."""
    out = folder / "out"
    ended = harness("run", path, "--out", out, *words, **how)
    assert ended.out == ""
    assert not out.exists()
    return ended.code, ended.sentence()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        pytest.param(B200, "b200", 'backends.b.simulate: no profile "b200"', id="unknown profile"),
        pytest.param("users", "usres", 'load.usres: unknown key; did you mean "users"?', id="misspelt key"),
        pytest.param('name = "', "name = ", "not TOML", id="TOML syntax"),
        pytest.param("tasks = 4", "measure_s = 1e300", "load.measure_s: want a number > 0", id="endless"),
        pytest.param(
            "[load]", '[[workloads]]\nkind="agent"\npreset="coding"\n[load]', "one workload", id="two"
        ),
    ],
)
def test_a_scenario_that_is_wrong(tmp_path, old, new, told):
    path = scenario(tmp_path, {"b": simulated()}, load=LOAD)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    code, sentence = refused(tmp_path, path)
    assert code == 2
    assert sentence.startswith(f"{path}: ")
    assert told in sentence


def test_all_faults_of_a_scenario_are_told_at_once(tmp_path):
    path = scenario(tmp_path, {"b": simulated("nobody")}, load=LOAD.replace("users", "usres"))
    ended = harness("run", path)
    assert ended.code == 2
    assert len(ended.err.splitlines()) == 2


def test_a_scenario_that_is_not_there(tmp_path):
    code, sentence = refused(tmp_path, tmp_path / "none.toml")
    assert (code, sentence) == (
        2,
        f"{tmp_path / 'none.toml'}: there is no such file; want a scenario in TOML",
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--backend", "nobody"), '--backend: no backend "nobody"; backends: b'),
        (("--tasks", "0"), "--tasks: want a whole number >= 1 and <= 10000000, got 0"),
        (("--duration", "inf"), "--duration: want a number > 0 and <= 31536000, got inf"),
        (("--tasks", "1", "--duration", "1"), "--tasks and --duration exclude each other; want one of them"),
    ],
)
def test_a_command_line_that_is_wrong(tmp_path, words, told):
    path = scenario(tmp_path, {"b": simulated()}, load=LOAD)
    assert refused(tmp_path, path, *words) == (2, told)


@pytest.mark.parametrize(
    ("out", "told"),
    [
        pytest.param("a-file", "cannot be made: File exists", id="a file"),
        pytest.param("a-file/below", "cannot be made: Not a directory", id="below a file"),
        pytest.param("/proc/self", "cannot be written: No such file or directory", id="takes no files"),
    ],
)
def test_an_out_that_cannot_be(tmp_path, out, told):
    (tmp_path / "a-file").touch()
    path = scenario(tmp_path, {"b": simulated()}, load=LOAD)
    ended = harness("run", path, "--out", tmp_path / out)
    assert (ended.code, ended.sentence()) == (2, f"{tmp_path / out}: {told}; give another --out")


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({}, "the environment variable HARNESS_TEST_KEY is not set"),
        (
            {"HARNESS_TEST_KEY": "two\nlines"},
            "HARNESS_TEST_KEY holds what no header can carry; is it the key?",
        ),
    ],
    ids=["missing", "not a key"],
)
def test_a_key_that_is_not_there(tmp_path, env, told):
    path = scenario(tmp_path, {"b": at("http://127.0.0.1:9/v1", key_env="HARNESS_TEST_KEY")}, load=LOAD)
    assert refused(tmp_path, path, env=env) == (2, f"backends.b.key_env: {told}")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_nobody_at_the_url_and_the_next_try_may_use_the_same_folder(tmp_path, host):
    with socket.socket() as taken:  # bound, but it does not listen
        taken.bind(("127.0.0.1", 0))
        place = f"{host}:{taken.getsockname()[1]}"
        path = scenario(tmp_path, {"b": at(f"http://{place}/v1")}, load=LOAD)
        code, sentence = refused(tmp_path, path)
    assert code == 4
    assert sentence in {
        f"backends.b.url: cannot reach {place}: {why}; is the server up, and the url right?"
        for why in ("Connection refused", "none of its addresses takes a connection")
    }


def test_a_port_that_is_taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = harness("simulate", "--profile", B200, "--port", port)
    assert (ended.code, ended.out) == (2, "")
    assert ended.sentence() == f"Cannot listen on port {port} of 127.0.0.1: Address already in use."


def invalid(folder, path, **how):
    """Run what starts and cannot succeed; gives why, which stands in every place where one may look."""
    ended, out = run(folder, path, "--quiet", **how)
    [reason] = out.json("verdict")["reasons"]
    assert ended.code == 4
    assert ended.sentence() == f"this run is INVALID: {reason}"
    assert f"verdict INVALID\n  {reason}\n" in ended.out
    assert {task["outcome"] for task in out.tasks()} == {"failed"}
    assert len(out.lines("calls")) == len(out.lines("events")) == len(out.tasks()) == 4
    assert out.json("summary")["backends"]["b"]["workloads"]["demo"]["tasks"]["failed"] == 4
    return reason


def test_a_model_that_is_not_there(tmp_path):
    with serving(B200) as url:
        path = scenario(tmp_path, {"b": at(url, model="gpt-6")}, load=LOAD)
        assert invalid(tmp_path, path) == (
            "b/demo: no task completed: 4 of 4 calls failed: http_error 4; most often: HTTP 404: The model"
            " `gpt-6` does not exist; this server serves `gpt-oss-120b`. (model_not_found)"
        )


def test_a_key_that_is_wrong_and_one_that_is_right(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_SIMULATOR_KEY", "open-sesame")
    well = LOAD.replace("tasks = 4", "tasks = 1")
    path = scenario(tmp_path, {"b": simulated()}, load=well)
    ended, out = run(tmp_path, path)  # the run's own simulators want it, too
    assert ended.code == 0 or only_late(out)
    with serving(B200) as url:
        path = scenario(tmp_path, {"b": at(url, key_env="HARNESS_TEST_KEY")}, load=LOAD)
        (tmp_path / "wrong").mkdir()
        told = invalid(tmp_path / "wrong", path, env={"HARNESS_TEST_KEY": "sesame"})
        assert "HTTP 401: Missing or incorrect API key. (invalid_api_key)" in told
        (tmp_path / "right").mkdir()
        path = scenario(tmp_path, {"b": at(url, key_env="HARNESS_TEST_KEY")}, load=well)
        ended, out = run(tmp_path / "right", path, env={"HARNESS_TEST_KEY": "open-sesame"})
        assert ended.code == 0 or only_late(out)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(
            (200, "text/html", b"<html><title>Hello</title><body>It works!</body></html>"),
            "not_sse 4; most often: the body is no event stream (text/html): Hello It works!",
            id="a web page",
        ),
        pytest.param(
            (500, "application/json", b'{"error": {"message": "boom"}}'),
            "http_error 4; most often: HTTP 500: boom",
            id="c01 all requests 500",
        ),
        pytest.param(
            (200, "application/json", json.dumps({"choices": [{"message": {"content": "hi"}}]}).encode()),
            "not_streamed 4; most often: the server sent the whole answer at once, not a stream",
            id="not streamed",
        ),
    ],
)
def test_a_server_that_answers_something_else(tmp_path, answer, told):
    with answering(lambda headers: answer) as url:
        path = scenario(tmp_path, {"b": at(url)}, load=LOAD)
        assert invalid(tmp_path, path) == f"b/demo: no task completed: 4 of 4 calls failed: {told}"


def test_a_server_that_refuses_every_call_is_given_up(tmp_path):
    page = (404, "text/plain", b"no such page")
    load = 'kind = "closed"\nusers = 11\nmeasure_s = 50'
    with answering(lambda headers: page) as url:
        path = scenario(tmp_path, {"b": at(url)}, load=load)
        ended, out = run(tmp_path, path)
    assert ended.code == 4
    why = "10 calls in a row failed, the last: HTTP 404: no such page"
    assert out.json("verdict")["reasons"][0] == f"b: given up: {why}"
    assert why in ended.err.splitlines()[-1]
    assert 10 <= len(out.tasks()) < 40  # else some 500 in the 50 s


def tool(text):
    return {"index": 0, "id": text, "function": {"name": text, "arguments": text}}


KEY = "a-key-nobody-may-see-4711"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            lambda text: (401, "application/json", json.dumps({"error": {"message": text}})), id="refusal"
        ),
        pytest.param(lambda text: (502, "text/plain", text), id="text"),
        pytest.param(lambda text: (502, "text/plain", "x" * 285 + text), id="at the cut"),
        pytest.param(
            lambda text: (200, "text/event-stream", f"data: {json.dumps({'error': {'message': text}})}\n\n"),
            id="in the stream",
        ),
        pytest.param(
            lambda text: (
                200,
                "text/event-stream",
                f"data: {json.dumps({'error': {'message': 'x' * 285 + text}})}\n\n",
            ),
            id="at the cut of the stream",
        ),
        pytest.param(
            lambda text: (
                200,
                "text/event-stream",
                "".join(
                    f"data: {json.dumps(event)}\n\n"
                    for event in (
                        {"id": text, "service_tier": text, "choices": [{"delta": {"content": text}}]},
                        {"choices": [{"delta": {"tool_calls": [tool(text)]}, "finish_reason": text}]},
                        {"error": {"message": "no", "code": text}},
                    )
                ),
            ),
            id="in every part",
        ),
    ],
)
def test_a_key_that_the_server_tells_stays_out_of_everything(tmp_path, answer):
    def tell(headers):
        assert headers["authorization"] == f"Bearer {KEY}"
        seen.append(command_lines())
        status, kind, text = answer(f"you sent {KEY} in {dict(headers)}")
        return status, kind, text.encode()

    seen = []
    with answering(tell) as url:
        path = scenario(tmp_path, {"b": at(url, key_env="HARNESS_TEST_KEY")}, load=LOAD)
        ended, out = run(tmp_path, path, env={"HARNESS_TEST_KEY": KEY})
    assert ended.code == 4
    for told in (ended.out, ended.err, *seen, *(file.read_text() for file in out.path.iterdir())):
        assert KEY[:8] not in told
    assert "harness\0run" in seen[0]
    assert {call["outcome"] for call in out.lines("calls")} == {"failed"}


def command_lines():
    """What anybody on this machine can read of all processes."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return "\n".join(lines)
