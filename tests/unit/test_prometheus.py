"""The metrics page: which records it counts, its grid, one moment a scrape, and its end."""

import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from harness.errors import UsageError
from harness.measure.histogram import OVERFLOW_FROM, Histogram, bucket, histogram, lower_edge
from harness.records import CallOutcome, Phase, TaskOutcome
from harness.sinks.prometheus import FOLD_AT, GAP, SHOWN, TASK, LiveMetrics, cumulative, edges, serve
from tests.making import MS, S, a_call, a_task

A_YEAR_S = 31_536_000
NO_GAPS = Histogram()


def live(**said):
    return LiveMetrics(**{"scenario": 'A "small"\nrun', "run": "r1", **said})


def samples(families):
    """Samples by name and labels; scenario and run are left out."""
    found = {}
    for sample in (sample for family in families for sample in family.samples):
        labels = dict(sample.labels)
        assert (labels.pop("scenario"), labels.pop("run")) == ('A "small"\nrun', "r1")
        found[sample.name, *sorted(labels.items())] = sample.value
    return found


def page(metrics):
    return samples(metrics.collect())


def told(metrics, name, **labels):
    """Sum of a metric's samples with these labels."""
    wanted = set(labels.items())
    return sum(value for (of, *said), value in page(metrics).items() if of == name and wanted <= set(said))


def up_to(metrics, name, **labels):
    """(le, count) of a histogram with these labels, summed over all others."""
    counts = Counter()
    for (of, *said), value in page(metrics).items():
        if of == f"{name}_bucket" and set(labels.items()) <= set(said):
            counts[float(dict(said)["le"])] += value
    return sorted(counts.items())


# --- the grid ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.name)
@pytest.mark.parametrize("longest_s", [1, 600, 86_400, A_YEAR_S])
def test_edges_are_a_subset_of_ours_in_steps_of_10_percent_at_most(shown, longest_s):
    grid = edges(shown, longest_s)
    assert lower_edge(bucket(grid)).tolist() == grid.tolist()
    assert grid[1] == shown.finest
    written = (grid[1:] - 1).tolist()
    assert max(high / low for low, high in pairwise(written)) <= 1.1
    assert written[-1] > min(2 * longest_s * shown.per_s, OVERFLOW_FROM - 2)


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.name)
def test_grids_for_other_limits_differ_at_the_top_only(shown):
    short, long = edges(shown, 60).tolist(), edges(shown, 3600).tolist()
    assert len(short) < len(long)
    assert long[: len(short)] == short


@given(st.lists(st.integers(-1, 10**13) | st.integers(-1, 1000), max_size=50))
def test_a_bucket_counts_what_is_at_most_its_le(values):
    grid = edges(TASK, 600)
    counts = cumulative(histogram(np.array(values, dtype=np.int64)), grid)
    for edge, count in zip(grid.tolist(), counts, strict=False):
        assert count == sum(0 <= value <= edge - 1 for value in values)
    assert counts[-1] == len(values)


# --- what is counted ---------------------------------------------------------------------------


def test_only_calls_that_ended_well_and_tasks_that_completed_are_timed():
    metrics = live()
    for outcome in CallOutcome:
        metrics.call(a_call(outcome=outcome), histogram(np.array([100_000] * 10)))
    for outcome in TaskOutcome:
        metrics.task(a_task(outcome=outcome))
    for name in ("task", "call_ttft", "call_tpot"):
        assert told(metrics, f"harness_{name}_seconds_count") == 1
    assert told(metrics, "harness_event_gap_seconds_count") == 10
    assert told(metrics, "harness_tasks_total") == len(TaskOutcome)
    assert (
        told(metrics, "harness_tasks_total", outcome="cut", backend="b", workload="w", phase="measure") == 1
    )


def test_sums_are_exact():
    metrics = live()
    for extra in range(3):
        metrics.call(a_call(sent_ns=-extra), histogram(np.array([100_000] * 10)))
        metrics.task(a_task(ended_ns=2 * S + extra))
    assert told(metrics, "harness_call_ttft_seconds_sum") == (3 * S + 3) / 1e9
    assert told(metrics, "harness_call_tpot_seconds_sum") == 0.3
    assert told(metrics, "harness_event_gap_seconds_sum") == 3
    assert told(metrics, "harness_task_seconds_sum") == (6 * S + 3) / 1e9


def test_a_call_that_told_no_tokens_or_had_no_output_is_in_no_histogram_that_needs_them():
    metrics = live()
    metrics.call(a_call(output_tokens=None), NO_GAPS)
    marks = ("first_output_ns", "first_answer_ns", "last_output_ns")
    metrics.call(a_call(**dict.fromkeys(marks), streamed_events=0), NO_GAPS)
    assert told(metrics, "harness_call_ttft_seconds_count") == 1
    assert told(metrics, "harness_call_tpot_seconds_count") == 0
    assert told(metrics, "harness_event_gap_seconds_count") == 0


