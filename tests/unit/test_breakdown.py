"""Shares of the task time along the critical path; every expected number is counted by hand."""

import pytest

from harness.measure.breakdown import PARTS, breakdown, call_piece, unknown_parts, waiting
from tests.making import S, a_call


def shares(pieces, *, scheduled=0, ended):
    found = breakdown(pieces, scheduled_ns=scheduled * S, ended_ns=ended * S)
    assert sum(found.values()) == pytest.approx(1)
    assert set(found) == set(PARTS)
    return {part: share for part, share in found.items() if share}


def call(sent, first, last, **said):
    return call_piece(
        a_call(sent_ns=sent * S, first_output_ns=first * S, last_output_ns=last * S, done_ns=last * S, **said)
    )


def test_one_call_is_ttft_and_decode():
    assert shares([call(0, 1, 4)], ended=4) == {"ttft": 0.25, "decode": 0.75}


def test_hidden_reasoning_is_told_apart_from_ttft_by_the_calls_own_speed():
    # 11 streamed tokens in 1 s: 10 gaps, TPOT 0.1 s; 20 hidden tokens: 2 s of the 3 s before output
    piece = call(0, 3, 4, output_tokens=31, reasoning_tokens=20, hidden_tokens=20)
    assert shares([piece], ended=4) == {"ttft": 0.25, "reasoning": 0.5, "decode": 0.25}


