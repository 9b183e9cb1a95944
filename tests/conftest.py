"""What all tests share: the `needs` marker, which turns a missing program into a skip or a failure."""

import os

import pytest

from tests.servers.starting import found


def pytest_collection_modifyitems(items):
    for item in items:
        for mark in item.iter_markers("needs"):
            missing = [program for program in mark.args if found(program) is None]
            if missing and os.environ.get("HARNESS_NO_SKIPS") != "1":
                item.add_marker(pytest.mark.skip(reason=f"needs {', '.join(missing)}"))
