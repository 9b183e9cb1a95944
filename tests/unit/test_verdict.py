"""A whole run judged: objectives over backends and workloads, what makes a run invalid, exit codes."""

from pathlib import Path

import orjson
import pytest

from harness.measure.verdict import exit_code, judge
from harness.objectives import ObjectiveFor, Objectives, parse_comparison, parse_objective
from harness.results import Headline, Reason, TaskCounts, Verdict
from tests.summaries import a_comparison, a_summary, a_workload, all_of, an

GOLDEN = Path(__file__).parents[1] / "data" / "verdict.json"


def asked(*lines, compared=(), policy="point"):
    """Objectives of lines (backend, workload, metric, text) and comparisons (candidate, text)."""
    return Objectives(
        held=tuple(
            ObjectiveFor(backend, workload, parse_objective(metric, text))
            for backend, workload, metric, text in lines
        ),
        compared=tuple(ObjectiveFor(backend, None, parse_comparison(text)) for backend, text in compared),
        policy=policy,
    )


def judged(summary, objectives, **said):
    return judge(summary, lost=said.pop("lost", {}), objectives=objectives, **said)


def rows(record):
    return [(row["backend"], row["workload"], row["verdict"]) for row in record.objectives]


DISTINCT = a_workload(
    task_time={"p50_s": an(10.0), "p90_s": an(11.0), "p95_s": an(12.0), "p99_s": an(13.0)},
    ttft_s=all_of(an(1.0)),
    extra={"events_per_token": an(0.6)},
    headline=Headline(name="mouth_to_ear", unit="ms", better="lower", value=an(700.0, 600.0, 800.0)),
)


@pytest.mark.parametrize(
    ("metric", "text", "value"),
    [
        ("task_time", "p50 <= 1s", 10.0),
        ("task_time", "p90 <= 1s", 11.0),
        ("task_time", "p95 <= 1s", 12.0),
        ("task_time", "p99 <= 1s", 13.0),
        ("task_time", "within(60s) >= 0.9", 0.9),
        ("task_time", "within(10000ms) >= 0.9", 0.5),
        ("task_time", "within(61s) >= 0.9", None),
        ("ttft", "p95 <= 1s", 1.0),
        ("ttfo", "p95 <= 1s", 2.0),
        ("gap", "p95 <= 1s", 3.0),
        ("tpot", "p95 <= 1s", 4.0),
        ("decode_tokens_per_s", ">= 1", 250.0),
        ("events_per_token", ">= 0.8", 0.6),
        ("headline", "<= 1s", 0.7),
        ("cost_per_task", "<= 1", 0.05),
    ],
)
def test_where_the_summary_holds_each_metric(metric, text, value):
    [row] = judged(a_summary({"b": {"w": DISTINCT}}), asked(("b", None, metric, text))).objectives
    assert row["estimate"].value == value


def test_a_headline_in_ms_is_told_in_the_seconds_of_its_limit():
    [row] = judged(a_summary({"b": {"w": DISTINCT}}), asked(("b", None, "headline", "<= 1s"))).objectives
    assert row["estimate"] == an(0.7, 0.6, 0.8)


def test_a_headline_that_is_no_time_decides_nothing():
    share = Headline(name="shown_in_time", unit="share", better="higher", value=an(0.7))
    record = judged(
        a_summary({"b": {"w": a_workload(headline=share)}}), asked(("b", None, "headline", "<= 1s"))
    )
    assert rows(record) == [("b", "w", Verdict.INCONCLUSIVE)]


@pytest.mark.parametrize("metric", ["speedup_p50", "speedup_p10", "speedup_p90", "ratio_p50", "ratio_p90"])
def test_where_the_summary_holds_each_comparison(metric):
    compare = {"b": {"w": a_comparison(**{metric: an(7.0)})}}
    record = judged(
        a_summary({"b": {"w": a_workload()}}, compare=compare), asked(compared=[("b", f"{metric} >= 1.5")])
    )
    assert record.objectives[0]["estimate"].value == 7.0


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        pytest.param({"b": {"w": an(6.0, 5.8, 6.2)}}, Verdict.PASS, id="below"),
        pytest.param({"b": {"w": an(9.0)}}, Verdict.FAIL, id="above"),
        pytest.param({}, Verdict.INCONCLUSIVE, id="nobody knows"),
    ],
)
def test_money_beside_the_baseline(ratios, verdict):
    record = judged(
        a_summary({"b": {"w": a_workload()}}),
        asked(compared=[("b", "cost_per_task <= 8x")]),
        cost_ratios=ratios,
    )
    assert record.verdict is verdict


