"""Every fault of a scenario is one line at the key that the user wrote; all of them come at once."""

import re
from itertools import groupby
from pathlib import Path

import pytest

from harness.errors import ScenarioError
from harness.scenario import load_scenario
from tests.scenario_text import GOOD, KINDS, PROFILES, parsed

CASES = Path(__file__).parents[1] / "data" / "scenario_faults.txt"
SECRET = re.compile("secret|7355608")


def cases():
    """Each case as (bad scenario, expected lines): runs of "-" lines are replaced by the "+" lines after."""
    for block in CASES.read_text().split("\n# ")[1:]:
        name, *lines = block.strip().split("\n")
        text, old = GOOD, ""
        expected = [f"x.toml: {line[2:]}" for line in lines if line.startswith("=")]
        edits = [
            (sign, [line[2:] + "\n" for line in run]) for sign, run in groupby(lines, key=lambda x: x[0])
        ]
        for i, (sign, run) in enumerate(edits):
            if sign == "-":
                old = "".join(run)
                assert text.count(f"\n{old}") == 1, f"{name}: {old}"
                new = "".join(edits[i + 1][1]) if edits[i + 1][0] == "+" else ""
                text = text.replace(f"\n{old}", f"\n{new}")
        yield pytest.param(text, expected, id=name)


@pytest.mark.parametrize(("text", "lines"), list(cases()))
def test_a_fault_is_told(text, lines):
    with pytest.raises(ScenarioError) as caught:
        parsed(text)
    assert caught.value.problems == lines
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("text", "lines"), list(cases()))
def test_neither_pydantic_nor_a_secret_shows(text, lines):
    with pytest.raises(ScenarioError) as caught:
        parsed(text)
    told = f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"
    assert not re.search(r"pydantic|Input|valid(ation)? error|ClosedLoad|\[type=", told)
    assert not SECRET.search(told)


def test_there_are_enough_cases():
    assert len(list(cases())) >= 30


@pytest.mark.parametrize(
    ("make", "told"),
    [
        pytest.param(lambda path: None, "there is no such file; want a scenario in TOML", id="missing"),
        pytest.param(lambda path: path.mkdir(), "this is a directory; want a scenario file", id="directory"),
        pytest.param(
            lambda path: path.write_bytes(b'schema = 1\nname = "caf\xe9"\n'),
            "line 2: this is not UTF-8; save the file as UTF-8",
            id="latin-1",
        ),
        pytest.param(
            lambda path: path.write_text("a = " + "[" * 100_000), "not TOML: nested too deeply", id="deep"
        ),
        pytest.param(
            lambda path: path.write_text(GOOD.replace("24", '"24"')),
            'load.users: want a whole number >= 1 and <= 100000, got "24"',
            id="a fault inside",
        ),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path, make, told):
    path = tmp_path / "x.toml"
    make(path)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path, kinds=KINDS, profiles=PROFILES)
    assert caught.value.problems == [f"{path}: {told}"]


def test_a_path_below_a_file(tmp_path):
    (tmp_path / "x.toml").write_text("")
    with pytest.raises(ScenarioError, match="cannot be read: Not a directory"):
        load_scenario(tmp_path / "x.toml" / "y.toml", kinds=KINDS, profiles=PROFILES)


def test_an_empty_file_tells_all_that_is_missing():
    with pytest.raises(ScenarioError) as caught:
        parsed("")
    assert caught.value.problems == [
        "x.toml: name: missing; want text that is not empty",
        "x.toml: backends: missing; want a table",
        "x.toml: workloads: missing; want an array",
        "x.toml: load: missing; want a table",
    ]
