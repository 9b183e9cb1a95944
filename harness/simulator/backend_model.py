"""How a backend shares its hardware among requests: a queueing model in virtual time.

Pure: no clock, no socket, no dice but the generator handed in. A caller submits jobs with their time of
arrival and asks `advance(to_ns)` for what has been produced until then; each emission bears its own due
time, so a caller that comes late gets all of them, unmoved. The wall-clock server and a virtual-clock
runner drive the same code. A model of vendors' machines, not a measurement of them.
"""

import heapq
import math
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from harness.simulator.jobs import Arrivals, Emission, Job
from harness.simulator.prefix_cache import PrefixCache
from harness.simulator.profiles import GpuBatch, Pipeline, Profile


class BackendModel(Protocol):
    """What a clock needs of a model. Calls come in the order of their times."""

    def submit(self, job: Job, at_ns: int) -> None:
        """Let `job` arrive at `at_ns`, which may lie ahead."""

    def cancel(self, job_id: int, now_ns: int) -> None:
        """Drop a job, whatever its state; nothing more of it is emitted. Unknown jobs are ignored."""

    def next_at_ns(self) -> int | None:
        """When `advance` has something to do next, not always an emission; None when all is done."""

    def advance(self, to_ns: int) -> list[Emission]:
        """All emissions due until `to_ns` (inclusive) that were not returned yet, in order of time."""

    def queued(self) -> int:
        """Jobs that are ready and wait for their turn."""


def build_model(profile: Profile, generator: np.random.Generator) -> BackendModel:
    """Make a fresh model of `profile` with an empty prefix cache."""
    if isinstance(profile.machine, GpuBatch):
        return GpuBatchModel(profile, profile.machine, generator=generator)
    return PipelineModel(profile, profile.machine, generator=generator)


def _log_normal_sigma(cv: float) -> float:
    return math.sqrt(math.log1p(cv * cv))


def _start_prefill(job: Job, cache: PrefixCache, *, ready_ns: int, at_ns: int) -> int:
    """Tokens still to prefill: at least the last one, whose result is the first output token."""
    job.queued_ns = at_ns - ready_ns
    job.cached_tokens = cache.lookup(job.prefixes, at_ns)
    return max(1, job.prefixes[-1].tokens - job.cached_tokens)


def _without(job_id: int, emissions: list[Emission]) -> list[Emission]:
    return [emission for emission in emissions if emission.job_id != job_id]


@dataclass(slots=True, eq=False)
class _Sequence:
    """A job in the batch. `chunk`: its prompt tokens in the running step."""

    job: Job
    prefill_left: int
    tokens_left: int
    event_tokens: int
    chunk: int = 0
    pending: int = 0


