"""Where servers say in an event what their own side took: data, so that a vendor is lines, not branches.

OpenRouter and Gemini tell no times in their streams; SGLang only in its native interface.
"""

from collections.abc import Mapping
from typing import Any

_TIMES: tuple[tuple[str, str, float], ...] = (
    # Cerebras, on the last chunk (its SDK's `ChatChunkResponseTimeInfo`), seconds
    ("time_info.queue_time", "queue_s", 1),
    ("time_info.prompt_time", "prompt_s", 1),
    ("time_info.completion_time", "completion_s", 1),
    ("time_info.total_time", "total_s", 1),
    # Groq, on the last chunk of a stream (its SDK's `CompletionUsage`), seconds
    ("x_groq.usage.queue_time", "queue_s", 1),
    ("x_groq.usage.prompt_time", "prompt_s", 1),
    ("x_groq.usage.completion_time", "completion_s", 1),
    ("x_groq.usage.total_time", "total_s", 1),
    # ... and where usage was asked for, or the answer is not streamed
    ("usage.queue_time", "queue_s", 1),
    ("usage.prompt_time", "prompt_s", 1),
    ("usage.completion_time", "completion_s", 1),
    ("usage.total_time", "total_s", 1),
    # SambaNova (its SDK's `Usage`), seconds
    ("usage.time_to_first_token", "first_token_s", 1),
    ("usage.total_latency", "total_s", 1),
    # llama.cpp, all servers' interfaces of it (tools/server/README.md), milliseconds
    ("timings.prompt_ms", "prompt_s", 1e-3),
    ("timings.predicted_ms", "completion_s", 1e-3),
    # vLLM with --enable-per-request-metrics (docs/features/per_request_metrics.md); its time to the first
    # token begins when the request is scheduled, so it is the prompt's
    ("metrics.queue_time_ms", "queue_s", 1e-3),
    ("metrics.time_to_first_token_ms", "prompt_s", 1e-3),
    ("metrics.generation_time_ms", "completion_s", 1e-3),
    # Ollama, on the last line (docs/api.md), nanoseconds
    ("load_duration", "load_s", 1e-9),
    ("prompt_eval_duration", "prompt_s", 1e-9),
    ("eval_duration", "completion_s", 1e-9),
    ("total_duration", "total_s", 1e-9),
    # our own simulator
    ("x_sim.rtt_ms", "rtt_s", 1e-3),
    ("x_sim.queue_ms", "queue_s", 1e-3),
)
"""Where a number stands in an event, what it is called in `values.Answer.server_timing`, seconds per unit."""

_A_YEAR_S = 31_536_000.0

_Row = tuple[tuple[str, ...], str, float]


def _by_key() -> dict[str, list[_Row]]:
    rows: dict[str, list[_Row]] = {}
    for place, name, unit in _TIMES:
        first, *rest = place.split(".")
        rows.setdefault(first, []).append((tuple(rest), name, float(unit)))
    return rows


_BY_KEY = _by_key()


def take_times(event: Mapping[str, Any], timing: dict[str, float]) -> None:
    """Put the times that an event tells into `timing`, in seconds; what cannot be a time is left out."""
    for first, rows in _BY_KEY.items():
        if first in event:
            for rest, name, unit in rows:
                told = _at(event[first], rest)
                if type(told) in (int, float) and 0 <= told <= _A_YEAR_S / unit:  # nan is not
                    timing[name] = told * unit


def _at(value: Any, keys: tuple[str, ...]) -> Any:  # noqa: ANN401 - whatever a server sent
    for key in keys:
        value = value.get(key) if type(value) is dict else None
    return value