HAS_NONE = a_workload(ttft_s=all_of(an(reason=Reason.NOT_APPLICABLE)))
ALL = ("b", None, "ttft", "p50 <= 1s")


@pytest.mark.parametrize(
    ("workloads", "line", "expected"),
    [
        pytest.param(
            {"v": a_workload(), "w": a_workload()},
            ALL,
            [("v", Verdict.PASS), ("w", Verdict.PASS)],
            id="every workload",
        ),
        pytest.param(
            {"v": HAS_NONE, "w": a_workload()}, ALL, [("w", Verdict.PASS)], id="that has the metric"
        ),
        pytest.param({"v": HAS_NONE}, ALL, [("v", Verdict.INCONCLUSIVE)], id="none has it"),
        pytest.param(
            {"v": a_workload(), "w": a_workload()},
            ("b", "w", "ttft", "p50 <= 1s"),
            [("w", Verdict.PASS)],
            id="one workload",
        ),
        pytest.param(
            {"v": HAS_NONE, "w": a_workload()},
            ("b", "v", "ttft", "p50 <= 1s"),
            [("v", Verdict.INCONCLUSIVE)],
            id="one that has not",
        ),
        pytest.param(
            {"w": a_workload()},
            ("b", "gone", "ttft", "p50 <= 1s"),
            [("gone", Verdict.INCONCLUSIVE)],
            id="one that was not run",
        ),
        pytest.param({}, ALL, [(None, Verdict.INCONCLUSIVE)], id="no workload at all"),
    ],
)
def test_which_workloads_an_objective_is_held_against(workloads, line, expected):
    record = judged(a_summary({"b": workloads}), asked(line))
    assert rows(record) == [("b", *one) for one in expected]


def test_an_objective_of_a_backend_that_is_not_there_does_not_vanish():
    record = judged(a_summary({"b": {"w": a_workload()}}), asked(("gone", None, "ttft", "p50 <= 1s")))
    assert rows(record) == [("gone", None, Verdict.INCONCLUSIVE)]
    assert record.reasons == ["gone: ttft p50 <= 1s: is unknown"]


MET = ("b", None, "ttft", "p50 <= 2s")
MISSED = ("b", None, "ttft", "p50 <= 500ms")
UNDECIDED = ("b", None, "task_time", "within(61s) >= 0.9")
LOST = {"b": "refused ten times"}


@pytest.mark.parametrize(
    ("lines", "lost", "verdict", "told"),
    [
        pytest.param([], {}, Verdict.NONE, [], id="nothing asked"),
        pytest.param([MET], {}, Verdict.PASS, [], id="all met"),
        pytest.param([MET, UNDECIDED], {}, Verdict.INCONCLUSIVE, ["unknown"], id="one undecided"),
        pytest.param(
            [UNDECIDED, MET, MISSED], {}, Verdict.FAIL, ["was 1.00 s", "unknown"], id="failed first"
        ),
        pytest.param(
            [UNDECIDED, MISSED, MET],
            LOST,
            Verdict.INVALID,
            ["given up", "was 1.00 s", "unknown"],
            id="invalid before all",
        ),
        pytest.param([], LOST, Verdict.INVALID, ["given up"], id="invalid, nothing asked"),
    ],
)
def test_the_gravest_verdict_is_the_runs(lines, lost, verdict, told):
    record = judged(a_summary({"b": {"w": a_workload()}}), asked(*lines), lost=lost)
    assert record.verdict is verdict
    assert len(record.reasons) == len(told)
    assert all(words in reason for words, reason in zip(told, record.reasons, strict=True))
    assert len(record.objectives) == len(lines)