class GpuBatchModel:
    """Continuous batching with chunked prefill: everybody's step grows with the batch.

    Decoding sequences get one token a step; what `max_batched_tokens` leaves goes to prompts in order of
    admission. A prompt's first token comes with the step that ends its prefill. A job enters between
    steps, `base_ttft` after its arrival, while fewer than `max_seqs` are in. Without jobs of ours the
    machine stands still (the background tenants are only their share of B).
    """

    def __init__(self, profile: Profile, machine: GpuBatch, *, generator: np.random.Generator) -> None:
        self._machine = machine
        self._base_ns = round(profile.base_ttft_ms * 1e6)
        self._tokens_per_event = profile.tokens_per_event
        self._sigma = _log_normal_sigma(profile.itl_jitter_cv)
        self._generator = generator
        self._cache = PrefixCache()
        self._arrivals = Arrivals()
        self._running: list[_Sequence] = []
        self._step_ends_ns: int | None = None
        self._now_ns = 0
        self._due: list[Emission] = []

    def submit(self, job: Job, at_ns: int) -> None:
        """See BackendModel."""
        self._arrivals.put(job, max(at_ns, self._now_ns) + self._base_ns)

    def cancel(self, job_id: int, now_ns: int) -> None:
        """See BackendModel. The running step keeps its length."""
        self._run(now_ns)
        self._arrivals.discard(job_id)
        self._running = [sequence for sequence in self._running if sequence.job.id != job_id]
        self._due = _without(job_id, self._due)

    def next_at_ns(self) -> int | None:
        """See BackendModel."""
        return self._due[0].at_ns if self._due else self._next_ns()

    def advance(self, to_ns: int) -> list[Emission]:
        """See BackendModel."""
        self._run(to_ns)
        due, self._due = self._due, []
        return due

    def queued(self) -> int:
        """See BackendModel."""
        return self._arrivals.count_ready(self._now_ns)

    def _next_ns(self) -> int | None:
        return self._arrivals.next_ns() if self._step_ends_ns is None else self._step_ends_ns

    def _run(self, to_ns: int) -> None:
        while (at_ns := self._next_ns()) is not None and at_ns <= to_ns:
            if self._step_ends_ns is not None:
                self._finish_step(at_ns)
            self._start_step(at_ns)
        self._now_ns = max(self._now_ns, to_ns)

    def _start_step(self, at_ns: int) -> None:
        self._admit(at_ns)
        if not self._running:
            self._step_ends_ns = None
            return
        machine = self._machine
        batch = machine.background_batch + sum(not sequence.prefill_left for sequence in self._running)
        room = full = machine.max_batched_tokens - batch
        for sequence in self._running:
            if sequence.prefill_left:
                sequence.chunk = min(sequence.prefill_left, room)
                room -= sequence.chunk
        step_ms = machine.a_ms + machine.b_ms * batch**machine.p + (full - room) / machine.prefill_tps * 1000
        if self._sigma:
            step_ms *= self._generator.lognormal(-(self._sigma**2) / 2, self._sigma)
        self._step_ends_ns = at_ns + round(step_ms * 1e6)

    def _admit(self, at_ns: int) -> None:
        seats = self._machine.max_seqs - self._machine.background_batch
        while len(self._running) < seats and (arrival := self._arrivals.take(at_ns)):
            ready_ns, job = arrival
            left = _start_prefill(job, self._cache, ready_ns=ready_ns, at_ns=at_ns)
            self._running.append(_Sequence(job, left, job.output_tokens, self._draw_event_tokens()))

    def _finish_step(self, at_ns: int) -> None:
        for sequence in self._running:
            if sequence.prefill_left:
                sequence.prefill_left -= sequence.chunk
                sequence.chunk = 0
                if sequence.prefill_left:
                    continue
                self._cache.store(sequence.job.prefixes, at_ns)
            self._decode(sequence, at_ns)
        self._running = [sequence for sequence in self._running if sequence.tokens_left]

    def _decode(self, sequence: _Sequence, at_ns: int) -> None:
        sequence.tokens_left -= 1
        sequence.pending += 1
        last = not sequence.tokens_left
        if last or sequence.pending == sequence.event_tokens:
            self._due.append(Emission(sequence.job.id, at_ns, sequence.pending, last))
            sequence.pending = 0
            sequence.event_tokens = self._draw_event_tokens()

    def _draw_event_tokens(self) -> int:
        low, high = self._tokens_per_event
        return low if low == high else int(self._generator.integers(low, high, endpoint=True))


_Events = list[tuple[int, int]]
"""A job's events still to come: (due time, tokens), the next one last."""


