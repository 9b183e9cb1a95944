"""Every panel of the dashboard on Debian's Prometheus that scraped a real run: it shows `summary.json`."""

import json
import math
import time
from collections import defaultdict
from pathlib import Path
from urllib.parse import urlencode

import pytest

from harness.measure.histogram import Histogram
from harness.sinks.prometheus import GAP, LiveMetrics, serve
from tests.integration.locusting import ended, tree
from tests.integration.running import PATIENCE_S, Folder, scenario, simulated, start
from tests.making import MS, S, a_call, a_task
from tests.servers.starting import ask, free_port, prometheus

pytestmark = pytest.mark.needs("prometheus")

BOARD = Path(__file__).parents[2] / "dashboards" / "grafana" / "dashboards" / "agent-latency.json"
# Warm-up: Prometheus must have seen the counters at nought, for the panels that look at a window.
TASKS, USERS = 75, 16  # 75: no quantile falls between two tasks; p95 needs 72
LOAD = f'kind = "closed"\nusers = {USERS}\ntasks = {TASKS}\nwarm_up_s = 6\n[compare]\nbaseline = "standard"'
BACKENDS = {
    "standard": simulated("gpt-5.6-sol-standard"),
    "ultrafast": simulated("gpt-5.6-sol-ultrafast"),
}
WORKLOAD = """
[[workloads]]
kind = "agent"
preset = "demo"
length_scale = 0.05
tool_s_max = 0.05
agent_s = { value = 0.01 }
calls = { value = 2 }
"""
STEP = 1.1  # two values in one bucket differ by less
FINEST_S = {"harness_event_gap_seconds": GAP.finest / GAP.per_s}
WHOLE = "10m"  # a window that holds all of the run


def by_harness_run(folder, port):
    """Run to the end with live numbers at a port of loopback; gives what it left, a `Folder`.

    Valid or not: a late machine's numbers are alike in both places. But on one so busy that whole answers
    come in one read there is no decode speed to show: then again.
    """
    path = scenario(folder, BACKENDS, load=LOAD, workload=WORKLOAD)
    for place in ("out", "again", "once-more"):
        out = Folder(folder / place)
        with start("run", path, "--out", out.path, "--prometheus-port", port) as process:
            process.communicate(timeout=300)
        if all(quantile("tpot_ms", "p50")(out.json("summary"), name) > [0] for name in BACKENDS):
            break
    return out


def by_locust(folder, port):
    """The same by a Locust master with two workers: its page shows what all of them told."""
    path = scenario(folder, BACKENDS, load=LOAD, workload=WORKLOAD)
    for place in ("out", "again", "once-more"):
        out = Folder(folder / place)
        with tree() as one:
            workers = [one.worker(), one.worker()]
            words = ["--scenario", path, "--out", out.path, "--prometheus-port", port]
            ended(one.master(*words, workers=2))
            assert [ended(worker).code for worker in workers] == [0, 0]
        if all(quantile("tpot_ms", "p50")(out.json("summary"), name) > [0] for name in BACKENDS):
            break
    return out


# --- what each query must show -----------------------------------------------------------------


def quantile(*where, scale=1.0):
    """A quantile of a workload's summary, in seconds."""

    def wanted(summary, backend):
        found = summary["backends"][backend]["workloads"]["demo"]
        for key in where:
            found = found[key]
        assert found["value"] is not None, f"the run is too short to have {where}: {found}"
        return [found["value"] * scale]

    return wanted


def decode_speed(summary, backend):
    """Of an even number of calls the summary takes the lower middle speed, Prometheus that of TPOT."""
    [tpot_s] = quantile("tpot_ms", "p50", scale=1e-3)(summary, backend)
    return [*quantile("decode_tokens_per_s")(summary, backend), 1 / tpot_s]


def median_speed_up(summary, backend):
    return [summary["compare"][backend]["demo"]["ratio_p50"]["value"]]


TASK_P50, TASK_P95 = quantile("task_time", "p50_s"), quantile("task_time", "p95_s")
QUANTILES = {
    ("Median task time", "A"): TASK_P50,
    ("Decode speed, tokens/s", "A"): decode_speed,
    ("Task time", "A"): TASK_P50,
    ("Task time", "B"): TASK_P95,
    ("Time to first token", "A"): quantile("ttft_s", "p50"),
    ("Time to first token", "B"): quantile("ttft_s", "p95"),
    ("Time per output token", "A"): quantile("tpot_ms", "p50", scale=1e-3),
    ("Time per output token", "B"): quantile("tpot_ms", "p95", scale=1e-3),
    ("Gap between output events", "A"): quantile("gap_ms", "p50", scale=1e-3),
    ("Gap between output events", "B"): quantile("gap_ms", "p95", scale=1e-3),
    ("Gap between output events", "C"): quantile("gap_ms", "p99", scale=1e-3),
    ("Task time, last moments", "A"): TASK_P50,
    ("Task time, last moments", "B"): TASK_P95,
    ("Decode speed, last moments, tokens/s", "A"): decode_speed,
}


def near(found, wanted, *, steps=1, finest_s=0.0):
    return any(one / STEP**steps - finest_s <= found <= one * STEP**steps + finest_s for one in wanted)


def shows_the_quantile(wanted):
    def holds(found, shown, expr):
        finest_s = next((fine for name, fine in FINEST_S.items() if name in expr), 0.0)
        assert {labels["backend"] for labels, _ in found} == set(BACKENDS)
        for labels, value in found:
            values = wanted(shown.json("summary"), labels["backend"])
            assert near(value, values, finest_s=finest_s), f"{labels}: {value}, not {values}"

    return holds


