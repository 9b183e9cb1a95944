"""What holds for every dialect: its name in scenarios, its paths, its key, where its requests go."""

from typing import get_args

import pytest

from harness.decode import PATHS
from harness.scenario_backend import Dialect
from harness.values import Block, Request, Role
from harness.wire import DIALECTS

REQUEST = Request(model="m", blocks=(Block("u", 3, Role.USER),), max_tokens=9)


def test_scenarios_know_exactly_the_dialects_that_are_there():
    assert list(get_args(Dialect)) == list(DIALECTS)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_request_goes_where_its_recording_would_be_known_by(name):
    path = DIALECTS[name].encode(REQUEST).path.split("?")[0]
    assert next(dialect for end, dialect in PATHS.items() if path.endswith(end)) == name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chat/completions", "openai-chat"),
        ("/v1/completions", "openai-completions"),
        ("/v1/fim/completions", "mistral-fim"),
        ("/completion", "llamacpp"),
        ("/infill", "llamacpp"),
        ("/api/chat", "ollama"),
        ("/api/generate", "ollama"),
        ("/v1beta/models/g:streamGenerateContent", "gemini"),
        ("/v1beta/interactions", "gemini"),
    ],
)
def test_paths_are_told_apart(path, name):
    assert next(dialect for end, dialect in PATHS.items() if path.endswith(end)) == name


@pytest.mark.parametrize("name", DIALECTS)
def test_a_key_travels_in_one_header(name):
    (header,) = DIALECTS[name].headers("secret").items()
    other = {"gemini": ("x-goog-api-key", "secret"), "anthropic": ("x-api-key", "secret")}
    assert header == other.get(name, ("Authorization", "Bearer secret"))
