"""Live numbers for Prometheus: the run's own histograms, rendered when somebody scrapes.

Nothing happens on the token path: a call is counted when it has ended. What is counted in phase `measure`
is exactly what the quantiles of `summary.json` are made of: calls that ended well and tasks that completed,
those of drain and tail among them. Prometheus knows no censoring: dashboards/README.md says what that means.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from harness.errors import UsageError
from harness.measure.calls import Calls, Floats, calls_of
from harness.measure.histogram import OVERFLOW_FROM, Histogram, bucket, histogram, merged
from harness.measure.metrics.registry import METRICS
from harness.measure.metrics.task import task_time_ns
from harness.records import CallOutcome, CallRecord, Phase, TaskOutcome, TaskRecord
from harness.scenario import Scenario

HOST = "127.0.0.1"
PORT_MAX = 65535
LONGEST_S = 600.0
"""The longest time limit of a scenario that says none."""
LAST_SCRAPE_S = 15.0
"""How long a run that is over waits for its last numbers to be fetched: three scrapes, as we configure it."""
SWITCH_S = 0.0005
"""After so long a thread that renders lets another go on, while a page is up: Python's own 5 ms are felt."""
FOLD_AT = 512
"""So many values or histograms wait at most until they are merged: what bounds the memory."""

LABELS = ("scenario", "run", "backend", "workload", "phase")
CUTS = (128, 140, 152, 166, 181, 197, 215, 235)
"""Where a power of two is cut, in 128ths: 128 x 2^(i/8). All are edges of our buckets; steps <= 9.4 %."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shown:
    """A histogram of the registry's metric `of`. Its values are integers, `per_s` of which make a second.

    finest: a power of two; below it only nought is told apart.
    """

    of: str
    name: str
    unit: str
    per_s: int
    finest: int

    def text(self) -> str:
        """Say what one value is, of which records."""
        return f"{METRICS[self.of].help}; seconds, one value {self.unit}"


TASK = Shown("task_time_s", "harness_task", "a completed task", 10**9, 1 << 20)
TTFT = Shown("ttft_s", "harness_call_ttft", "a call that ended well", 10**9, 1 << 20)
TPOT = Shown("tpot_ms", "harness_call_tpot", "a call that ended well and told its tokens", 10**9, 1 << 17)
GAP = Shown("gap_ms", "harness_event_gap", "a gap in a call that ended well", 10**6, 1 << 6)
SHOWN = (TASK, TTFT, TPOT, GAP)


def edges(shown: Shown, longest_s: float) -> Ints:
    """Give a metric's grid: smallest values of buckets of ours, on beyond twice the longest time limit.

    Grids for other limits are longer or shorter at the top, and otherwise the same. What no bucket of ours
    holds (52 days) is counted above all edges.
    """
    top = min(int(2 * longest_s * shown.per_s).bit_length(), OVERFLOW_FROM.bit_length() - 1)
    octaves = range(shown.finest.bit_length() - 1, top)
    return np.array([1, *((cut << octave) >> 7 for octave in octaves for cut in CUTS), 1 << top])


def cumulative(counted: Histogram, at: Ints) -> list[int]:
    """Count the values below each edge, and last all of them; an edge is a smallest value of a bucket."""
    sums = np.concatenate(([0], np.cumsum(counted.counts)))
    below = sums[np.searchsorted(counted.buckets, bucket(at), side="left")]
    return [*below.tolist(), counted.total]


@dataclass(slots=True)
class _Counted:
    """One histogram under one set of labels, and what is still to be merged into it."""

    total: Histogram = field(default_factory=Histogram)
    sum_ns: int = 0
    values: list[int] = field(default_factory=list)
    parts: list[Histogram] = field(default_factory=list)

    def folded(self) -> Histogram:
        if self.values or self.parts:
            self.total = merged([self.total, *self.parts, histogram(np.array(self.values, dtype=np.int64))])
            self.values.clear()
            self.parts.clear()
        return self.total

    def add(self, value_ns: float | None) -> None:
        if value_ns is not None:
            self.values.append(round(value_ns))
            self.sum_ns += self.values[-1]
            self._limit()

    def add_all(self, part: Histogram, *, sum_ns: int) -> None:
        self.parts.append(part)
        self.sum_ns += sum_ns
        self._limit()

    def _limit(self) -> None:
        if len(self.values) + len(self.parts) >= FOLD_AT:
            self.folded()


Key = tuple[str, str, Phase]
"""Backend, workload, phase: warm-up, or measure for all that the summary counts."""


def key_of(backend: str, workload: str, phase: Phase) -> Key:
    """Put a record where it is counted. Each phase costs a scrape some hundred lines a backend."""
    return backend, workload, Phase.WARM_UP if phase is Phase.WARM_UP else Phase.MEASURE


class LiveMetrics:
    """What a run has counted so far; a collector of prometheus-client. Any thread may call any method.

    longest_s: the scenario's longest time limit, which the histograms must reach beyond.
    """

    def __init__(self, *, scenario: str, run: str, longest_s: float = LONGEST_S) -> None:
        self._labels = (scenario, run)
        self._lock = threading.Lock()
        self._grids = {shown.name: edges(shown, longest_s) for shown in SHOWN}
        self._counted: dict[str, dict[Key, _Counted]] = {name: {} for name in self._grids}
        self._ended: dict[tuple[Key, TaskOutcome], int] = {}
        self._open: dict[Key, int] = {}
        self._began: dict[str, Key] = {}

    def began(self, task_id: str, backend: str, workload: str, phase: Phase) -> None:
        """Count a task that has begun as in flight."""
        with self._lock:
            self._began[task_id] = key = self._see(backend, workload, phase)
            self._open[key] += 1

    def call(self, call: CallRecord, gaps: Histogram) -> None:
        """Count a call that has ended; `gaps`: its gaps in us."""
        if call.outcome is not CallOutcome.OK:
            return
        column = calls_of([call])
        with self._lock:
            key = self._see(call.backend, call.workload, call.phase)
            self._counted[TTFT.name][key].add(_value(TTFT, column))
            self._counted[TPOT.name][key].add(_value(TPOT, column))
            if call.first_output_ns is not None and call.last_output_ns is not None:
                span_ns = call.last_output_ns - call.first_output_ns  # what all gaps of a call add up to
                self._counted[GAP.name][key].add_all(gaps, sum_ns=span_ns)

    def task(self, task: TaskRecord) -> None:
        """Count a task that has ended; the time of one that completed."""
        with self._lock:
            key = self._see(task.backend, task.workload, task.phase)
            self._forget(task.task_id)
            self._ended[key, task.outcome] += 1
            if task.outcome is TaskOutcome.COMPLETED:
                self._counted[TASK.name][key].add(task_time_ns(task))

    def lost(self, task_id: str) -> None:
        """Forget a task whose worker is gone: it is not in flight, and nobody knows how it ended."""
        with self._lock:
            self._forget(task_id)

    def collect(self) -> Iterable[Metric]:
        """Render one moment of the run; called by prometheus-client in a thread of its own."""
        with self._lock:
            ended, in_flight = dict(self._ended), dict(self._open)
            taken = {
                name: {key: (one.folded(), one.sum_ns) for key, one in by.items()}
                for name, by in self._counted.items()
            }
        yield from (self._histogram(shown, taken[shown.name]) for shown in SHOWN)
        tasks = CounterMetricFamily("harness_tasks", "Tasks that have ended.", labels=[*LABELS, "outcome"])
        for (key, outcome), number in ended.items():
            tasks.add_metric([*self._labels, *key, outcome], number)
        yield tasks
        told = "Tasks that have begun and not ended."
        opened = GaugeMetricFamily("harness_tasks_in_flight", told, labels=LABELS)
        for key, number in in_flight.items():
            opened.add_metric([*self._labels, *key], number)
        yield opened

    def _forget(self, task_id: str) -> None:
        begun = self._began.pop(task_id, None)
        if begun is not None:
            self._open[begun] -= 1

    def _see(self, backend: str, workload: str, phase: Phase) -> Key:
        """Give a record's key, and show all its series before they count.

        One first seen above nought has lost its rise, so those of `measure` are there from warm-up on.
        """
        wanted = key_of(backend, workload, phase)
        for key in {wanted, key_of(backend, workload, Phase.MEASURE)} - self._open.keys():
            self._open[key] = 0
            self._ended |= {(key, outcome): 0 for outcome in TaskOutcome}
            for by in self._counted.values():
                by[key] = _Counted()
        return wanted

    def _histogram(self, shown: Shown, by: dict[Key, tuple[Histogram, int]]) -> HistogramMetricFamily:
        """Render a metric. Values are whole, so below an edge means at most the edge - 1."""
        family = HistogramMetricFamily(shown.name, shown.text(), labels=LABELS, unit="seconds")
        grid = self._grids[shown.name]
        names = [*(repr((edge - 1) / shown.per_s) for edge in grid.tolist()), "+Inf"]
        for key, (counted, sum_ns) in by.items():
            rows = list(zip(names, cumulative(counted, grid), strict=True))
            family.add_metric([*self._labels, *key], rows, sum_ns / 1e9)
        return family


def _value(shown: Shown, call: Calls) -> float | None:
    """Give a call's value in ns by the registry's own formula; None where the call does not tell."""
    value = METRICS[shown.of].value
    of_each: Floats = np.full(1, np.nan) if value is None else value(call)
    return None if np.isnan(of_each[0]) else float(of_each[0])


class Serving:
    """A metrics page that is up; `url` says where."""

    def __init__(self, metrics: LiveMetrics, port: int) -> None:
        self.metrics = metrics
        registry = CollectorRegistry()
        registry.register(metrics)
        self._server, self._thread = start_http_server(port, addr=HOST, registry=registry)
        self.url = f"http://{HOST}:{self._server.server_port}/metrics"
        self._over = threading.Event()
        self._fetched = threading.Event()
        page = self._server.get_app()
        if page is not None:
            self._server.set_app(self._watched(page))
        self._switch_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)

    def last_scrape(self, tell: Callable[[str], None], wait_s: float = LAST_SCRAPE_S) -> None:
        """Wait, `wait_s` at most or until Ctrl-C, until a scrape that began from now on has been answered."""
        self._over.set()
        with suppress(KeyboardInterrupt):  # the run is over, and its exit code stands
            tell(f"waiting up to {wait_s:g} s for Prometheus to fetch the last numbers; Ctrl-C ends it")
            self._fetched.wait(wait_s)

    def close(self) -> None:
        """Take the page down and free its port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        sys.setswitchinterval(self._switch_s)

    def _watched(self, page: WSGIApplication) -> WSGIApplication:
        """Notice an answer that began when all was over and has gone out whole."""

        def watched(environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
            last = self._over.is_set()
            yield from page(environ, start_response)
            if last:
                self._fetched.set()

        return watched


def serve(metrics: LiveMetrics, port: int) -> Serving:
    """Serve the metrics on loopback; port 0 takes a free one. UsageError where it cannot be had."""
    if not 0 <= port <= PORT_MAX:
        raise UsageError(f"--prometheus-port {port}: want a number from 0 to {PORT_MAX}; 0 takes a free one")
    try:
        return Serving(metrics, port)
    except OSError as problem:
        raise UsageError(
            f"--prometheus-port {port}: cannot listen on {HOST}:{port}: {problem.strerror};"
            " give another port, or 0 for a free one"
        ) from None


def publish(scenario: Scenario, *, run: str, port: int, tell: Callable[[str], None]) -> Serving:
    """Serve a run's live numbers from now on; says where."""
    metrics = LiveMetrics(scenario=scenario.name, run=run, longest_s=longest_limit_s(scenario))
    serving = serve(metrics, port)
    tell(f"live numbers for Prometheus: {serving.url}")
    return serving


@contextmanager
def published(
    scenario: Scenario, *, run: str, port: int, tell: Callable[[str], None]
) -> Iterator[LiveMetrics]:
    """Serve a run's live numbers while it goes on, and until its last ones have been fetched."""
    serving = publish(scenario, run=run, port=port, tell=tell)
    try:
        yield serving.metrics
        serving.last_scrape(tell)
    finally:
        serving.close()


def longest_limit_s(scenario: Scenario) -> float:
    """Give the longest time limit of any task or call."""
    calls = [backend.limits.total_s for backend in scenario.backends.values()]
    return max(*calls, *(entry.task_limit_s for entry in scenario.workloads))