def test_warm_up_stands_apart_and_all_else_is_what_the_summary_counts():
    metrics = live()
    for seconds, phase in ((1, Phase.MEASURE), (10, Phase.DRAIN), (100, Phase.TAIL), (1000, Phase.WARM_UP)):
        metrics.task(a_task(phase=phase, ended_ns=seconds * S))
        metrics.call(a_call(phase=phase, sent_ns=(1 - seconds) * S), NO_GAPS)
    for name in ("task", "call_ttft"):
        assert told(metrics, f"harness_{name}_seconds_sum", phase="measure") == 111
        assert told(metrics, f"harness_{name}_seconds_sum", phase="warm-up") == 1000


def test_events_of_one_read_are_gaps_of_nought():
    metrics = live()
    metrics.call(a_call(), histogram(np.array([0] * 7 + [1] * 2 + [10_000])))
    counts = dict(up_to(metrics, "harness_event_gap_seconds", phase="measure"))
    assert counts[0.0] == 7
    assert counts[(GAP.finest - 1) / 1e6] == 9
    assert counts[float("inf")] == 10


def test_every_series_is_there_before_it_counts():
    metrics = live()
    assert page(metrics) == {}
    metrics.began("b/w/w0", "b", "w", Phase.WARM_UP)
    before = page(metrics)
    metrics.task(a_task(phase=Phase.TAIL))
    metrics.call(a_call(phase=Phase.DRAIN), NO_GAPS)
    assert page(metrics).keys() == before.keys()
    assert sum(before.values()) == 1  # the task in flight


def test_a_run_without_warm_up_shows_none():
    metrics = live()
    metrics.began("b/w/0", "b", "w", Phase.MEASURE)
    assert {dict(labels)["phase"] for _, *labels in page(metrics)} == {"measure"}


def test_tasks_in_flight_are_those_that_began_and_have_not_ended():
    metrics = live()
    for k in range(3):
        metrics.began(f"b/w/{k}", "b", "w", Phase.MEASURE)
    metrics.began("c/w/0", "c", "w", Phase.WARM_UP)
    assert told(metrics, "harness_tasks_in_flight", backend="b", phase="measure") == 3
    metrics.task(a_task(task_id="b/w/1", phase=Phase.TAIL))  # the tail began after the task
    assert told(metrics, "harness_tasks_in_flight", backend="b", phase="measure") == 2
    metrics.task(a_task(task_id="b/w/9"))  # nobody said that it began
    assert told(metrics, "harness_tasks_in_flight") == 3


def test_the_text_is_open_metrics():
    metrics, registry = live(), CollectorRegistry()
    registry.register(metrics)
    metrics.task(a_task())
    text = generate_openmetrics(registry).decode()
    assert samples(text_string_to_metric_families(text)) == page(metrics)


def test_a_task_whose_worker_is_gone_is_no_longer_in_flight_and_not_counted():
    metrics = live()
    metrics.began("b/w/0", "b", "w", Phase.MEASURE)
    metrics.lost("b/w/0")
    metrics.lost("b/w/0")
    assert not any(page(metrics).values())


def test_names_say_their_units_and_help_says_of_what():
    registry = CollectorRegistry()
    registry.register(live())
    families = {family.name: family for family in registry.collect()}
    assert set(families) == {
        "harness_task_seconds",
        "harness_call_ttft_seconds",
        "harness_call_tpot_seconds",
        "harness_event_gap_seconds",
        "harness_tasks",
        "harness_tasks_in_flight",
    }
    for name, family in families.items():
        timed = name.endswith("_seconds")
        assert family.unit == ("seconds" if timed else "")
        assert ("seconds, one value a" if timed else "Tasks that have") in family.documentation


def test_c07_fine_grid_and_a_top_beyond_the_time_limit():
    metrics = live()
    for _ in range(1000):
        metrics.call(a_call(first_output_ns=220 * MS), NO_GAPS)
    for _ in range(10):
        metrics.task(a_task(ended_ns=120 * S))
    for name, value in (("call_ttft", 0.22), ("task", 120.0)):
        counts = up_to(metrics, f"harness_{name}_seconds", phase="measure")
        below, at = next((low, high) for low, high in pairwise(counts) if high[1] > 0)
        assert below[0] < value <= at[0] <= 1.1 * below[0]
        assert at[1] == counts[-1][1]


def test_c07_two_grids_have_no_negative_differences():
    """The same values in two runs with unlike limits: a bucket that both have is equal in both."""
    runs = [live(longest_s=60), live(longest_s=3600)]
    for ns in np.random.default_rng(7).lognormal(23, 3, 500).astype(int).tolist():
        for metrics in runs:
            metrics.task(a_task(ended_ns=ns))
    short, long = (dict(up_to(metrics, "harness_task_seconds")) for metrics in runs)
    assert set(short) < set(long)
    assert all(long[le] == count for le, count in short.items())


# --- one moment a scrape -----------------------------------------------------------------------


