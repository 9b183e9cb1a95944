"""The certificate's place, and when it counts for nothing."""

from pathlib import Path

import orjson
import pytest

from harness.certificate import key_here, place, standing, write
from harness.errors import UsageError
from harness.results import Standing
from tests.certifying import a_certificate


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_its_place_is_in_the_users_cache(cache, monkeypatch):
    assert place() == cache / "harness" / "certificate.json"
    for told in ("", "not/absolute"):
        monkeypatch.setenv("XDG_CACHE_HOME", told)
        assert place() == Path.home() / ".cache" / "harness" / "certificate.json"


def test_what_was_written_stands():
    write(a_certificate())
    assert standing() == Standing(a_certificate())
    assert list(place().parent.iterdir()) == [place()]


def test_nothing_proved_takes_away_what_was():
    write(a_certificate())
    write(None)
    assert standing() == Standing()
    write(None)
    assert standing().why == "there is no certificate of the meter on this machine"


@pytest.mark.parametrize("what", ["machine", "python", "aiohttp", "harness"])
def test_one_of_something_else_is_stale(what):
    write(a_certificate(key={what: "another"}))
    here = getattr(key_here("kernel"), what)
    assert standing() == Standing(
        why=f"the meter's certificate of 2026-12-01 is stale: {what} was another, is {here}"
    )


def test_the_clock_is_not_known_before_the_run():
    write(a_certificate(key={"clock": "loop"}))
    assert standing().certificate is not None


@pytest.mark.parametrize(
    "bytes_of",
    [
        pytest.param(lambda text: b"", id="empty"),
        pytest.param(lambda text: text[:-20], id="torn"),
        pytest.param(lambda text: b"[]", id="another thing"),
        pytest.param(lambda text: text.replace(b'"streams"', b'"users"'), id="another version"),
    ],
)
def test_one_that_cannot_be_understood_counts_for_nothing(bytes_of):
    write(a_certificate())
    place().write_bytes(bytes_of(place().read_bytes()))
    assert standing() == Standing(why="the meter's certificate is of another version of the harness, or torn")


def test_one_that_cannot_be_read_counts_for_nothing():
    place().mkdir(parents=True)
    assert standing() == Standing(why="the meter's certificate cannot be read: Is a directory")


def test_a_cache_that_cannot_be_written_is_a_sentence(cache):
    (cache / "harness").write_text("a file")
    with pytest.raises(UsageError, match=r"certificate\.json: cannot be written: "):
        write(a_certificate())


def test_the_file_says_what_it_is_of():
    write(a_certificate())
    told = orjson.loads(place().read_bytes())
    assert told["schema"] == 1
    assert set(told["key"]) == {"machine", "python", "aiohttp", "harness", "clock"}
