"""The keys of records and summary are those of the contract; a lost or renamed key fails here."""

from dataclasses import fields

import orjson
import pytest

from harness import records, results, values

CALLS = """call_id task_id k backend workload phase turn depth parent_call_id dialect transport
connection clock scheduled_ns sent_ns headers_ns first_output_ns first_answer_ns last_output_ns
done_ns first_output_low_ns first_answer_low_ns last_output_low_ns shared_read_events input_tokens
cached_tokens output_tokens reasoning_tokens hidden_tokens token_source outcome status error attempts
limit_wait_ns tier_asked tier_served finish_reason cancelled_ns request_id server_timing schema"""
TASKS = """task_id k backend workload preset session phase seed scheduled_ns started_ns ended_ns
human_ns outcome reason turns calls tools breakdown breakdown_unknown cost_usd plan_mismatch schema"""
EVENTS = "call_id gaps_us kinds tokens reads schema"


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        pytest.param(records.CallRecord, CALLS, id="calls"),
        pytest.param(records.TaskRecord, TASKS, id="tasks"),
        pytest.param(records.EventsRecord, EVENTS, id="events"),
        pytest.param(records.ToolRecord, "name started_ns ended_ns", id="tools"),
        pytest.param(results.Summary, "backends meter findings verdict", id="summary"),
        pytest.param(
            results.WorkloadSummary,
            "tasks calls task_time ttft_s ttfo_s gap_ms tpot_ms decode_tokens_per_s headline extra tokens"
            " breakdown cost tier",
            id="workload",
        ),
        pytest.param(
            results.TaskCounts,
            "scheduled dropped completed failed timeout abandoned cut lost",
            id="counts",
        ),
        pytest.param(results.TaskTime, "p50_s p90_s p95_s p99_s within", id="task_time"),
        pytest.param(results.TokenTotals, "input cached output reasoning wasted source", id="tokens"),
        pytest.param(
            results.MeterSummary,
            "clock certified loop_lag_p99_ms start_lag_p99_ms shared_read_share cpu_share bound_p99_us",
            id="meter",
        ),
        pytest.param(
            results.Certificate,
            "made key streams events_per_s events exact_share error_p50_us error_p99_us missed schema",
            id="certificate",
        ),
        pytest.param(results.Finding, "name backend workload detail", id="finding"),
        pytest.param(results.VerdictRecord, "verdict policy reasons objectives", id="verdict"),
        pytest.param(results.Estimate, "value low high n reason", id="estimate"),
    ],
)
def test_keys_of_the_contract_are_there(kind, keys):
    assert set(keys.split()) <= {field.name for field in fields(kind)}


def test_words_of_the_contract():
    assert [str(o) for o in records.CallOutcome] == ["ok", "failed", "cancelled", "cut"]
    assert [str(o) for o in records.TaskOutcome] == [
        "completed",
        "failed",
        "timeout",
        "abandoned",
        "cut",
    ]
    assert [str(p) for p in records.Phase] == ["warm-up", "measure", "drain", "tail"]
    assert [str(v) for v in results.Verdict] == ["PASS", "FAIL", "INCONCLUSIVE", "INVALID", "NONE"]


def test_an_estimate_without_value_needs_a_reason():
    with pytest.raises(ValueError, match="a value or a reason"):
        results.Estimate(value=None)
    with pytest.raises(ValueError, match="a value or a reason"):
        results.Estimate(value=1.0, reason=results.Reason.TOO_FEW)


def test_an_estimate_is_written_with_its_keys():
    written = orjson.loads(orjson.dumps(results.Estimate(value=None, reason=results.Reason.HIDDEN)))
    assert written == {"value": None, "low": None, "high": None, "n": 0, "reason": "hidden", "needed": None}


def test_values_cannot_be_changed_once_made():
    block = values.Block(id="b", tokens=3, role=values.Role.USER)
    with pytest.raises(AttributeError):
        block.tokens = 4  # type: ignore[misc]