def shows_the_speed_up(found, shown, expr):
    [(labels, value)] = found
    assert labels == {"backend": "ultrafast"}
    assert near(value, median_speed_up(shown.json("summary"), "ultrafast"), steps=2)


def shows_the_curve(found, shown, expr):
    """To the last digit by the records, and so the summary's shares done within T lie on it."""
    points = defaultdict(dict)
    for labels, value in found:
        points[labels["backend"]][float(labels["le"])] = value
    for name in BACKENDS:
        times = [(task["ended_ns"] - task["scheduled_ns"]) / 1e9 for task in shown.tasks(name)]
        for at, share in points[name].items():
            assert share == sum(time <= at for time in times) / TASKS
        within = shown.json("summary")["backends"][name]["workloads"]["demo"]["task_time"]["within"]
        for limit, share in within.items():
            assert points[name][max(at for at in points[name] if at <= float(limit))] <= share["value"]
            assert points[name][min(at for at in points[name] if at >= float(limit))] >= share["value"]


def shows_the_outcomes(found, shown, expr):
    for name in BACKENDS:
        counts = shown.json("summary")["backends"][name]["workloads"]["demo"]["tasks"]
        said = {labels["outcome"]: value for labels, value in found if labels["backend"] == name}
        assert said == {outcome: counts[outcome] for outcome in said}
        assert set(said) == {"completed", "failed", "timeout", "abandoned", "cut"}
        assert said["completed"] == TASKS


def shows_nothing_open(found, shown, expr):
    assert {labels["backend"]: value for labels, value in found} == dict.fromkeys(BACKENDS, 0)


PANELS = {
    **{panel: shows_the_quantile(wanted) for panel, wanted in QUANTILES.items()},
    ("Speed-up of the median task", "A"): shows_the_speed_up,
    ("Share of ended tasks that were done by t", "A"): shows_the_curve,
    ("Tasks by outcome", "A"): shows_the_outcomes,
    ("Tasks in flight", "A"): shows_nothing_open,
}


# --- asking ------------------------------------------------------------------------------------


def query(url, expr, at=None):
    said = {"query": expr} | ({} if at is None else {"time": at})
    answer = ask(f"{url}/api/v1/query?{urlencode(said)}")
    assert answer["status"] == "success"
    return answer["data"]["result"]


def values(url, expr, at):
    """(labels, value) of an instant query; all of it must be numbers."""
    found = [(one["metric"], float(one["value"][1])) for one in query(url, expr, at)]
    assert found, f"no data: {expr}"
    assert all(math.isfinite(value) for _, value in found), f"not finite: {expr}: {found}"
    return found


def wait_until_gone(url):
    """Until Prometheus has missed the page once: then it has stored all that it got before."""
    until = time.monotonic() + PATIENCE_S
    while [one["value"][1] for one in query(url, "up")] != ["0"]:
        assert time.monotonic() < until, "the page is still there"
        time.sleep(0.1)


def last_sample(url, metric):
    """When Prometheus scraped the page for the last time."""
    return max(at for one in query(url, f"{metric}[{WHOLE}]") for at, _ in one["values"])


def filled_in(expr, shown):
    about = shown.json("run")
    chosen = {
        "__rate_interval": WHOLE,
        "__range": WHOLE,
        "scenario": about["scenario"]["name"],
        "run": about["run_id"],
        "workload": "demo",
        "baseline": "standard",
    }
    for name, value in chosen.items():
        expr = expr.replace(f"${name}", value)
    assert "$" not in expr
    return expr


@pytest.mark.parametrize("runs", [by_harness_run, by_locust])
def test_every_panel_shows_what_the_summary_says(tmp_path, runs):
    panels = [panel for panel in json.loads(BOARD.read_text())["panels"] if panel["type"] != "row"]
    targets = {(panel["title"], one["refId"]): one["expr"] for panel in panels for one in panel["targets"]}
    assert set(targets) == set(PANELS), "a panel without a test, or a test without its panel"
    port = free_port()
    with prometheus(tmp_path, port) as url:
        shown = runs(tmp_path, port)
        wait_until_gone(url)
        run_id = shown.json("run")["run_id"]
        at = last_sample(url, f'harness_tasks_in_flight{{run="{run_id}"}}')
        for panel, expr in targets.items():
            expr = filled_in(expr, shown)
            PANELS[panel](values(url, expr, at), shown, expr)
        in_flight = filled_in(targets["Tasks in flight", "A"], shown)
        for labels, most in values(url, f"max_over_time(({in_flight})[{WHOLE}:1s])", at):
            assert 0 < most <= USERS, labels


def test_c07_quantiles_of_a_fine_grid_below_a_top_beyond_the_time_limit(tmp_path):
    port = free_port()
    metrics = LiveMetrics(scenario="s", run="r", longest_s=60)
    for _ in range(1000):
        metrics.call(a_call(first_output_ns=220 * MS), Histogram())
    for _ in range(10):
        metrics.task(a_task(ended_ns=120 * S))  # twice the limit, as one that was due long before it began
    serving = serve(metrics, port)
    with prometheus(tmp_path, port) as url:
        serving.last_scrape(print)
        serving.close()
        wait_until_gone(url)
        for name, value in (("call_ttft", 0.22), ("task", 120)):
            name, said = f"harness_{name}_seconds", []
            at = last_sample(url, f"{name}_count")
            for q in (0.5, 0.95, 0.99):
                expr = f'histogram_quantile({q}, sum by (le) ({name}_bucket{{phase="measure"}}))'
                said += [found for _, found in values(url, expr, at)]
            assert len(said) == 3
            assert all(near(found, [value]) for found in said), said
