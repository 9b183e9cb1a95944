"""The named simulated backends: numbers from `harness/data/profiles.toml`, each with its source."""

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any


class Route(StrEnum):
    """The kind of hardware that serves the model."""

    GPU_CLUSTER = "gpu-cluster"
    ASIC = "asic"
    WAFER_SCALE = "wafer-scale"


class Reasoning(StrEnum):
    """What a client sees of reasoning tokens: nothing, or `delta.reasoning`."""

    HIDDEN = "hidden"
    STREAMED = "streamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuBatch:
    """Continuous batching: step_ms = a + b * B^p + prefill tokens of the step / prefill_tps * 1000.

    B counts decoding sequences, `background_batch` (other tenants') among them; so does `max_seqs`.
    """

    a_ms: float
    b_ms: float
    p: float
    prefill_tps: float
    background_batch: int
    max_seqs: int
    max_batched_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Weights laid out over `stages`: every one of `slots` users gets `user_tps`, the next one waits.

    `stages` and `burst_tps` are kept as published or guessed and not used: only their effect, the
    interval and the number of slots, is simulated.
    """

    user_tps: float
    slots: int
    stages: int
    prefill_tps: float
    burst_tps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A simulated backend: who it is like, how it is served, where the numbers come from.

    tokens_per_event: smallest and largest number of tokens of one streamed event.
    itl_jitter_cv: standard deviation / mean of the step (GPU) or token interval (pipeline).
    requests_per_min, tokens_per_min: the vendor's limits, which the server holds to.
    """

    name: str
    like: str
    route: Route
    model: str
    service_tier: str
    reasoning: Reasoning
    rtt_ms: float
    base_ttft_ms: float
    source: str
    machine: GpuBatch | Pipeline
    itl_jitter_cv: float = 0.0
    tokens_per_event: tuple[int, int] = (1, 1)
    requests_per_min: int | None = None
    tokens_per_min: int | None = None


@cache
def profiles() -> dict[str, Profile]:
    """All profiles by name, in the order of the file."""
    text = resources.files("harness").joinpath("data", "profiles.toml").read_text(encoding="utf-8")
    return {name: _profile(name, table) for name, table in tomllib.loads(text).items()}


def _profile(name: str, table: dict[str, Any]) -> Profile:
    machine = GpuBatch(**table["gpu_batch"]) if "gpu_batch" in table else Pipeline(**table["pipeline"])
    fields = {key: value for key, value in table.items() if key not in {"gpu_batch", "pipeline"}}
    fields["route"] = Route(fields["route"])
    fields["reasoning"] = Reasoning(fields["reasoning"])
    if "tokens_per_event" in fields:
        fields["tokens_per_event"] = tuple(fields["tokens_per_event"])
    return Profile(**fields, name=name, machine=machine)
