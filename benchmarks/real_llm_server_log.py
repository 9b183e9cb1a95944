"""What llama-server logged of the calls, held against what the harness measured of them.

The server's clock knows nothing of HTTP: a prompt takes from its first step to its first token, generation
from there to its last. For n tokens that are n - 1 steps.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from harness.measure.calls import calls_of
from harness.measure.metrics.recorded import call_tpot_ns
from harness.records import CallOutcome, CallRecord
from harness.sinks.records import read_records

_TIMING = re.compile(
    r"prompt eval time = +([\d.]+) ms / +(\d+) tokens.*\n.*? eval time = +([\d.]+) ms / +(\d+) tokens"
)

Pair = tuple[CallRecord, float, float]
"""A call, the server's time for its prompt and for its tokens behind the first, in ms."""


def agreement(log: str, folder: Path) -> Iterator[str]:
    """Say how far the harness's marks are from the server's own times, over the calls of one run.

    log: what the server wrote during this run.
    """
    calls = sorted(read_records(folder, "calls.jsonl", CallRecord), key=lambda call: call.done_ns)
    ended = [call for call in calls if call.outcome is CallOutcome.OK]
    pairs = list(_paired(log, ended))
    yield f"{len(pairs)} of {len(ended)} calls are found in the server's log, by their tokens"
    if not pairs:
        return
    whole = [(call.done_ns - call.sent_ns) / 1e6 - prompt - tokens for call, prompt, tokens in pairs]
    yield f"  call time - (its prompt + its tokens): {_spread(whole, 'ms')}"
    first = [
        ((call.first_output_ns or 0) - call.sent_ns) / 1e6
        - prompt
        - step * ((call.first_event_tokens or 1) - 1)
        for call, prompt, step in _steps(pairs)
    ]
    yield f"  TTFT - (its prompt + its tokens up to the first event): {_spread(first, 'ms')}"
    tpots = [(float(call_tpot_ns(calls_of([call]))[0]), step) for call, _, step in _steps(pairs)]
    speed = [tpot / 1e6 / step for tpot, step in tpots if tpot > 0]
    yield f"  TPOT / its time per token: {_spread(speed, '')}"


def _paired(log: str, calls: Sequence[CallRecord]) -> Iterator[Pair]:
    """Join by (tokens computed of the prompt, tokens made): the log does not tell the request's id."""
    by_tokens: defaultdict[tuple[int, int], deque[CallRecord]] = defaultdict(deque)
    for call in calls:
        by_tokens[(call.input_tokens or 0) - (call.cached_tokens or 0), call.output_tokens or 0].append(call)
    for prompt_ms, prompt_n, tokens_ms, tokens_n in _TIMING.findall(log):
        if same := by_tokens[int(prompt_n), int(tokens_n)]:
            yield same.popleft(), float(prompt_ms), float(tokens_ms)


def _steps(pairs: Sequence[Pair]) -> list[Pair]:
    """Give the time of one step instead of all; calls of one token have none."""
    return [
        (c, prompt, tokens / (c.output_tokens - 1))
        for c, prompt, tokens in pairs
        if (c.output_tokens or 0) > 1
    ]


def _spread(values: Sequence[float], unit: str) -> str:
    p5, p50, p95 = np.quantile(values, [0.05, 0.5, 0.95])
    return f"p50 {p50:.3g}, p5 {p5:.3g}, p95 {p95:.3g} {unit}".rstrip()
