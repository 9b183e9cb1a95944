"""`harness run --prometheus-port` as its users meet it; for what it serves see test_dashboard.py."""

import re
import signal
import socket
import urllib.request

from tests.integration.running import PATIENCE_S, Folder, end, harness, scenario, simulated, start

LOAD = 'kind = "closed"\nusers = 1\ntasks = 1'


def fetch(url):
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return answer.read().decode()


def test_a_taken_port_is_a_sentence_and_nothing_is_left(tmp_path):
    path = scenario(tmp_path, {"one": simulated()}, load=LOAD)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = harness("run", path, "--out", tmp_path / "out", "--prometheus-port", port)
    assert ended.code == 2
    assert ended.sentence().startswith(f"--prometheus-port {port}: cannot listen on 127.0.0.1:{port}: ")
    assert not (tmp_path / "out").exists()


def told(process, wanted):
    """Read standard error until a line has it."""
    for line in process.stderr:
        if found := re.search(wanted, line):
            return found
    raise AssertionError(f"never said: {wanted}")


def test_the_answer_comes_first_then_the_last_scrape_and_ctrl_c_costs_nothing(tmp_path):
    path = scenario(tmp_path, {"one": simulated()}, load=LOAD)
    out = Folder(tmp_path / "out")
    process = start("run", path, "--out", out.path, "--prometheus-port", 0, "--quiet")
    told(process, "waiting up to 15 s")
    assert out.json("summary")["verdict"] in (
        "NONE",
        "INVALID",
    )  # of a machine that was busy with something else
    process.send_signal(signal.SIGINT)
    ended = end(process)
    assert ended.code == (0 if out.json("summary")["verdict"] == "NONE" else 4)
    assert "verdict" in ended.out


def test_the_last_scrape_has_all_and_ends_the_run(tmp_path):
    path = scenario(tmp_path, {"one": simulated()}, load=LOAD)
    process = start("run", path, "--out", tmp_path / "out", "--prometheus-port", 0)
    url = told(process, r"(http://127\.0\.0\.1:\d+/metrics)")[1]
    told(process, "waiting up to 15 s")
    [line] = [line for line in fetch(url).splitlines() if 'outcome="completed"' in line]
    assert line.endswith(" 1.0")
    assert Folder(tmp_path / "out").json("run")["run_id"] in line
    end(process)
