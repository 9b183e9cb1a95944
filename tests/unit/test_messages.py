"""Dialect anthropic: what its events mean, and servers' oddities that no recorded case holds."""

import orjson
import pytest

from harness.values import CallError, Progress, ToolCall, Usage
from harness.wire import DIALECTS
from tests import decoding
from tests.decoding import bare, kinds, named

STOP = named("message_stop")


def answer(*pieces, **how):
    return decoding.answer("anthropic", *pieces, **how)


def start(**usage):
    return named("message_start", message={"id": "m1", "content": [], "stop_reason": None, "usage": usage})


def begins(kind, index=0, **fields):
    return named("content_block_start", index=index, content_block={"type": kind, **fields})


def delta(kind, index=0, **fields):
    return named("content_block_delta", index=index, delta={"type": kind, **fields})


def text(said):
    return delta("text_delta", text=said)


def arguments(said, index=0):
    return delta("input_json_delta", index, partial_json=said)


def block_stops(index=0):
    return named("content_block_stop", index=index)


def ends(reason="end_turn", **usage):
    return named("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage) + STOP


# --- what an event carries -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("piece", "said", "found"),
    [
        pytest.param(text("a"), ("a", ""), ["text"], id="text"),
        pytest.param(text(""), ("", ""), [], id="empty"),
        pytest.param(delta("thinking_delta", thinking="r"), ("", "r"), ["reasoning"], id="thinking"),
        pytest.param(delta("thinking_delta", thinking=""), ("", ""), [], id="no-thinking"),
        pytest.param(delta("signature_delta", signature="x"), ("", ""), [], id="signature"),
        pytest.param(delta("citations_delta", citation={"cited_text": "x"}), ("", ""), [], id="citation"),
        pytest.param(delta("text_delta", text=5), ("", ""), [], id="no-text"),
        pytest.param(named("content_block_delta", delta="a"), ("", ""), [], id="no-delta"),
        pytest.param(begins("text", text=""), ("", ""), [], id="block-begins"),
        pytest.param(begins("text", text="a"), ("a", ""), ["text"], id="block-begins-with-text"),
        pytest.param(begins("thinking", thinking="r"), ("", "r"), ["reasoning"], id="with-thinking"),
        pytest.param(begins("redacted_thinking", data="x"), ("", ""), [], id="redacted"),
        pytest.param(begins("web_search_tool_result", content=[{"title": "x"}]), ("", ""), [], id="result"),
        pytest.param(named("ping"), ("", ""), [], id="ping"),
        pytest.param(named("content_block_pause", index=0), ("", ""), [], id="unknown"),
        pytest.param(bare("content_block_delta", delta={"text": "a"}), ("a", ""), ["text"], id="bare"),
        pytest.param(
            b'event: content_block_delta\ndata: {"delta":{"text":"a"}}\n\n',
            ("a", ""),
            ["text"],
            id="name-only",
        ),
        pytest.param(b'data: {"type":{},"delta":{"text":"a"}}\n\n', ("", ""), [], id="odd-type"),
    ],
)
def test_what_an_event_carries(piece, said, found):
    told = answer(piece, ends())
    assert ((told.text, told.reasoning), kinds(told), told.error) == (said, found, None)


def test_thinking_counts_as_reasoning_that_came():
    assert answer(delta("thinking_delta", thinking="r"), ends()).reasoning_summary is False


# --- tool calls ----------------------------------------------------------------------------------


def test_a_tool_call_in_pieces():
    told = answer(
        begins("text"),
        text("Look"),
        begins("tool_use", 1, id="t1", name="read", input={}),
        arguments("", 1),
        arguments('{"a":', 1),
        arguments("1}", 1),
        block_stops(1),
        ends("tool_use"),
    )
    assert (told.tool_calls, told.finish_reason) == ((ToolCall("t1", "read", '{"a":1}'),), "tool_use")
    assert (kinds(told), told.first_tool) == (["text", "tool", "tool", "tool"], 1)


def test_calls_side_by_side():
    told = answer(
        begins("tool_use", 1, id="t1", name="read"),
        begins("tool_use", 2, id="t2", name="find"),
        arguments('{"b":2}', 2),
        arguments('{"a":1}', 1),
        ends(),
    )
    assert told.tool_calls == (ToolCall("t1", "read", '{"a":1}'), ToolCall("t2", "find", '{"b":2}'))


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        pytest.param([block_stops()], '{"a":1}', id="whole-at-its-beginning"),
        pytest.param([arguments('{"b":2}'), block_stops()], '{"b":2}', id="and-in-pieces"),
        pytest.param([arguments(""), block_stops()], '{"a":1}', id="an-empty-piece"),
    ],
)
def test_an_input_that_comes_with_the_beginning_of_its_block(pieces, said):
    told = answer(begins("tool_use", id="t", name="f", input={"a": 1}), *pieces, ends())
    assert told.tool_calls == (ToolCall("t", "f", said),)
    assert list(told.high_ns) == [1, *([2] if "b" in said else [])]


def test_a_call_without_arguments_keeps_none():
    told = answer(begins("tool_use", id="t", name="f", input={}), arguments(""), block_stops(), ends())
    assert (told.tool_calls, kinds(told)) == ((ToolCall("t", "f", ""),), ["tool"])


