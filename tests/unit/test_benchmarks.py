"""Benchmarks gate nothing and run by hand: that they can begin at all is held here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_a_benchmark_can_be_loaded(name):
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parent)}
    loaded = subprocess.run(
        [sys.executable, "-c", f"import {name}"],
        cwd=FOLDER,
        env=environment,
        capture_output=True,
        check=False,
    )
    assert loaded.returncode == 0, loaded.stderr.decode()
