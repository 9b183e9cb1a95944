"""A Timeline becomes records; bounds, reads and counts are checked against hand-made ones."""

from array import array
from dataclasses import replace

import pytest

from harness.measure.calls import calls_of
from harness.measure.metrics.registry import METRICS
from harness.measure.timeline import CallFacts, records_of
from harness.records import CallOutcome, Phase, TokenSource
from harness.values import CallError, ErrorKind, Timeline
from tests.making import MS, a_timeline, an_answer, told

KEY = "a-key-nobody-may-see-4711"
FACTS = CallFacts(
    call_id="b/w/0/1",
    task_id="b/w/0",
    k=0,
    backend="b",
    workload="w",
    phase=Phase.MEASURE,
    turn=1,
    dialect="openai-chat",
    transport="keep-alive",
    scheduled_ns=100 * MS,
    tier_asked=None,
    output_asked=10,
    output_control="max_tokens",
    origin_ns=100 * MS,
)


def test_times_move_to_the_runs_axis_and_bounds_are_kept():
    answer = an_answer([[200 * MS, 1], [220 * MS, 3], [240 * MS, 2]], exact=[True, True, False])
    call, events = records_of(a_timeline(answer, sent_ns=110 * MS), FACTS, cut=False)
    assert (call.sent_ns, call.first_output_ns, call.last_output_ns) == (10 * MS, 100 * MS, 140 * MS)
    assert call.first_output_low_ns == 100 * MS  # alone in its read: exact
    assert call.last_output_low_ns == 120 * MS  # its read went on behind it: the read before
    assert events.reads == [1, 3, -2]
    assert call.shared_read_events == 5
    assert events.gaps_us == [0, 20_000, 0, 0, 20_000, 0]


def test_the_first_reads_lower_bound_is_the_send():
    answer = an_answer([[200 * MS, 2]])
    call, _ = records_of(a_timeline(answer, sent_ns=110 * MS), FACTS, cut=False)
    assert call.first_output_low_ns == 10 * MS


def test_gaps_are_differences_of_rounded_times_so_that_sums_do_not_drift():
    stamps = [100 * MS + i * 1333 for i in range(1, 3001)]
    answer = an_answer([[stamp, 1] for stamp in stamps])
    call, events = records_of(a_timeline(answer), FACTS, cut=False)
    assert call.first_output_ns is not None
    last_us = (call.first_output_ns + 500) // 1000 + sum(events.gaps_us)
    assert abs(last_us * 1000 - (stamps[-1] - 100 * MS)) <= 500


def test_m01_ttft_is_no_gap():
    answer = an_answer([[400 * MS, 1], [420 * MS, 1], [440 * MS, 1]])
    call, events = records_of(a_timeline(answer, sent_ns=100 * MS), FACTS, cut=False)
    assert call.first_output_ns == 300 * MS
    assert events.gaps_us[1:] == [20_000, 20_000]


def test_kinds_and_first_answer():
    answer = an_answer([[200 * MS, 1], [210 * MS, 1], [230 * MS, 1]], kinds="rrt")
    call, events = records_of(a_timeline(answer), FACTS, cut=False)
    assert call.first_output_ns == 100 * MS
    assert call.first_answer_ns == 130 * MS
    assert events.kinds == [("reasoning", 2), ("text", 1)]


def test_reasoning_only_has_no_first_answer():
    call, _ = records_of(a_timeline(an_answer([[200 * MS, 1]], kinds="r")), FACTS, cut=False)
    assert call.first_answer_ns is None


def test_tokens_an_event_are_kept_where_the_stream_tells_them():
    answer = an_answer([[200 * MS, 1], [210 * MS, 1]], tokens=array("q", [1, 3]), usage=told(4))
    call, events = records_of(a_timeline(answer), FACTS, cut=False)
    assert call.token_source is TokenSource.EVENTS
    assert events.tokens == [(1, 1), (3, 1)]
    assert call.first_event_tokens == 1


def test_unknown_tokens_are_null_not_zero():
    call, events = records_of(a_timeline(an_answer([[200 * MS, 2]])), FACTS, cut=False)
    assert call.output_tokens is None
    assert call.token_source is TokenSource.COUNTED
    assert events.tokens == [(None, 2)]


def test_hidden_reasoning_is_what_usage_names_and_no_event_carried():
    answer = an_answer([[200 * MS, 1], [300 * MS, 1]], usage=told(12, reasoning=10))
    call, _ = records_of(a_timeline(answer), FACTS, cut=False)
    assert call.hidden_tokens == 10


@pytest.mark.parametrize("first", [845, 2], ids=["totals with hidden tokens", "without them"])
def test_the_formula_for_tpot_holds_for_what_the_files_say(first):
    answer = an_answer(
        [[200 * MS, 1], [210 * MS, 1], [230 * MS, 1]],
        tokens=array("q", [first, 2, 3]),
        usage=told(850, reasoning=843),
    )
    call, events = records_of(a_timeline(answer), FACTS, cut=False)
    assert (call.hidden_tokens, call.first_event_tokens, call.token_source) == (843, 2, TokenSource.EVENTS)
    assert events.tokens == [(2, 2), (3, 1)]
    streamed = call.output_tokens - call.hidden_tokens
    assert METRICS["tpot_ms"].value(calls_of([call])) == 30 * MS / (streamed - call.first_event_tokens)
    assert streamed == sum(count * n for count, n in events.tokens)


