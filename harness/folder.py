"""A run's DIR before its first call: its name, and what `run.json` says already."""

import re
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from harness.clock import wall_time
from harness.machine import facts as machine_facts
from harness.preparation import Prepared
from harness.records import SCHEMA
from harness.results import Standing


def default_folder(name: str) -> Path:
    """Make a DIR of its own, named by UTC time and scenario; runs of the same second are numbered."""
    word = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    first = Path("runs") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{word}"
    for number in count(1):
        folder = first if number == 1 else first.with_name(f"{first.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:
            break  # whoever writes there tells why
        return folder
    return first


def describe(prepared: Prepared, run_id: str, *, standing: Standing) -> dict[str, Any]:
    """Make `run.json`'s first part: everything that is known before the first call."""
    return {
        "schema": SCHEMA,
        "run_id": run_id,
        "started": datetime.fromtimestamp(wall_time(), UTC).isoformat(),
        "scenario_file": str(prepared.options.scenario),
        "scenario": prepared.scenario.model_dump(mode="json", by_alias=True),
        "seed": prepared.scenario.seed,
        "machine": machine_facts(),
        "certificate": None if standing.certificate is None else asdict(standing.certificate),
    }
