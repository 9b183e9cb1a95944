"""The answer's words and layout."""

from dataclasses import replace

import numpy as np
import pytest

from harness.measure.curve import completion_curve
from harness.measure.facts import RunFacts
from harness.objectives import Objectives
from harness.records import TaskOutcome
from harness.results import Estimate, Reason, TierSummary, Verdict, VerdictRecord
from harness.sinks.answer import cell, number, own_sentence, print_answer, sentence, share, tier_rows
from tests.summaries import a_comparison, a_summary, a_workload


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        pytest.param(Estimate(2.345, 2.1, 3.0, 50), "2.35 s [2.10, 3.00]", id="value with interval"),
        pytest.param(Estimate(2.345, n=1), "2.35 s", id="value alone"),
        pytest.param(Estimate(1234.5, 1000.0, None, 50), "1,234 s [1,000, -]", id="open end"),
        pytest.param(
            Estimate(None, n=8, reason=Reason.TOO_FEW, needed=368), "needs 368, has 8", id="too few"
        ),
        pytest.param(
            Estimate(None, 20.0, None, 50, Reason.NOT_REACHED), "not reached [20.0, -] s", id="beyond"
        ),
        pytest.param(Estimate(None, reason=Reason.HIDDEN), "hidden", id="hidden"),
        pytest.param(Estimate(None, 1.0, 2.0, 50, Reason.UNKNOWN), "unknown [1.00, 2.00] s", id="a range"),
    ],
)
def test_cells(estimate, text):
    assert cell(estimate, "s") == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0123456, "0.0123"), (99.94, "99.9"), (100.4, "100"), (12345.6, "12,346")]
)
def test_three_digits_and_whole_numbers_from_100(value, text):
    assert number(value) == text


def test_shares_are_percent():
    assert share(Estimate(0.834, 0.7, 0.91, 50)) == "83% [70%, 91%]"
    assert share(Estimate(None, reason=Reason.UNKNOWN)) == "unknown"


def facts():
    return RunFacts(
        title="t",
        workload="coding",
        seed=1,
        backends={},
        baseline="slow",
        objectives=Objectives(),
        repeats=1,
        salted=True,
        interrupted=False,
        measure_s=1.0,
        run_s=1.0,
        cpu_share=0.1,
        loop_lag_p99_ms=1.0,
    )


def two(**said):
    slow = a_workload(
        decode_tokens_per_s=Estimate(50.0, 49.0, 51.0, 90), breakdown={"decode": 0.5, "reasoning": 0.1}
    )
    backends = {"slow": {"coding": slow}, "fast": {"coding": a_workload(**said)}}
    return a_summary(backends, compare={"fast": {"coding": a_comparison()}})


def test_the_sentence_tells_decode_task_and_ceiling():
    summary = two(decode_tokens_per_s=Estimate(750.0, 740.0, 760.0, 90))
    said = sentence(summary, facts(), "fast", "coding", summary.compare["fast"]["coding"])
    assert said.startswith(
        "Decode on fast is 15.0 times as fast as on slow; half of the tasks are at least 2.00 ["
    )
    # decode and hidden reasoning are 0.6 of the time: 1 / (1 - 0.6)
    assert said.endswith(
        "with infinitely fast decode and all else as on slow, all together 2.50 times (100 pairs)."
    )


def test_what_is_not_known_makes_no_broken_sentence():
    few = Estimate(None, n=10, reason=Reason.TOO_FEW, needed=36)
    none = Estimate(None, n=1, reason=Reason.TOO_FEW, needed=6)
    said = []
    for half, most in [(Estimate(2.0, 1.0, 3.0, 10), few), (none, none)]:
        result = a_workload()
        times = replace(result.task_time, p50_s=half, p90_s=most)
        said.append(own_sentence("x", replace(result, task_time=times)).split(";")[0])
    assert said == [
        "On x half of the tasks are done within 2.00 s [1.00, 3.00]",
        "On x the median task time: needs 6, has 1",
    ]


def printed(capsys, summary, curves=None):
    verdict = VerdictRecord(verdict=Verdict.INVALID, policy="point", reasons=["why not"], objectives=[])
    print_answer(summary, verdict, facts(), curves=curves or {}, folder="runs/x")
    return capsys.readouterr()


def test_the_parts_come_in_their_order_and_an_invalid_run_says_why_twice(capsys):
    curve = completion_curve([1.0, 2.0, 4.0, 40.0], [TaskOutcome.COMPLETED] * 4)
    told = printed(capsys, two(), {"slow": curve, "fast": curve})
    parts = [
        "times as fast",
        "tasks done by",
        "task time p50",
        "where the time goes",
        "USD in all",
        "against slow",
    ]
    places = [told.out.index(part) for part in [*parts, "verdict INVALID", "why not", "runs/x"]]
    assert places == sorted(places)
    assert "this run is INVALID: why not" in told.err


def test_parts_stand_in_one_order_wherever_they_first_occur(capsys):
    shares = {"slow": {"decode": 0.9, "client": 0.1}, "fast": {"decode": 0.8, "retry": 0.1, "client": 0.1}}
    backends = {name: {"coding": a_workload(breakdown=of)} for name, of in shares.items()}
    out = printed(capsys, a_summary(backends, compare={"fast": {"coding": a_comparison()}})).out
    assert out.index("\n  decode") < out.index("\n  retry") < out.index("\n  client")


def test_the_plot_rises_from_nothing_to_all(capsys):
    curve = completion_curve(np.arange(1, 101), [TaskOutcome.COMPLETED] * 100)
    lines = printed(capsys, two(), {"slow": curve, "fast": curve}).out.splitlines()
    axis = next(line for line in lines if line.startswith("tasks done by"))
    assert [word for word in axis.split() if word in ("1s", "10s", "100s")] == ["1s", "10s", "100s"]
    bars = next(line for line in lines if line.startswith("slow "))
    heights = [" ▁▂▃▄▅▆▇█".index(c) for c in bars.removeprefix("slow").split(" 100%")[0][10:]]
    assert heights == sorted(heights)
    assert heights[-1] == 8


def test_no_completed_task_draws_no_plot(capsys):
    curve = completion_curve([5.0], [TaskOutcome.CUT])
    assert "tasks done by" not in printed(capsys, two(), {"slow": curve}).out


def test_tiers_are_shown_where_one_was_asked_for_and_their_speeds_where_one_backend_had_several():
    mixed = TierSummary("ultrafast", {"ultrafast": 23, "default": 7}, {"ultrafast": Estimate(750.0, n=23)})
    plain = TierSummary(None, {"default": 30})
    shown = [
        (label, show(a_workload(tier=mixed)), show(a_workload(tier=plain)))
        for label, show in tier_rows([a_workload(tier=mixed), a_workload(tier=plain)])
    ]
    assert shown == [
        ("tier asked for", "ultrafast", "-"),
        ("  calls by ultrafast", "23", "0"),
        ("  calls by default", "7", "30"),
        ("  speed of ultrafast", "750 tokens/s", "not applicable"),
        ("  speed of default", "not applicable", "not applicable"),
    ]
    assert [label for label, _ in tier_rows([a_workload(tier=TierSummary("fast", {"priority": 3}))])] == [
        "tier asked for",
        "  calls by priority",
    ]
    assert tier_rows([a_workload(tier=plain)]) == []
