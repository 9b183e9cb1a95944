"""`--prometheus-port` on Locust's master: each run has the page, until the next one, and a last scrape."""

import os
import re
import signal
import urllib.request

from tests.integration.locusting import ended, tasks_in, tree, until
from tests.integration.running import Folder, scenario
from tests.integration.test_locust_web import CLOSED, TWO, Web
from tests.servers.starting import free_port

SHORT = 'kind = "closed"\nusers = 2\ntasks = 4'


def runs_on(port):
    """The run ids on a page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return set(re.findall(r'run="(\w+)"', answer.read().decode()))


def test_in_the_web_interface_a_page_stays_until_the_next_run(tmp_path):
    path, out, again = scenario(tmp_path, TWO, load=CLOSED), tmp_path / "out", tmp_path / "out-2"
    port, live = free_port(), free_port()
    with tree() as one:
        words = ["--web-host", "127.0.0.1", "--web-port", port, "--prometheus-port", live]
        process = one.locust(*words, "--scenario", path, "--out", out)
        web = Web(path, out, port=port)
        for folder in (out, again):
            assert web.swarm()["success"]
            until(lambda folder=folder: tasks_in(folder) >= 4, what="tasks")
            assert runs_on(live) == {Folder(folder).json("run")["run_id"]}
            if folder == out:
                web.stop()
                until((out / "verdict.json").exists, what="the verdict")
                assert runs_on(live) == {Folder(out).json("run")["run_id"]}
        os.kill(process.pid, signal.SIGINT)
        assert ended(process).code == 130
        assert one.left_after(5) == []


def test_headless_ctrl_c_ends_the_wait_for_the_last_scrape_and_the_verdict_stays_the_exit_code(tmp_path):
    path = scenario(tmp_path, TWO, load=SHORT)
    with tree() as one:
        process = one.headless("--scenario", path, "--out", tmp_path / "out", "--prometheus-port", 0)
        said = []
        for line in process.stderr:
            said.append(line)
            if "waiting up to 15 s for Prometheus" in line:
                break
        else:
            raise AssertionError("".join(said))
        os.kill(process.pid, signal.SIGINT)
        told = ended(process)
        assert one.left_after(5) == []
    verdict = Folder(tmp_path / "out").json("verdict")["verdict"]
    assert told.code == {"NONE": 0, "INVALID": 4}[verdict], told.err  # invalid: this machine was too busy


def test_a_port_that_cannot_be_had_is_a_sentence_and_nothing_is_left(tmp_path):
    path = scenario(tmp_path, TWO, load=SHORT)
    with tree() as one:
        told = ended(one.headless("--scenario", path, "--out", tmp_path / "out", "--prometheus-port", 70000))
        assert one.left_after(5) == []
    assert told.code == 2
    assert "--prometheus-port 70000: want a number from 0 to 65535" in told.err
    assert "Traceback" not in told.err
    assert not (tmp_path / "out").exists()