def test_tokens_that_came_behind_the_last_event_are_no_part_of_tpot():
    """The closing signs of a tool call come in no event: llama.cpp's parser holds them back."""
    answer = an_answer(
        [[200 * MS, 1], [350 * MS, 1], [600 * MS, 1]], tokens=array("q", [18, 7, 13]), usage=told(44)
    )
    call, _ = records_of(a_timeline(answer), FACTS, cut=False)
    assert (call.first_event_tokens, call.tokens_after_last) == (18, 6)
    assert METRICS["tpot_ms"].value(calls_of([call])) == 400 * MS / (44 - 18 - 6)


def test_no_output_at_all():
    call, events = records_of(a_timeline(an_answer([])), FACTS, cut=False)
    assert call.first_output_ns is None
    assert call.last_output_low_ns is None
    assert (events.gaps_us, events.reads, events.kinds) == ([], [], [])


@pytest.mark.parametrize(
    ("transport", "said", "kind"),
    [
        pytest.param(
            ErrorKind.RESET, ErrorKind.STREAM_ERROR, ErrorKind.STREAM_ERROR, id="the server's words"
        ),
        pytest.param(ErrorKind.RESET, ErrorKind.TRUNCATED, ErrorKind.RESET, id="the transport's end"),
        pytest.param(None, ErrorKind.MALFORMED_EVENT, ErrorKind.MALFORMED_EVENT, id="the decoder's"),
    ],
)
def test_one_failure_is_named(transport, said, kind):
    answer = an_answer([[200 * MS, 1]], error=CallError(said, "said"))
    error = None if transport is None else CallError(transport, "transport")
    call, _ = records_of(a_timeline(answer, error=error), FACTS, cut=False)
    assert call.outcome is CallOutcome.FAILED
    assert call.error is not None
    assert call.error.kind is kind


def test_a_cut_call_has_no_error_of_its_own():
    answer = an_answer([[200 * MS, 1]], error=CallError(ErrorKind.TRUNCATED, "said"))
    call, _ = records_of(a_timeline(answer), FACTS, cut=True)
    assert call.outcome is CallOutcome.CUT
    assert call.error is None


def test_a_cancelled_call_tells_what_came_after():
    answer = an_answer([[200 * MS, 1], [220 * MS, 2], [240 * MS, 1]])
    stopped = a_timeline(answer, cancelled_ns=210 * MS, last_byte_ns=245 * MS)
    call, _ = records_of(stopped, FACTS, cut=False, cancelled=True)
    assert (call.outcome, call.error) == (CallOutcome.CANCELLED, None)
    assert (call.cancelled_ns, call.after_cancel_ns) == (110 * MS, 35 * MS)
    assert (call.after_cancel_events, call.after_cancel_tokens) == (3, None)
    silent = replace(stopped, last_byte_ns=200 * MS, cancelled_ns=250 * MS)
    call, _ = records_of(silent, FACTS, cut=False, cancelled=True)
    assert (call.after_cancel_ns, call.after_cancel_events) == (0, 0)
    call, _ = records_of(silent, FACTS, cut=True)
    assert (call.outcome, call.cancelled_ns, call.after_cancel_ns) == (CallOutcome.CUT, None, None)


def test_tokens_that_came_after_a_cancel_are_counted_where_they_were_told():
    answer = replace(an_answer([[200 * MS, 1], [220 * MS, 2]]), tokens=array("q", [1, 4, 3]))
    call, _ = records_of(a_timeline(answer, cancelled_ns=210 * MS), FACTS, cut=False, cancelled=True)
    assert call.after_cancel_tokens == 7


OPENING = {"dns_ns": 1 * MS, "connect_ns": 2 * MS, "tls_ns": 4 * MS, "upgrade_ns": 8 * MS}


@pytest.mark.parametrize(
    ("marks", "rtt_s", "network_ns"),
    [
        pytest.param({"round_trip_ns": MS}, None, MS, id="open, by the kernel"),
        pytest.param({**OPENING, "round_trip_ns": MS}, None, 16 * MS, id="opened"),
        pytest.param({"connection": "reused", "round_trip_ns": MS}, 0.08, 80 * MS, id="as the server tells"),
        pytest.param(
            {"connection": "new", "connect_ns": MS}, 0.08, 160 * MS, id="connecting took a round trip, too"
        ),
        pytest.param({"connection": "new", "tls_ns": 170 * MS}, 0.08, 250 * MS, id="more, as was seen"),
    ],
)
def test_network_is_opening_a_connection_and_one_round_trip(marks, rtt_s, network_ns):
    answer = an_answer([[200 * MS, 1]])
    if rtt_s is not None:
        answer = replace(answer, server_timing={"rtt_s": rtt_s})
    call, _ = records_of(a_timeline(answer, **marks), FACTS, cut=False)
    assert call.network_ns == network_ns
    assert call.tls_ns == marks.get("tls_ns", 0)


