"""Certificates for tests, made by hand."""

from dataclasses import replace
from typing import Any

from harness.certificate import key_here
from harness.results import Certificate


def a_certificate(**said: Any) -> Certificate:
    """Of this machine, up to 32 streams and 24,000 events/s; `key`: what differs in its key."""
    key = replace(key_here("kernel"), **said.pop("key", {}))
    values: dict[str, Any] = {
        "made": "2026-12-01T12:00:00+00:00",
        "key": key,
        "streams": 32,
        "events_per_s": 24_000.0,
        "events": 100_000,
        "exact_share": 0.9,
        "error_p50_us": 7.0,
        "error_p99_us": 40.0,
        "missed": [],
    }
    return Certificate(**{**values, **said})