def test_the_policy_decides():
    summary = a_summary({"b": {"w": a_workload()}})
    lines = [("b", None, "task_time", "p50 <= 10.5s")]
    assert judged(summary, asked(*lines)).verdict is Verdict.PASS
    confident = judged(summary, asked(*lines, policy="confident"))
    assert (confident.verdict, confident.policy) == (Verdict.INCONCLUSIVE, "confident")
    assert confident.reasons == [
        "b/w: task_time p50 <= 10.5s: was 10.0 s [9.00, 11.0]: the limit lies inside"
    ]


NONE_DONE = TaskCounts(scheduled=2, dropped=0, completed=0, failed=2, timeout=0, abandoned=0, cut=0, lost=0)


@pytest.mark.parametrize(
    ("workload", "said", "told"),
    [
        pytest.param(a_workload(), {}, [], id="sound"),
        pytest.param(a_workload(tasks=NONE_DONE), {}, ["b/w: no task completed"], id="nothing completed"),
        pytest.param(
            a_workload(breakdown={"decode": 0.97, "client": 0.03}),
            {},
            ["b/w: the harness itself took 3.0% of the task time (limit 2%): fewer users, or more machine"],
            id="the harness too slow",
        ),
        pytest.param(a_workload(breakdown={"decode": 0.98, "client": 0.02}), {}, [], id="just fast enough"),
        pytest.param(a_workload(breakdown={}), {}, [], id="no breakdown"),
        pytest.param(a_workload(), {"start_lag_ms": 100.0}, [], id="late by 1 % of the median"),
        pytest.param(
            a_workload(),
            {"start_lag_ms": 101.0},
            ["tasks started 101 ms late at p99 (limit 100 ms): the plan was not kept"],
            id="late by more",
        ),
        pytest.param(
            a_workload(task_time={"p50_s": an(1.0)}),
            {"start_lag_ms": 51.0},
            ["tasks started 51 ms late at p99 (limit 50 ms): the plan was not kept"],
            id="late by more than 50 ms",
        ),
        pytest.param(
            a_workload(task_time={"p50_s": an(1.0)}), {"start_lag_ms": 50.0}, [], id="late by 50 ms"
        ),
        pytest.param(a_workload(), {"start_lag_ms": None}, [], id="lateness unknown"),
    ],
)
def test_what_makes_a_run_invalid(workload, said, told):
    record = judged(a_summary({"b": {"w": workload}}, **said), asked())
    assert record.reasons == told
    assert record.verdict is (Verdict.INVALID if told else Verdict.NONE)


@pytest.mark.parametrize(
    ("verdict", "strict", "allowing"),
    [
        (Verdict.PASS, 0, 0),
        (Verdict.NONE, 0, 0),
        (Verdict.FAIL, 1, 1),
        (Verdict.INCONCLUSIVE, 3, 0),
        (Verdict.INVALID, 4, 4),
    ],
)
def test_exit_codes(verdict, strict, allowing):
    assert exit_code(verdict, allow_inconclusive=False) == strict
    assert exit_code(verdict, allow_inconclusive=True) == allowing


def test_a_verdict_as_it_is_written():
    """The file was written by hand from what the contract says of this summary."""
    slow = a_workload(task_time={"p50_s": an(23.1, 21.0, 25.2)})
    compare = {"ultrafast": {"coding": a_comparison(speedup_p10=an(None, 0.8, 1.7))}}
    summary = a_summary(
        {"standard": {"coding": a_workload()}, "ultrafast": {"coding": slow}}, compare=compare
    )
    objectives = asked(
        ("ultrafast", None, "task_time", "p50 <= 20s"),
        ("ultrafast", "coding", "task_time", "within(60s) >= 90%"),
        compared=[("ultrafast", "speedup_p10 >= 1.5"), ("ultrafast", "cost_per_task <= 8x")],
    )
    record = judged(summary, objectives, cost_ratios={"ultrafast": {"coding": an(6.0, 5.9, 6.1)}})
    assert orjson.loads(orjson.dumps(record)) == orjson.loads(GOLDEN.read_bytes())
