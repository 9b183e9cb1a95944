"""The meter's certificate on this machine: `harness selftest` writes it, every run reads it."""

import os
from dataclasses import asdict
from pathlib import Path

import orjson
from pydantic import TypeAdapter, ValidationError

from harness.errors import UsageError
from harness.machine import facts
from harness.results import Certificate, MeterKey, Standing

FILE = "certificate.json"
_CERTIFICATE = TypeAdapter(Certificate)


def place() -> Path:
    """Tell where it is: `harness/certificate.json` in the user's cache (XDG_CACHE_HOME, else ~/.cache)."""
    told = Path(os.environ.get("XDG_CACHE_HOME", ""))
    cache = (
        told if told.is_absolute() else Path.home() / ".cache"
    )  # a relative one is to be ignored, says XDG
    return cache / "harness" / FILE


def key_here(clock: str) -> MeterKey:
    """Describe what is measured with here: a certificate of anything else proves nothing."""
    said = facts()
    packages = said["packages"]
    return MeterKey(
        machine=f"{said['system']} {said['kernel']}, {said['processor']}, {said['cores']} cores",
        python=said["python"],
        aiohttp=str(packages["aiohttp"]),
        harness=str(packages["harness"]),
        clock=clock,
    )


def standing() -> Standing:
    """Read the certificate; one that is of another machine or program counts for nothing."""
    try:
        found = _CERTIFICATE.validate_json(place().read_bytes())
    except FileNotFoundError:
        return Standing()
    except OSError as problem:
        return Standing(why=f"the meter's certificate cannot be read: {problem.strerror}")
    except ValidationError:
        return Standing(why="the meter's certificate is of another version of the harness, or torn")
    was, here = asdict(found.key), asdict(key_here(found.key.clock))
    stale = [f"{what} was {was[what]}, is {here[what]}" for what in was if was[what] != here[what]]
    if stale:
        return Standing(why=f"the meter's certificate of {found.made[:10]} is stale: {'; '.join(stale)}")
    return Standing(found)


def write(certificate: Certificate | None) -> None:
    """Put it in its place in one step; None takes away what is there: nothing was proved."""
    path = place()
    part = path.with_name(f".{FILE}.{os.getpid()}.part")
    try:
        if certificate is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(orjson.dumps(certificate, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        part.replace(path)
    except OSError as problem:
        raise UsageError(f"{path}: cannot be written: {problem.strerror}") from None
