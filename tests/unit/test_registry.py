"""Every metric of the registry has a golden value made by hand, a unit, help and a source."""

from dataclasses import replace

import numpy as np
import pytest

from harness.measure.calls import calls_of
from harness.measure.metrics.registry import METRICS, Unit
from tests.making import MS, S, a_call, a_task

CALL = a_call(
    sent_ns=1 * S,
    first_output_low_ns=1 * S + 200 * MS,
    first_output_ns=1 * S + 250 * MS,
    first_answer_low_ns=1 * S + 700 * MS,
    first_answer_ns=1 * S + 750 * MS,
    last_output_low_ns=2 * S + 150 * MS,
    last_output_ns=2 * S + 250 * MS,
    done_ns=2 * S + 500 * MS,
    output_tokens=31,
    hidden_tokens=10,
    reasoning_tokens=10,
    streamed_events=7,
)
TASK = a_task(scheduled_ns=2 * S, started_ns=2 * S + 7 * MS, ended_ns=12 * S, human_ns=4 * S)

GOLDEN = {
    "task_time_s": (TASK, 6.0),
    "start_lag_ms": (TASK, 7.0),
    "ttft_s": (CALL, 0.25),
    "user_ttft_s": (replace(CALL, attempts=[{"sent_ns": S // 2, "done_ns": S}, {"sent_ns": S}]), 0.75),
    "ttfo_s": (CALL, 0.75),
    "last_output_s": (CALL, 1.25),
    "call_time_s": (CALL, 1.5),
    "tpot_ms": (CALL, 50.0),  # 1 s over 21 streamed tokens but the first one
    "decode_tokens_per_s": (CALL, 20.0),
    "events_per_token": (CALL, 7 / 21),
}
LOW = {
    "ttft_s": 0.2,
    "ttfo_s": 0.7,
    "last_output_s": 1.15,
    "tpot_ms": 45.0,
}  # 0.9 s from the latest first to the earliest last


def test_every_metric_of_a_record_has_a_golden_value():
    assert set(GOLDEN) == {name for name, metric in METRICS.items() if metric.of is not Unit.GAP}
    assert set(LOW) == {name for name, metric in METRICS.items() if metric.low is not None}


@pytest.mark.parametrize("name", GOLDEN)
def test_value_by_hand(name):
    record, expected = GOLDEN[name]
    of = record if METRICS[name].of is Unit.TASK else calls_of([record])
    assert METRICS[name].value(of) * METRICS[name].scale == pytest.approx(expected)


@pytest.mark.parametrize("name", LOW)
def test_lower_bound_by_hand(name):
    assert METRICS[name].low(calls_of([CALL])) * METRICS[name].scale == pytest.approx(LOW[name])


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_says_what_it_is(name):
    metric = METRICS[name]
    assert metric.name == name
    assert metric.help
    assert metric.source
    assert metric.unit
    assert metric.better in ("lower", "higher")


def test_what_a_record_does_not_tell_is_unknown():
    silent = calls_of(
        [
            a_call(
                first_output_ns=None,
                first_output_low_ns=None,
                first_answer_ns=None,
                first_answer_low_ns=None,
                last_output_ns=None,
                last_output_low_ns=None,
                output_tokens=None,
                streamed_events=0,
            )
        ]
    )
    for name, metric in METRICS.items():
        if metric.of is Unit.CALL and name != "call_time_s":
            assert np.isnan(metric.value(silent)).all()
            assert metric.low is None or np.isnan(metric.low(silent)).all()