class PipelineModel:
    """Weights in a pipeline: a user's speed never changes, but there are only so many places.

    A job waits, `base_ttft` after its arrival, for one of `slots`; then its prompt goes through the head,
    one prompt at a time; then a token falls out every 1000 / user_tps ms, the first one interval after
    the prefill, since the prompt's last token has to walk all stages. Tokens leave in events of
    `tokens_per_event`; an event is due when its last token is.
    """

    def __init__(self, profile: Profile, machine: Pipeline, *, generator: np.random.Generator) -> None:
        self._machine = machine
        self._base_ns = round(profile.base_ttft_ms * 1e6)
        self._interval_ns = 1e9 / machine.user_tps
        self._tokens_per_event = profile.tokens_per_event
        self._sigma = _log_normal_sigma(profile.itl_jitter_cv)
        self._generator = generator
        self._cache = PrefixCache()
        self._arrivals = Arrivals()
        self._in_slots: set[int] = set()
        self._at_head: deque[tuple[int, Job]] = deque()  # (ready, job): have a slot, wait for the head
        self._prefilling: tuple[int, Job] | None = None  # (end, job)
        self._decoding: list[tuple[int, int, _Events]] = []  # heap of (due time of the next, job id, all)
        self._now_ns = 0
        self._due: list[Emission] = []

    def submit(self, job: Job, at_ns: int) -> None:
        """See BackendModel."""
        self._arrivals.put(job, max(at_ns, self._now_ns) + self._base_ns)

    def cancel(self, job_id: int, now_ns: int) -> None:
        """See BackendModel. Slot and head are free at once."""
        self._run(now_ns)
        self._due = _without(job_id, self._due)
        self._arrivals.discard(job_id)
        if job_id not in self._in_slots:
            return
        self._in_slots.remove(job_id)
        self._at_head = deque(item for item in self._at_head if item[1].id != job_id)
        if self._prefilling and self._prefilling[1].id == job_id:
            self._prefilling = None
        self._decoding = [item for item in self._decoding if item[1] != job_id]
        heapq.heapify(self._decoding)
        self._admit(self._now_ns)

    def next_at_ns(self) -> int | None:
        """See BackendModel."""
        return self._due[0].at_ns if self._due else self._next_ns()

    def advance(self, to_ns: int) -> list[Emission]:
        """See BackendModel."""
        self._run(to_ns)
        due, self._due = self._due, []
        return due

    def queued(self) -> int:
        """See BackendModel."""
        return self._arrivals.count_ready(self._now_ns) + len(self._at_head)

    def _next_ns(self) -> int | None:
        candidates = []
        if self._decoding:
            candidates.append(self._decoding[0][0])
        if self._prefilling:
            candidates.append(self._prefilling[0])
        if len(self._in_slots) < self._machine.slots and (ready_ns := self._arrivals.next_ns()) is not None:
            candidates.append(ready_ns)
        return min(candidates, default=None)

    def _run(self, to_ns: int) -> None:
        while (at_ns := self._next_ns()) is not None and at_ns <= to_ns:
            if self._decoding and self._decoding[0][0] == at_ns:
                self._emit(at_ns)
            elif self._prefilling and self._prefilling[0] == at_ns:
                self._finish_prefill(self._prefilling[1], at_ns)
            self._admit(at_ns)
        self._now_ns = max(self._now_ns, to_ns)

    def _admit(self, at_ns: int) -> None:
        while len(self._in_slots) < self._machine.slots and (arrival := self._arrivals.take(at_ns)):
            self._in_slots.add(arrival[1].id)
            self._at_head.append(arrival)
        if self._at_head and not self._prefilling:
            ready_ns, job = self._at_head.popleft()
            left = _start_prefill(job, self._cache, ready_ns=ready_ns, at_ns=at_ns)
            self._prefilling = (at_ns + round(left / self._machine.prefill_tps * 1e9), job)

    def _finish_prefill(self, job: Job, at_ns: int) -> None:
        self._prefilling = None
        self._cache.store(job.prefixes, at_ns)
        events = self._draw_events(job.output_tokens, at_ns)
        heapq.heappush(self._decoding, (events[-1][0], job.id, events))

    def _draw_events(self, tokens: int, at_ns: int) -> _Events:
        intervals = np.full(tokens, self._interval_ns)
        if self._sigma:
            intervals *= self._generator.lognormal(-(self._sigma**2) / 2, self._sigma, tokens)
        token_at = at_ns + np.rint(np.cumsum(intervals)).astype(np.int64)
        low, high = self._tokens_per_event
        ends = np.cumsum(self._generator.integers(low, high, -(-tokens // low), endpoint=True))
        ends = np.append(ends[ends < tokens], tokens)  # an event ends with the ends-th token
        events = zip(token_at[ends - 1].tolist(), np.diff(ends, prepend=0).tolist(), strict=True)
        return list(events)[::-1]

    def _emit(self, at_ns: int) -> None:
        _, job_id, events = self._decoding[0]
        _, tokens = events.pop()
        self._due.append(Emission(job_id, at_ns, tokens, not events))
        if events:
            heapq.heapreplace(self._decoding, (events[-1][0], job_id, events))
        else:
            heapq.heappop(self._decoding)
            self._in_slots.remove(job_id)