def test_hidden_reasoning_never_exceeds_what_ttft_leaves_of_it():
    piece = call(0, 1, 2, output_tokens=1011, reasoning_tokens=1000, hidden_tokens=1000, network_ns=S // 4)
    assert shares([piece], ended=2) == {"network": 0.125, "reasoning": 0.375, "decode": 0.5}


def test_tokens_that_the_first_event_held_back_are_decode():
    # 6 of 11 tokens came in the first event: 5 gaps in 1 s, TPOT 0.2 s; its first token came 1 s before it
    assert shares([call(0, 3, 4, first_event_tokens=6)], ended=4) == {"ttft": 0.5, "decode": 0.5}
    assert shares([call(0, 3, 4, first_event_tokens=1)], ended=4) == {"ttft": 0.75, "decode": 0.25}


def test_what_the_first_event_held_back_never_exceeds_what_ttft_leaves_of_it():
    assert shares([call(0, 1, 4, first_event_tokens=9, network_ns=S)], ended=4) == {
        "network": 0.25,
        "decode": 0.75,
    }


def test_network_is_capped_by_ttft():
    assert shares([call(0, 1, 2, network_ns=5 * S)], ended=2) == {"network": 0.5, "decode": 0.5}


@pytest.mark.parametrize(
    ("timing", "parts"),
    [
        pytest.param({"queue_s": 1.5, "total_s": 9.0}, {"queue": 0.375, "ttft": 0.375}, id="told"),
        pytest.param({"queue_s": 0.0}, {"ttft": 0.75}, id="no-queue"),
        pytest.param({"queue_s": 60.0}, {"queue": 0.75}, id="longer-than-ttft"),
        pytest.param({"prompt_s": 1.0}, {"ttft": 0.75}, id="not-told"),
        pytest.param(None, {"ttft": 0.75}, id="nothing-told"),
    ],
)
def test_the_queue_is_what_the_server_tells_within_ttft(timing, parts):
    assert shares([call(0, 3, 4, server_timing=timing)], ended=4) == {**parts, "decode": 0.25}


def test_network_goes_before_the_queue_and_hidden_reasoning_behind_it():
    # 3 s to the first output: 1 s on the way, 1.5 s in the queue, so 0.5 s are left of 2 s of reasoning
    said = {"output_tokens": 31, "reasoning_tokens": 20, "hidden_tokens": 20, "network_ns": S}
    piece = call(0, 3, 4, server_timing={"queue_s": 1.5}, **said)
    assert piece.parts[-5:] == (
        ("network", S),
        ("queue", 3 * S // 2),
        ("ttft", 0),
        ("reasoning", S // 2),
        ("decode", S),
    )


def test_the_queue_is_known_where_every_call_told_it():
    told, silent = a_call(server_timing={"queue_s": 0.0}), a_call(server_timing={"total_s": 1.0})
    assert unknown_parts([told, told]) == []
    assert unknown_parts([told, silent]) == unknown_parts([a_call()]) == ["queue"]


def test_a_call_without_output_is_all_ttft():
    piece = call_piece(a_call(first_output_ns=None, last_output_ns=None, done_ns=3 * S))
    assert shares([piece], ended=3) == {"ttft": 1.0}


def test_what_no_piece_covers_is_the_harness():
    # scheduled 0, sent 1, done 4; next sent 5 (1 s late), done 9; ended 10
    pieces = [call(1, 2, 4), call(5, 6, 9)]
    assert shares(pieces, ended=10) == {"client": 0.3, "ttft": 0.2, "decode": 0.5}


def test_parallel_tools_count_once_by_the_one_that_ends_last():
    pieces = [
        call(0, 1, 2),
        waiting("tool", 2 * S, 5 * S),
        waiting("tool", 2 * S, 8 * S),
        call(8, 9, 10),
    ]
    assert shares(pieces, ended=10) == {"ttft": 0.2, "decode": 0.2, "tool": 0.6}


def test_m26_parallel_calls_are_not_summed():
    # calls [0-4 s], then [4-9 s] and [4-8 s] side by side: the task took 9 s
    pieces = [call(0, 1, 4), call(4, 5, 9), call(4, 7, 8)]
    assert shares(pieces, ended=9) == {"ttft": pytest.approx(2 / 9), "decode": pytest.approx(7 / 9)}


def test_pieces_beyond_the_end_are_clipped():
    pieces = [call(0, 1, 2), waiting("tool", 2 * S, 20 * S)]
    assert shares(pieces, ended=4) == {"ttft": 0.25, "decode": 0.25, "tool": 0.5}


def test_human_time_stands_outside():
    pieces = [call(0, 1, 2), waiting("human", 2 * S, 10 * S), call(10, 11, 12)]
    assert shares(pieces, ended=12) == {"ttft": 0.5, "decode": 0.5}


def test_a_task_of_no_length_is_the_harness():
    assert breakdown([], scheduled_ns=5, ended_ns=5)["client"] == 1


def test_waits_for_the_own_caps_are_limit():
    # wanted at 0, let through at 2, output from 3 to 4
    assert shares([call(2, 3, 4, limit_wait_ns=2 * S)], ended=4) == {
        "limit": 0.5,
        "ttft": 0.25,
        "decode": 0.25,
    }


def test_from_the_first_attempt_to_the_last_is_retry():
    attempts = [
        {"sent_ns": 0, "done_ns": S, "status": 429, "error": None, "limit_wait_ns": 0},
        {"sent_ns": 6 * S, "done_ns": 10 * S, "status": 200, "error": None, "limit_wait_ns": 0},
    ]
    assert shares([call(6, 8, 10, attempts=attempts)], ended=10) == {"retry": 0.6, "ttft": 0.2, "decode": 0.2}


def test_limit_is_all_that_was_waited_for_the_own_caps_between_attempts_too():
    attempts = [
        {"sent_ns": 1 * S, "done_ns": 2 * S, "status": 429, "error": None, "limit_wait_ns": S},
        {"sent_ns": 5 * S, "done_ns": 6 * S, "status": 503, "error": None, "limit_wait_ns": S},
        {"sent_ns": 8 * S, "done_ns": 10 * S, "status": 200, "error": None, "limit_wait_ns": 2 * S},
    ]
    found = shares([call(8, 9, 10, attempts=attempts, limit_wait_ns=4 * S)], ended=10)
    assert found == pytest.approx({"limit": 0.4, "retry": 0.4, "ttft": 0.1, "decode": 0.1})