def test_tools_that_the_server_runs_are_output_but_no_calls():
    told = answer(
        begins("server_tool_use", 0, id="s", name="web_search", input={}),
        arguments('{"query":"x"}', 0),
        block_stops(0),
        begins("tool_use", 1, id="t", name="f"),
        arguments("{}", 1),
        ends(),
    )
    assert (kinds(told), told.tool_calls) == (["tool"] * 4, (ToolCall("t", "f", "{}"),))


# --- usage and tiers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "usage"),
    [
        pytest.param(
            {"input_tokens": 9, "output_tokens": 1}, {"output_tokens": 15}, Usage(9, 15), id="running"
        ),
        pytest.param(
            {"input_tokens": 5, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100},
            {"output_tokens": 15, "output_tokens_details": {"thinking_tokens": 4}},
            Usage(125, 15, 100, 4),
            id="input-is-all-of-it",
        ),
        pytest.param(
            {"input_tokens": 9, "output_tokens": 1},
            {"input_tokens": 12, "cache_read_input_tokens": 3, "output_tokens": 15},
            Usage(15, 15, 3),
            id="the-end-knows-better",
        ),
        pytest.param(
            {"input_tokens": 9, "cache_read_input_tokens": 3},
            {"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 2},
            Usage(12, 2, 3),
            id="null-takes-nothing-back",
        ),
        pytest.param({}, {"output_tokens": 2}, Usage(None, 2), id="only-output"),
        pytest.param({"cache_read_input_tokens": 3}, {}, Usage(None, None, 3), id="only-cache"),
    ],
)
def test_usage(first, last, usage):
    told = answer(start(**first), text("a"), ends(**last))
    assert (told.usage, told.warnings) == (usage, ())


@pytest.mark.parametrize("odd", [-1, "9", 10**10, [9]])
def test_input_with_a_part_that_cannot_be_true_is_unknown(odd):
    told = answer(start(input_tokens=9, cache_creation_input_tokens=odd), text("a"), ends(output_tokens=2))
    assert told.usage == Usage(None, 2)
    assert "implausible_usage" in told.warnings


@pytest.mark.parametrize(
    ("first", "last", "tier"),
    [
        ({"service_tier": "standard", "speed": "fast"}, {}, "fast"),
        ({"service_tier": "priority", "speed": "standard"}, {}, "standard"),
        ({"service_tier": "priority"}, {}, "standard"),
        ({"service_tier": "standard"}, {}, "standard"),
        ({"speed": "standard"}, {}, "standard"),
        ({"speed": "fast"}, {"speed": "standard"}, "standard"),
        ({}, {}, None),
        ({"service_tier": 5, "speed": []}, {}, None),
    ],
)
def test_the_tier_that_served(first, last, tier):
    assert answer(start(**first), text("a"), ends(**last)).tier_served == tier


# --- the end, and errors -------------------------------------------------------------------------


def test_the_message_ends_with_its_own_event():
    decoder = DIALECTS["anthropic"].decoder()
    assert decoder.feed(start() + text("a"), 1) is Progress.OUTPUT
    assert decoder.feed(ends("max_tokens").removesuffix(STOP), 2) is Progress.SILENT
    assert decoder.feed(STOP, 3) is Progress.DONE
    told = decoder.answer(ended=True)
    assert (told.finish_reason, told.done_ns, told.request_id) == ("max_tokens", 3, "m1")


def test_a_reason_to_stop_without_the_last_event_is_an_end_too():
    told = answer(text("a"), ends("end_turn").removesuffix(STOP))
    assert (told.error, told.done_ns) == (None, None)


def test_without_any_end_it_is_truncated():
    assert answer(start(), text("a")).error.kind == "truncated"


OVERLOADED = {"error": {"type": "overloaded_error", "message": "Overloaded"}}


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(named("error", **OVERLOADED), id="named"),
        pytest.param(bare("error", **OVERLOADED), id="bare"),
        pytest.param(b"data: " + orjson.dumps(OVERLOADED) + b"\n\n", id="without-type"),
        pytest.param(b"event: error\ndata: Overloaded\n\n", id="no-json"),
    ],
)
def test_errors_amid_the_stream(piece):
    told = answer(text("a"), piece)
    assert told.error == CallError("stream_error", "Overloaded")
    assert (told.text, told.done_ns) == ("a", None)


def test_an_error_without_a_word_is_one():
    assert answer(bare("error")).error.message == "the server sent an error without a message"


def test_an_answer_at_once_keeps_all_but_its_times():
    body = {
        "id": "m",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "x"},
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 9, "cache_read_input_tokens": 1, "output_tokens": 8, "speed": "fast"},
    }
    told = DIALECTS["anthropic"].unstreamed(status=200, content_type=None, body=orjson.dumps(body))
    assert (told.text, told.reasoning, told.tool_calls) == ("Hi", "hm", (ToolCall("t", "f", '{"a":1}'),))
    assert (told.finish_reason, told.usage, told.tier_served) == ("tool_use", Usage(10, 8, 1), "fast")
    assert (len(told.high_ns), told.error.kind) == (0, "not_streamed")


def test_a_refused_message_is_told_in_the_servers_words():
    body = orjson.dumps({"type": "error", **OVERLOADED})
    told = DIALECTS["anthropic"].unstreamed(status=529, content_type=None, body=body)
    assert told.error == CallError("http_error", "HTTP 529: Overloaded")