def test_each_scrape_shows_one_moment_while_records_come():
    metrics, stop, seen = live(), threading.Event(), []

    def scrape():
        while not stop.is_set():
            seen.append(page(metrics))

    scraper = threading.Thread(target=scrape)
    scraper.start()
    for k in range(3000):
        metrics.began(str(k), "b", "w", Phase.MEASURE)
        metrics.call(a_call(), histogram(np.array([100_000] * 10)))
        metrics.task(a_task(task_id=str(k)))
    while len(seen) < 3:  # the scraper may have had no turn
        stop.wait(0.01)
    stop.set()
    scraper.join()
    key = (("backend", "b"), ("phase", "measure"), ("workload", "w"))
    for before, after in pairwise(filter(None, [*seen, page(metrics)])):
        done = after["harness_task_seconds_count", *key]
        assert done >= before["harness_task_seconds_count", *key]
        assert done == after["harness_tasks_total", key[0], ("outcome", "completed"), *key[1:]]
        assert done == after["harness_task_seconds_sum", *key] / 2
        calls = after["harness_call_ttft_seconds_count", *key]
        assert 0 <= calls - done <= 1
        assert after["harness_event_gap_seconds_count", *key] == 10 * calls
        assert done + after["harness_tasks_in_flight", *key] - calls in (0, 1)
    assert told(metrics, "harness_tasks_total") == 3000


def test_memory_does_not_grow_with_the_run():
    metrics = live()
    for k in range(3 * FOLD_AT):
        metrics.began(str(k), "b", "w", Phase.MEASURE)
        metrics.call(a_call(), histogram(np.array([100_000] * 10)))
        metrics.task(a_task(task_id=str(k)))
    kept = [one for by in metrics._counted.values() for one in by.values()]
    assert max(len(one.values) + len(one.parts) for one in kept) < FOLD_AT
    assert not metrics._began
    assert told(metrics, "harness_event_gap_seconds_count") == 30 * FOLD_AT


# --- the page ----------------------------------------------------------------------------------


def fetch(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()


def test_it_is_served_at_a_free_port_of_loopback():
    metrics = live()
    metrics.task(a_task())
    serving = serve(metrics, 0)
    try:
        assert serving.url.startswith("http://127.0.0.1:")
        registry = CollectorRegistry()
        registry.register(metrics)
        assert fetch(serving.url) == generate_latest(registry).decode()
    finally:
        serving.close()


def test_a_taken_port_is_one_sentence():
    serving = serve(live(), 0)
    port = int(serving.url.split(":")[2].split("/")[0])
    try:
        with pytest.raises(
            UsageError, match=f"^--prometheus-port {port}: .* in use; give another port"
        ) as told:
            serve(live(), port)
        assert "\n" not in str(told.value)
    finally:
        serving.close()
    serve(live(), port).close()  # and free again


@pytest.mark.parametrize("port", [-1, 65536, 10**9])
def test_a_port_that_is_none_is_one_sentence(port):
    with pytest.raises(UsageError, match=f"^--prometheus-port {port}: want a number from 0 to 65535; "):
        serve(live(), port)


def waiting(serving, wait_s):
    """Wait for the last scrape in a thread of its own; returns when it has begun to."""
    begun = threading.Event()
    thread = threading.Thread(target=serving.last_scrape, args=[lambda _: begun.set(), wait_s])
    thread.start()
    assert begun.wait(60)
    return thread


def test_the_end_waits_for_one_more_scrape_that_holds_the_last_numbers():
    metrics = live()
    serving = serve(metrics, 0)
    fetch(serving.url)  # one before the end is not enough
    metrics.task(a_task())
    thread = waiting(serving, 600)
    text = fetch(serving.url)
    thread.join(timeout=60)
    assert not thread.is_alive()
    serving.close()
    [line] = [one for one in text.splitlines() if one.startswith("harness_task_seconds_count")]
    assert line.endswith(" 1.0")


def test_the_end_does_not_wait_for_ever():
    serving = serve(live(), 0)
    thread = waiting(serving, 0.05)
    thread.join(timeout=60)
    assert not thread.is_alive()
    serving.close()


WAITING = """
from harness.sinks.prometheus import LiveMetrics, serve
serving = serve(LiveMetrics(scenario="s", run="r"), 0)
serving.last_scrape(lambda line: print(line, flush=True), 600)
serving.close()
"""


def test_ctrl_c_ends_the_wait():
    with subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("waiting up to 600 s")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 0


UNDER_GEVENT = """
import gevent.monkey
gevent.monkey.patch_all()
import gevent, urllib.request
from harness.records import Phase
from harness.sinks.prometheus import LiveMetrics, serve
metrics = LiveMetrics(scenario="s", run="r")
metrics.began("b/w/0", "b", "w", Phase.MEASURE)
serving = serve(metrics, 0)
waiting = gevent.spawn(serving.last_scrape, print, 600)
gevent.sleep(0)
print(urllib.request.urlopen(serving.url, timeout=20).read().decode())
waiting.join(timeout=60)
assert waiting.successful()
serving.close()
"""


def test_it_works_in_a_process_that_gevent_has_patched():
    done = subprocess.run([sys.executable, "-c", UNDER_GEVENT], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (
        'harness_tasks_in_flight{backend="b",phase="measure",run="r",scenario="s",workload="w"} 1.0'
        in done.stdout
    )
