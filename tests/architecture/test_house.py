"""The house keeps its own rules, and the documents say what is there."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from harness.measure.findings import ADVICE
from harness.measure.metrics.registry import METRICS
from harness.preparation import Options, read_scenario
from harness.results import FindingName

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
PYTHON = [ROOT / name for name in TRACKED.splitlines() if name.endswith(".py")]
HARNESS = [path for path in PYTHON if path.is_relative_to(ROOT / "harness")]
DOCUMENTS = [ROOT / name for name in TRACKED.splitlines() if name.endswith(".md")]


def test_there_is_something_to_look_at():
    assert len(HARNESS) > 40
    assert len(DOCUMENTS) > 5


@pytest.mark.parametrize("path", HARNESS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_short(path):
    assert len(path.read_text().splitlines()) <= 350


def test_no_module_is_named_after_nothing():
    banned = {"utils", "helpers", "common", "base", "core", "manager"}
    assert not [path for path in HARNESS if banned & {part.removesuffix(".py") for part in path.parts}]


@pytest.mark.parametrize(("name", "limit"), [("README.md", 120), ("ARCHITECTURE.md", 150)])
def test_documents_are_short(name, limit):
    assert len((ROOT / name).read_text().splitlines()) < limit


def test_every_contract_is_named_in_the_architecture():
    text = re.sub(r"\s+", " ", (ROOT / "ARCHITECTURE.md").read_text())
    contracts = [contract["name"] for contract in PYPROJECT["tool"]["importlinter"]["contracts"]]
    assert [name for name in contracts if name not in text] == []


def test_every_dependency_has_its_sentence():
    text = (ROOT / "docs" / "dependencies.md").read_text()
    project = PYPROJECT["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = [re.split(r"[<>=!~ \[]", one)[0] for one in wanted]
    assert [name for name in names if f"| {name} |" not in text] == []


def test_every_finding_has_advice():
    assert set(ADVICE) == set(FindingName)


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").glob("*.toml")), ids=lambda path: path.name)
def test_shipped_scenarios_are_right(path):
    assert read_scenario(Options(scenario=path)).workloads


def test_the_readmes_scenario_is_right(tmp_path):
    [block] = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    path = tmp_path / "my.toml"
    path.write_text(block)
    assert set(read_scenario(Options(scenario=path)).backends) == {"a", "b"}


def commands_shown():
    shown = [
        re.findall(r"(?:^    |`)(?:\.venv/bin/)?harness ([a-z-]+)", path.read_text(), re.MULTILINE)
        for path in DOCUMENTS
    ]
    return {command for commands in shown for command in commands}


def test_commands_in_documents_exist():
    help_text = subprocess.run(
        [sys.executable, "-m", "harness", "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    there = set(re.findall(r"^  ([a-z-]+) ", help_text, re.MULTILINE))
    assert {"run", "simulate", "decode"} <= there
    assert {"run", "simulate", "decode"} <= commands_shown()
    assert commands_shown() <= there


def test_relative_links_lead_somewhere():
    for path in DOCUMENTS:
        for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", path.read_text()):
            assert (path.parent / link).exists(), f"{path.name}: {link}"


def test_the_table_of_metrics_is_the_registry():
    rows = [
        f"| `{m.name}` | {m.unit} | {m.of} | {m.better} | {m.help} | {m.source} |" for m in METRICS.values()
    ]
    written = (ROOT / "docs" / "metrics.md").read_text().splitlines()
    assert [line for line in written if line.startswith("| `")] == rows


def test_locked_packages_have_no_address():
    assert "://" not in (ROOT / "tests" / "servers" / "package-lock.json").read_text()
