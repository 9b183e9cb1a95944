"""What all tests share: the `needs` marker, which turns a missing program into a skip or a failure."""

import os

import pytest
from hypothesis import settings

from tests.servers.starting import found

# A busy machine is no fault of an example's, and what CI runs must not hang on the dice of the day.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("HARNESS_NO_SKIPS") == "1" else "here")


@pytest.fixture(scope="session", autouse=True)
def no_certificate(tmp_path_factory):
    """Runs of tests find no certificate but their own, whatever this machine has proved."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


def pytest_collection_modifyitems(items):
    for item in items:
        for mark in item.iter_markers("needs"):
            missing = [program for program in mark.args if found(program) is None]
            if missing and os.environ.get("HARNESS_NO_SKIPS") != "1":
                item.add_marker(pytest.mark.skip(reason=f"needs {', '.join(missing)}"))
