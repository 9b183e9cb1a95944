"""The limits on an exchange's time, watched by one timer."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from harness.client.reception import Reception
from harness.values import CallError, ErrorKind


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How long an exchange may take; seconds.

    `connect_s`, `first_output_s` and `total_s` count from the moment of sending, as the record tells it,
    `stall_s` from the last output: comments and empty events keep a connection alive, but are no output.
    """

    connect_s: float
    first_output_s: float
    stall_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class _Limit:
    at_ns: int
    kind: ErrorKind
    sentence: str


class Watchdog:
    """Calls `expire` once when a limit is reached.

    The timer is never moved while data comes: when it fires it looks how far the limit has moved away
    and sleeps on.
    """

    def __init__(self, limits: CallLimits, reception: Reception, expire: Callable[[CallError], None]) -> None:
        self._limits = limits
        self._reception = reception
        self._expire = expire
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Expire if a limit is reached, else come back when the nearest one would be."""
        self.stop()
        limit = nearest_limit(self._limits, self._reception)
        left_ns = limit.at_ns - self._reception.clock.now_ns()
        if left_ns <= 0:
            self._expire(CallError(limit.kind, limit.sentence))
        else:
            self._timer = asyncio.get_running_loop().call_later(left_ns / 1e9, self.look)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def nearest_limit(limits: CallLimits, reception: Reception) -> _Limit:
    """Choose the limit that the exchange, as far as it has come, would reach first."""
    sent, output = reception.sent_ns, reception.last_output_ns
    running = [_limit(sent, limits.total_s, ErrorKind.TOTAL_TIMEOUT, "not complete after {} s (total limit)")]
    if not reception.connected:
        sentence = "no connection after {} s (connect limit)"
        running.append(_limit(sent, limits.connect_s, ErrorKind.CONNECT_TIMEOUT, sentence))
    if output is None:
        sentence = "no output after {} s (first-output limit)"
        running.append(_limit(sent, limits.first_output_s, ErrorKind.FIRST_OUTPUT_TIMEOUT, sentence))
    else:
        sentence = "no output for {} s after the last one (stall limit)"
        running.append(_limit(output, limits.stall_s, ErrorKind.IDLE_TIMEOUT, sentence))
    return min(running, key=lambda limit: limit.at_ns)


def _limit(from_ns: int, after_s: float, kind: ErrorKind, sentence: str) -> _Limit:
    return _Limit(from_ns + round(after_s * 1e9), kind, sentence.format(f"{after_s:g}"))
