"""Texts of objectives: what they mean, or the sentence that is told instead."""

import re

import pytest

from harness.objectives import (
    METRICS,
    Objective,
    ObjectiveFor,
    parse_comparison,
    parse_objective,
    within_limits,
)


@pytest.mark.parametrize(
    ("metric", "text", "rest"),
    [
        ("task_time", "p50 <= 20s", ("p50", "<=", 20, "s", "task_time p50 <= 20s")),
        ("task_time", "p99>=1.5 s", ("p99", ">=", 1.5, "s", "task_time p99 >= 1.5s")),
        ("task_time", "  p90\t<=\n500ms ", ("p90", "<=", 0.5, "s", "task_time p90 <= 500ms")),
        ("ttft", "p95 <= 500ms", ("p95", "<=", 0.5, "s", "ttft p95 <= 500ms")),
        ("ttfo", "p95 <= .3s", ("p95", "<=", 0.3, "s", "ttfo p95 <= .3s")),
        ("gap", "p99 <= 20ms", ("p99", "<=", 20, "ms", "gap p99 <= 20ms")),
        ("tpot", "p50 <= 0.0013s", ("p50", "<=", 1.3, "ms", "tpot p50 <= 0.0013s")),
        ("decode_tokens_per_s", ">= 400", ("", ">=", 400, "tokens/s", "decode_tokens_per_s >= 400")),
        ("events_per_token", ">= 0.8", ("", ">=", 0.8, "", "events_per_token >= 0.8")),
        ("events_per_token", "<= 1.25", ("", "<=", 1.25, "", "events_per_token <= 1.25")),
        ("headline", "<= 2s", ("", "<=", 2, "s", "headline <= 2s")),
        ("headline", "headline <= 300ms", ("", "<=", 0.3, "s", "headline <= 300ms")),
        ("cost_per_task", "cost_per_task <= 0.05", ("", "<=", 0.05, "USD", "cost_per_task <= 0.05")),
        ("cost_per_task", "<= 0.05", ("", "<=", 0.05, "USD", "cost_per_task <= 0.05")),
    ],
)
def test_a_limit_on_a_metric(metric, text, rest):
    statistic, op, limit, unit, label = rest
    assert parse_objective(metric, text) == Objective(metric, statistic, limit, op, label, unit)


@pytest.mark.parametrize(
    ("text", "within_s", "limit", "label"),
    [
        ("within(60s) >= 0.9", 60, 0.9, "task_time within(60s) >= 0.9"),
        ("within(60s) >= 90%", 60, 0.9, "task_time within(60s) >= 90%"),
        ("within(60s) >= 57 %", 60, 0.57, "task_time within(60s) >= 57%"),
        ("within( 500 ms ) <= 1", 0.5, 1, "task_time within(0.5s) <= 1"),
        ("within(60.0s) >= 100%", 60, 1, "task_time within(60s) >= 100%"),
    ],
)
def test_a_share_of_tasks_done_in_time(text, within_s, limit, label):
    parsed = parse_objective("task_time", text)
    assert (parsed.statistic, parsed.within_s, parsed.unit) == ("within", within_s, "")
    assert (parsed.limit, parsed.text) == (limit, label)


@pytest.mark.parametrize(
    ("text", "metric", "op", "limit"),
    [
        ("speedup_p50 >= 1.5", "speedup_p50", ">=", 1.5),
        ("speedup_p10 >= 1x", "speedup_p10", ">=", 1),
        ("ratio_p90 >= 2x", "ratio_p90", ">=", 2),
        ("cost_per_task <= 8x", "cost_per_task", "<=", 8),
        ("cost_per_task <= 8", "cost_per_task", "<=", 8),
    ],
)
def test_a_limit_beside_the_baseline(text, metric, op, limit):
    assert parse_comparison(text) == Objective(metric, "", limit, op, text, "x")


STATISTICS = "statistics: p50, p90, p95, p99"


