"""The words of the command line: help, the list of profiles, decoding, a server until Ctrl-C."""

import json
import re
import signal
from pathlib import Path

import pytest

from harness.simulator.profiles import profiles
from tests.integration.running import B200, end, harness, start

DATA = Path(__file__).parents[1] / "data"
CASES = DATA / "sse_cases.json"
COMMANDS = ["run", "report", "gate", "compare", "selftest", "simulate", "decode"]


@pytest.mark.parametrize(("words", "code"), [(("--help",), 0), ((), 2)], ids=["asked", "no arguments"])
def test_help_lists_the_commands_that_are_there(words, code):
    ended = harness(*words)
    text = ended.out + ended.err
    assert ended.code == code
    assert re.findall(r"^  (\w+)  ", text.split("Commands:")[1], re.MULTILINE) == COMMANDS
    assert "Example: harness run scenarios/demo.toml" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example_with_its_own_options(command):
    ended = harness(command, "--help")
    assert ended.code == 0
    usage, example = ended.out.split("Example: ")
    assert example.startswith(f"harness {command} ")
    assert set(re.findall(r"--\w+", example)) <= set(re.findall(r"--\w+", usage))


def test_a_command_that_is_not_there():
    ended = harness("forecast")
    assert ended.code == 2
    assert ended.err.splitlines()[-1] == "Error: No such command 'forecast'."


def test_the_list_of_profiles():
    ended = harness("simulate", "--list")
    assert ended.code == 0
    assert [line.split()[0] for line in ended.out.splitlines()] == list(profiles())


def test_simulate_serves_until_ctrl_c():
    process = start("simulate", "--profile", B200, "--port", "0")
    told = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    ended = end(process)
    assert told["profile"] == B200
    assert told["url"].startswith("http://127.0.0.1:")
    assert (ended.code, ended.err) == (0, "")


def test_decode_tells_a_json_line_for_each_case():
    ended = harness("decode", CASES)
    cases = json.loads(CASES.read_text())
    told = [json.loads(line) for line in ended.out.split("\n")[:-1]]  # U+2028 ends no line of JSON
    assert ended.code == 0
    assert [one["id"] for one in told] == [case["id"] for case in cases]
    for one, case in zip(told, cases, strict=True):
        if "skipped" not in one:
            assert one["ok"] == case["expect"]["ok"]
            assert one["text"] == case["expect"]["text"]
    assert sum("skipped" not in one for one in told) >= 10


@pytest.mark.parametrize(
    ("name", "ok"),
    [("llamacpp_chat_plain", True), ("llamacpp_chat_error_400", False)],
    ids=["well", "refused"],
)
def test_decode_reads_a_recording(name, ok):
    ended = harness("decode", DATA / "recordings" / f"{name}.json")
    facts = json.loads(ended.out)
    assert (ended.code, ended.err) == (0, "")
    assert (facts["id"], facts["ok"]) == (f"{name}.json", ok)


@pytest.mark.parametrize(
    ("text", "told"),
    [("no JSON", "is not JSON"), ("{}", "is neither a list of cases nor a recording"), (None, "cannot read")],
)
def test_decode_says_what_it_cannot_read(tmp_path, text, told):
    path = tmp_path / "file.json"
    if text is not None:
        path.write_text(text)
    ended = harness("decode", path)
    assert ended.code == 2
    assert told in ended.sentence()