def test_nothing_that_a_server_says_brings_the_key_or_controls_into_a_record():
    said = "\x1b[2J" + KEY + "\u202e\udc80" + "x" * 500
    answer = an_answer(
        [[200 * MS, 1]],
        tier_served=said,
        finish_reason=said,
        request_id=said,
        error=CallError(ErrorKind.STREAM_ERROR, said),
    )
    call, _ = records_of(a_timeline(answer), FACTS, cut=False, key=KEY)
    for text in (call.tier_served, call.finish_reason, call.request_id, call.error.message):
        assert text.startswith("\\x1b[2J…\\u202e?xxx")
        assert len(text) in (64, 200)
    assert KEY not in repr(call)


def test_a_header_s_request_id_is_cleaned_too():
    call, _ = records_of(a_timeline(an_answer([]), request_id=f"\udcff{KEY}"), FACTS, cut=False, key=KEY)
    assert call.request_id == "?…"


def test_what_is_our_own_stays_though_the_key_is_like_it():
    facts = replace(FACTS, call_id="standard/" + "w" * 99)
    call, events = records_of(a_timeline(an_answer([])), facts, cut=False, key="standard")
    assert call.call_id == events.call_id == facts.call_id


def test_warnings_of_the_exchange_and_of_the_answer_are_kept():
    answer = an_answer([], warnings=("no_usage",))
    call, _ = records_of(a_timeline(answer, warnings=("compressed",)), FACTS, cut=False)
    assert call.warnings == ("compressed", "no_usage")


# --- attempts and limits ---------------------------------------------------------------------------


def l16():
    """429 after 10 ms with Retry-After: 3, then an answer whose first token comes after 200 ms."""
    refused = CallError(ErrorKind.HTTP_ERROR, f"HTTP 429: slow down, {KEY}")
    start = FACTS.scheduled_ns
    first = Timeline(start, start + 10 * MS, status=429, error=refused, limits_told={"retry-after-s": 3.0})
    sent = start + 3010 * MS
    answer = an_answer([[sent + 200 * MS, 1], [sent + 300 * MS, 1]], usage=told(2))
    return a_timeline(answer, sent_ns=sent, earlier=(first,), limits_told={"remaining-requests": 9.0})


def test_l16_attempts_the_last_ones_ttft_and_the_users_are_three_things():
    call, _ = records_of(l16(), FACTS, cut=False, key=KEY)
    assert [(one["sent_ns"], one["done_ns"], one["status"]) for one in call.attempts] == [
        (0, 10 * MS, 429),
        (3010 * MS, 3310 * MS, 200),
    ]
    assert call.attempts[0]["error"]["kind"] == "http_error"
    assert KEY not in str(call.attempts)
    assert call.attempts[1]["error"] is None
    columns = calls_of([call])
    assert METRICS["ttft_s"].value(columns)[0] == 200 * MS
    assert METRICS["user_ttft_s"].value(columns)[0] == 3210 * MS
    assert call.sent_ns == call.attempts[1]["sent_ns"]
    assert call.limits_told == {"remaining-requests": 9.0}


def test_a_call_with_one_attempt_lists_none_and_waits_of_all_attempts_add_up():
    alone, _ = records_of(a_timeline(an_answer([[200 * MS, 1]]), limit_wait_ns=5), FACTS, cut=False)
    assert (alone.attempts, alone.limit_wait_ns, alone.limits_told) == ([], 5, None)
    timeline = l16()
    waited = replace(timeline, limit_wait_ns=7, earlier=(replace(timeline.earlier[0], limit_wait_ns=4),))
    call, _ = records_of(waited, FACTS, cut=False)
    assert call.limit_wait_ns == 11
    assert [one["limit_wait_ns"] for one in call.attempts] == [4, 7]


def test_throttled_attempts_are_counted():
    call, _ = records_of(l16(), FACTS, cut=False)
    refused, _ = records_of(replace(l16().earlier[0]), FACTS, cut=False)
    served, _ = records_of(a_timeline(an_answer([[200 * MS, 1]])), FACTS, cut=False)
    columns = calls_of([call, refused, served])
    assert columns.throttled.tolist() == [1, 1, 0]
    assert columns.attempts.tolist() == [2, 1, 1]


@pytest.mark.parametrize("upgraded", [None, 101])
def test_an_error_over_websocket_has_the_status_that_it_names(upgraded):
    refused = CallError(ErrorKind.STREAM_ERROR, "slow down")
    answer = an_answer([], error=refused, error_status=429)
    call, _ = records_of(a_timeline(answer, status=upgraded), FACTS, cut=False)
    assert (call.status, call.outcome) == (429, CallOutcome.FAILED)
    assert calls_of([call]).throttled.tolist() == [1]
    over_http, _ = records_of(a_timeline(answer, status=200), FACTS, cut=False)
    assert over_http.status == 200
    well, _ = records_of(a_timeline(an_answer([]), status=upgraded), FACTS, cut=False)
    assert well.status == upgraded