@pytest.mark.parametrize(
    ("metric", "text", "told"),
    [
        ("task_time", "fast", 'no <= or >= in it; want such as "p50 <= 20s", got "fast"'),
        ("task_time", "", 'no <= or >= in it; want such as "p50 <= 20s", got ""'),
        ("gap", "p50", 'no <= or >= in it; want such as "p50 <= 20ms", got "p50"'),
        ("decode_tokens_per_s", "400", 'no <= or >= in it; want such as ">= 400", got "400"'),
        ("task_time", "p50 < 20s", 'want <= or >=, got "<" in "p50 < 20s"'),
        ("task_time", "p50 == 20s", 'want <= or >=, got "==" in "p50 == 20s"'),
        ("task_time", "p50 =< 20s", 'want <= or >=, got "=<" in "p50 =< 20s"'),
        ("task_time", "<= 20s", "no statistic in front; want one of p50, p90, p95, p99, within(T)"),
        ("ttft", "<= 20s", "no statistic in front; want one of p50, p90, p95, p99"),
        ("ttft", "median <= 20s", f'no statistic "median"; {STATISTICS}'),
        ("ttft", "P50 <= 20s", f'no statistic "P50"; did you mean "p50"? {STATISTICS}'),
        ("ttft", "within(60s) >= 0.9", f'no statistic "within(60s)"; {STATISTICS}'),
        (
            "task_time",
            "wihtin(T) >= 0.9",
            f'no statistic "wihtin(T)"; did you mean "within(T)"? {STATISTICS}, within(T)',
        ),
        (
            "task_time",
            "within(60) >= 0.9",
            'want a time with s or ms in it, such as within(60s); got "within(60)"',
        ),
        (
            "task_time",
            "within 60s >= 0.9",
            'want a time with s or ms in it, such as within(60s); got "within 60s"',
        ),
        ("task_time", "within(60s) >= 90", 'a share of tasks is at most 1 or 100%, got "90"'),
        ("task_time", "within(60s) >= 101%", 'a share of tasks is at most 1 or 100%, got "101%"'),
        ("task_time", "within(60s) >= 9s", 'no unit "s"; units: %'),
        ("task_time", "p50 <= 20", "no unit after 20; want s or ms"),
        ("gap", "p50 <= 20", "no unit after 20; want ms or s"),
        ("task_time", "p50 <= 20sec", 'no unit "sec"; units: s, ms'),
        ("task_time", "p50 <= 20mss", 'no unit "mss"; did you mean "ms"? units: s, ms'),
        ("task_time", "p50 <= 20%", 'no unit "%"; units: s, ms'),
        ("task_time", "p50 <= soon", 'want a number >= 0 after <=, such as 20s; got "soon"'),
        ("task_time", "p50 <= -1s", 'want a number >= 0 after <=, such as 20s; got "-1s"'),
        ("task_time", "p50 <= 1 s s", 'want a number >= 0 after <=, such as 20s; got "1 s s"'),
        ("task_time", "p50 <= 1.2.3s", 'want a number >= 0 after <=, such as 20s; got "1.2.3s"'),
        ("task_time", "p50 >=", 'want a number >= 0 after >=, such as 20s; got ""'),
        ("task_time", "p50 <= 1s <= 2s", 'want a number >= 0 after <=, such as 20s; got "1s <= 2s"'),
        ("task_time", f"p50 <= {'9' * 400}s", "the number after <= is too large"),
        ("events_per_token", ">= 80%", 'want a number alone, got "80%"'),
        ("decode_tokens_per_s", ">= 400tok", 'want a number alone (tokens/s), got "400tok"'),
        (
            "decode_tokens_per_s",
            "p50 >= 400",
            'no statistic "p50"; decode_tokens_per_s is one number, want >= 400',
        ),
        ("headline", "p50 <= 2s", 'no statistic "p50"; headline is one number, want <= 20s'),
        ("headline", "<= 90%", 'no unit "%"; units: s, ms'),
        ("cost_per_task", "<= 5ct", 'want a number alone (USD), got "5ct"'),
        (
            "cost_per_task",
            "<= 8x",
            "with x it compares with the baseline, want it in [compare]; here it is in USD",
        ),
    ],
)
def test_what_is_wrong_with_a_text(metric, text, told):
    with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
        parse_objective(metric, text)


COMPARISONS = "comparisons: speedup_p50, speedup_p10, speedup_p90, ratio_p50, ratio_p90, cost_per_task"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1.5x", 'no <= or >= in it; want such as "speedup_p50 >= 1.5", got "1.5x"'),
        ("speedup >= 1.5", f'no comparison "speedup"; did you mean "speedup_p90"? {COMPARISONS}'),
        ("task_time >= 1.5", f'no comparison "task_time"; {COMPARISONS}'),
        (">= 1.5", COMPARISONS.replace("comparisons:", "no comparison in front; want one of")),
        ("speedup_p50 >= 150%", 'no unit "%"; units: x'),
        ("speedup_p50 >= inf", 'want a number >= 0 after >=, such as 1.5x; got "inf"'),
    ],
)
def test_what_is_wrong_with_a_comparison(text, told):
    with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
        parse_comparison(text)


@pytest.mark.parametrize("metric", METRICS)
def test_examples_in_messages_are_right(metric):
    assert parse_objective(metric, METRICS[metric].example).metric == metric


def test_times_that_the_summary_must_hold():
    texts = ["within(90s) >= 0.9", "p50 <= 1s", "within(1500ms) >= 0.5", "within(90.0s) >= 0.1"]
    asked = [ObjectiveFor("b", None, parse_objective("task_time", text)) for text in texts]
    assert [str(limit) for limit in within_limits(asked)] == ["1.5", "90"]
