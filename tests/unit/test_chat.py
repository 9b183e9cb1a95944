"""Dialect openai-chat: what servers' oddities mean that no recorded case holds."""

from array import array

import orjson
import pytest

from harness.values import EventKind, Progress, ToolCall, Usage
from harness.wire import DIALECTS, sse

DONE = b"data: [DONE]\n\n"


def event(**fields):
    return b"data: " + orjson.dumps(fields) + b"\n\n"


def delta(finish_reason=None, index=0, usage=None, timings=None, **fields):
    choice = {"index": index, "delta": fields, "finish_reason": finish_reason}
    told = {"usage": usage, "timings": timings}
    return event(id="c", choices=[choice], **{name: value for name, value in told.items() if value})


def tool(**fields):
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return {**fields, "function": function}


def answer(*pieces, ended=True):
    decoder = DIALECTS["openai-chat"].decoder()
    for at, piece in enumerate(pieces, start=1):
        decoder.feed(piece, at)
    return decoder.answer(ended=ended)


def kinds(told):
    return [tuple(EventKind)[kind] for kind in told.kinds]


def finished(*pieces):
    return answer(*pieces, delta("stop"), DONE)


# --- what an event carries -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "text", "reasoning", "found"),
    [
        pytest.param(
            {"reasoning": "r", "reasoning_content": "r"}, "", "r", ["reasoning"], id="both-spellings"
        ),
        pytest.param({"reasoning_content": "r", "content": None}, "", "r", ["reasoning"], id="old-spelling"),
        pytest.param({"refusal": "I cannot"}, "I cannot", "", ["text"], id="refusal"),
        pytest.param({"content": [{"type": "text", "text": "a"}, "b"]}, "ab", "", ["text"], id="parts"),
        pytest.param(
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "r"}]}]},
            "",
            "r",
            ["reasoning"],
            id="mistral-thinking",
        ),
        pytest.param(
            {"reasoning": "r", "reasoning_details": [{"type": "reasoning.text", "text": "r"}]},
            "",
            "r",
            ["reasoning"],
            id="details-double-the-text",
        ),
        pytest.param(
            {"reasoning_details": [{"type": "reasoning.text", "text": "r"}]},
            "",
            "r",
            ["reasoning"],
            id="details",
        ),
        pytest.param(
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, "", "", [], id="encrypted"
        ),
        pytest.param({"content": "a", "reasoning": "r"}, "a", "r", ["text"], id="answer-before-reasoning"),
        pytest.param({"role": "assistant"}, "", "", [], id="role"),
        pytest.param(
            {"content": 5, "refusal": {}, "tool_calls": [{}, 1, {"function": {}}]}, "", "", [], id="junk"
        ),
    ],
)
def test_what_a_delta_carries(fields, text, reasoning, found):
    told = finished(delta(**fields))
    assert (told.text, told.reasoning, kinds(told)) == (text, reasoning, found)


@pytest.mark.parametrize(
    ("details", "summary"),
    [
        pytest.param([{"type": "reasoning.summary", "summary": "s"}], True, id="summary"),
        pytest.param([{"type": "reasoning.text", "text": "s"}], False, id="text"),
        pytest.param(None, False, id="no-details"),
    ],
)
def test_only_summaries_are_told_apart(details, summary):
    told = finished(delta(reasoning="s", reasoning_details=details))
    assert (told.reasoning, told.reasoning_summary) == ("s", summary)


CALL_A, CALL_B = ToolCall("1", "f", "{}"), ToolCall("2", "f", "[]")


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        pytest.param(
            [
                [
                    tool(index=0, id="1", name="f", arguments="{}"),
                    tool(index=0, id="2", name="f", arguments="[]"),
                ]
            ],
            [CALL_A, CALL_B],
            id="all-with-index-0",
        ),
        pytest.param(
            [[tool(index=0, id="1", name="f", arguments="{")], [tool(index=0, id="9", arguments="}")]],
            [CALL_A],
            id="a-new-id-in-every-fragment",
        ),
        pytest.param(
            [
                [tool(index=1, id="2", name="f", arguments="[")],
                [tool(index=0, id="1", name="f", arguments="{}")],
                [tool(index=1, arguments="]")],
            ],
            [CALL_A, CALL_B],
            id="parallel-in-turns",
        ),
        pytest.param(
            [[tool(index=0, id="1", name="f")], [tool(index=0, id="1", name="g", arguments="{}")]],
            [ToolCall("1", "fg", "{}")],
            id="name-in-pieces",
        ),
        pytest.param(
            [[tool(name="f", arguments="{}")], [tool(name="f", arguments="[]")]],
            [ToolCall("", "f", "{}"), ToolCall("", "f", "[]")],
            id="whole-calls-without-index-and-id",
        ),
        pytest.param(
            [[tool(name="f", arguments="{")], [tool(name="f", arguments="}")]],
            [ToolCall("", "f", "{}")],
            id="name-repeated-without-index-and-id",
        ),
        pytest.param([[tool(id="1", name="f", arguments={})]], [ToolCall("1", "f", "")], id="empty-object"),
        pytest.param(
            [[tool(id="1", name="f", arguments={"a": 1})]], [ToolCall("1", "f", '{"a":1}')], id="object"
        ),
    ],
)
def test_fragments_become_tool_calls(deltas, calls):
    told = finished(*(delta(tool_calls=entries) for entries in deltas))
    assert list(told.tool_calls) == calls
    assert kinds(told) == ["tool"] * len(deltas)


def test_the_old_function_call_counts_alone_and_not_as_a_double():
    old = {"name": "f", "arguments": "{}"}
    assert finished(delta(function_call=old)).tool_calls == (ToolCall("", "f", "{}"),)
    both = finished(delta(tool_calls=[tool(index=0, id="1", **old)], function_call=old))
    assert both.tool_calls == (CALL_A,)


def test_text_does_not_hide_the_first_tool_call():
    told = finished(delta(content="a"), delta(content="b", tool_calls=[tool(index=0, name="f")]))
    assert kinds(told) == ["text", "text"]
    assert told.first_tool == 1


def test_halves_of_a_character_in_two_events_are_one():
    half = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n'
    assert finished(half % b"\\ud83d", half % b"\\ude42!").text == "🙂!"
    assert finished(half % b"\\ud83d").text == "\N{REPLACEMENT CHARACTER}"


# --- tokens and usage ----------------------------------------------------------------------------


def totals(*numbers):
    return [delta(content="x", usage={"completion_tokens": n, "prompt_tokens": 1}) for n in numbers]


@pytest.mark.parametrize(
    ("pieces", "tokens"),
    [
        pytest.param(totals(1, 4, 5), [1, 3, 1], id="running"),
        pytest.param(
            [delta(role="a", usage={"completion_tokens": 2}), *totals(3, 4)], [3, 1], id="first-is-whole"
        ),
        pytest.param([*totals(1), delta(usage={"completion_tokens": 3}), *totals(4)], [1, 3], id="held-back"),
        pytest.param([delta(content="x"), *totals(5)], [-1, 5], id="not-on-all"),
        pytest.param([*totals(5), delta(content="x")], [5, -1], id="not-on-the-last"),
        pytest.param(totals(0, 0), [-1, -1], id="always-0"),
        pytest.param(totals(5, 3), [5, -1], id="falling"),
        pytest.param([delta(content="x", usage={"completion_tokens": "7"})], [-1], id="no-number"),
        pytest.param([*totals(1), delta(index=1, content="x")], [-1, -1], id="of-several-choices"),
    ],
)
def test_tokens_per_event(pieces, tokens):
    assert list(finished(*pieces).tokens) == tokens


def llamacpp(*numbers, **more):
    return [delta(content="x", timings={"prompt_n": 9, "predicted_n": n}, **more) for n in numbers]


@pytest.mark.parametrize(
    ("pieces", "tokens"),
    [
        pytest.param(llamacpp(18, 25, 26), [18, 7, 1], id="running"),
        pytest.param(llamacpp(3, 4, usage={"completion_tokens": 2}), [2, 0], id="usage-goes-before"),
        pytest.param(llamacpp(True, "4"), [-1, -1], id="no-numbers"),
        pytest.param([delta(content="x", timings=[7])], [-1], id="a-list"),
    ],
)
def test_llamacpp_tells_running_totals_in_timings(pieces, tokens):
    """`timings_per_token = true` in the body; llama.cpp's tools/server/README.md."""
    assert list(finished(*pieces).tokens) == tokens


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        pytest.param([{"prompt_tokens": 3}, {}], Usage(input_tokens=3), id="empty-takes-nothing-back"),
        pytest.param([{"prompt_tokens": 3}, {"prompt_tokens": 4}], Usage(input_tokens=4), id="newest"),
        pytest.param([{"input_tokens": 3, "output_tokens": 4}], None, id="another-dialect"),
        pytest.param([{"prompt_tokens": True, "completion_tokens": -1}], None, id="no-numbers"),
        pytest.param(["many"], None, id="text"),
        pytest.param(
            [
                {
                    "prompt_tokens": 9,
                    "completion_tokens": 5,
                    "prompt_tokens_details": {"cached_tokens": 8},
                    "completion_tokens_details": {"reasoning_tokens": 0},
                }
            ],
            Usage(9, 5, 8, 0),
            id="details",
        ),
    ],
)
def test_usage(told, usage):
    assert finished(delta(content="x"), *(event(choices=[], usage=one) for one in told)).usage == usage


def counted(incoming=10, outgoing=5, **parts):
    return {
        "prompt_tokens": incoming,
        "completion_tokens": outgoing,
        "prompt_tokens_details": {"cached_tokens": parts.get("cached")},
        "completion_tokens_details": {"reasoning_tokens": parts.get("reasoning")},
    }


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        pytest.param(counted(2**63), Usage(None, 5), id="64-bits"),
        pytest.param(counted(10**9 + 1, 10**9), Usage(None, 10**9), id="more-than-anything-has"),
        pytest.param(counted(-5, -7), None, id="negative"),
        pytest.param(counted(True, False), None, id="bool"),
        pytest.param(counted("10", 5.0), None, id="text-and-float"),
        pytest.param(counted(cached=11, reasoning=5), Usage(10, 5, None, 5), id="cached-above-input"),
        pytest.param(counted(cached=10, reasoning=6), Usage(10, 5, 10), id="reasoning-above-output"),
        pytest.param(counted(cached=-1), Usage(10, 5), id="negative-part"),
    ],
)
def test_counts_that_cannot_be_true_are_unknown(told, usage):
    for piece in (event(choices=[], usage=told), delta(content="x", usage=told)):
        found = finished(delta(content="x"), piece)
        assert found.usage == usage
        assert "implausible_usage" in found.warnings


def test_counts_that_cannot_be_true_are_told_of_a_cut_stream_too():
    assert answer(event(usage=counted(-1)), ended=False).warnings == ("implausible_usage",)


def test_a_running_total_that_cannot_be_true_counts_nothing():
    found = finished(*totals(1, 2**63, 3))
    assert list(found.tokens) == [1, -1, 2]
    assert found.warnings == ("implausible_usage",)


@pytest.mark.parametrize("told", [counted(cached=10, reasoning=5), {"prompt_tokens": None}])
def test_plausible_counts_are_no_warning(told):
    assert "implausible_usage" not in finished(delta(content="x"), event(choices=[], usage=told)).warnings


def test_no_output_tokens_are_odd_beside_output_alone():
    nothing = event(choices=[], usage=counted(0, 0))
    assert "implausible_usage" in finished(delta(content="x"), nothing).warnings
    assert "implausible_usage" not in finished(nothing).warnings


def test_tier_and_request_id():
    told = finished(
        event(id="", choices=[], service_tier="default"),
        event(id="c7", choices=[], service_tier=None),
        event(id="c8", choices=[], usage={"service_tier": "priority"}),
    )
    assert (told.request_id, told.tier_served) == ("c7", "priority")


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "kind", "said"),
    [
        pytest.param([event(error="overloaded")], "stream_error", "overloaded", id="error-text"),
        pytest.param(
            [event(error={"message": "no", "code": 5})], "stream_error", "no (5)", id="error-object"
        ),
        pytest.param(
            [event(error={"type": "x"})], "stream_error", '{"type":"x"}', id="error-without-message"
        ),
        pytest.param([b"event: error\ndata: too busy\n\n"], "stream_error", "too busy", id="named-error"),
        pytest.param(
            [b'event: error\ndata: {"message":"no"}\n\n'], "stream_error", "no", id="named-error-object"
        ),
        pytest.param([delta("error")], "stream_error", "finish_reason error", id="finish-error"),
        pytest.param([delta(content="a"), b"data: {\n\n", DONE], "malformed_event", "{", id="broken"),
        pytest.param([delta(content="a"), b"data: 5\n\n", DONE], "malformed_event", "5", id="no-object"),
        pytest.param([delta(content="a")], "truncated", "without its end mark", id="truncated"),
        pytest.param([], "empty_response", "without any output", id="nothing"),
        pytest.param([DONE], "empty_response", "without any output", id="only-done"),
        pytest.param([b":\n\n"], "empty_response", "without any output", id="only-comments"),
        pytest.param([b"<html><p>Sorry</p>\n\n</html>"], "not_sse", "Sorry", id="page"),
        pytest.param([b'{"error":\n{"message":"full"}}'], "stream_error", "full", id="bare-error"),
    ],
)
def test_failures(pieces, kind, said):
    error = answer(*pieces).error
    assert error.kind == kind
    assert said in error.message


def test_a_cut_stream_is_not_called_truncated():
    assert answer(delta(content="a"), ended=False).error is None
    assert answer(delta(content="a"), b'data: {"choi', ended=False).malformed_events == 0


def test_an_answer_without_output_but_with_its_end_is_no_failure():
    told = answer(delta("length"))  # all of the budget may have gone to hidden reasoning
    assert (told.error, told.finish_reason) == (None, "length")


def test_a_too_long_event_ends_the_call(monkeypatch):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    decoder = DIALECTS["openai-chat"].decoder()
    assert decoder.feed(delta(content="a"), 1) is Progress.OUTPUT
    assert decoder.feed(b"data: " + b"x" * 2000, 2) is Progress.DONE
    told = decoder.answer(ended=False)
    assert (told.error.kind, told.text, told.done_ns) == ("too_large", "a", None)


# --- bounds --------------------------------------------------------------------------------------

A, B = delta(content="a"), delta(content="b")


@pytest.mark.parametrize(
    ("reads", "bounds"),
    [
        pytest.param([(5, A), (7, B)], [(5, 5), (7, 7)], id="one-event-a-read"),
        pytest.param([(5, A + B)], [(0, 5), (5, 5)], id="only-the-last-is-exact"),
        pytest.param(
            [(3, b":\n\n"), (5, A), (5, B)], [(3, 5), (5, 5)], id="pieces-of-one-stamp-are-one-read"
        ),
        pytest.param([(5, A), (5, B[:9]), (8, B[9:])], [(0, 5), (8, 8)], id="the-read-ends-in-an-event"),
        pytest.param([(5, A + B[:9]), (8, B[9:] + A), (9, B)], [(0, 5), (5, 8), (8, 8), (9, 9)], id="cut"),
        pytest.param([(5, A + delta("stop"))], [(0, 5)], id="finish-behind"),
        pytest.param([(5, A + DONE)], [(0, 5)], id="mark-behind"),
        pytest.param([(5, A + event(choices=[], usage={}))], [(0, 5)], id="usage-behind"),
        pytest.param([(5, A + b":\n\n")], [(0, 5)], id="comment-behind"),
        pytest.param([(5, A), (5, b":\n\n")], [(0, 5)], id="comment-in-the-next-piece"),
        pytest.param([(5, A), (5, b"")], [(0, 5)], id="the-read-went-on"),
        pytest.param([(5, A), (6, b""), (7, B)], [(5, 5), (7, 7)], id="a-later-read-of-no-piece"),
        pytest.param([(5, A), (6, b":\n\n")], [(5, 5)], id="comment-in-the-next-read"),
        pytest.param([(4, b":\n\n"), (5, A[:-1])], [(5, 5)], id="flushed"),
        pytest.param([(9, A), (8, B), (8, A)], [(9, 9), (8, 8), (8, 8)], id="stamps-that-step-back"),
    ],
)
def test_bounds(reads, bounds):
    decoder = DIALECTS["openai-chat"].decoder()
    for at, data in reads:
        decoder.feed(data, at)
    told = decoder.answer(ended=True)
    assert list(zip(told.low_ns, told.high_ns, strict=True)) == bounds
    assert (told.high_ns.typecode, told.kinds.typecode) == (array("q").typecode, array("b").typecode)


@pytest.mark.parametrize("late", [{}, {"prompt_tokens": None, "completion_tokens": None}, counted(0, 0)])
def test_a_usage_without_numbers_takes_none_back(late):
    told = answer(
        delta(content="x", finish_reason="stop"), event(usage=counted(9, 3)), event(usage=late), DONE
    )
    assert told.usage is not None
    assert (told.usage.input_tokens, told.usage.output_tokens) == (9, 3)


def test_input_and_output_are_counted_in_events_of_their_own():
    first, last = event(usage={"prompt_tokens": 9}), event(usage={"completion_tokens": 3})
    assert answer(first, delta(content="x"), last, DONE).usage == Usage(9, 3)


def test_zeros_that_nothing_contradicts_are_told():
    told = answer(delta(content="x"), event(usage={"prompt_tokens": 0, "completion_tokens": 0}), DONE)
    assert (told.usage, told.warnings) == (Usage(0, 0), ("no_finish_reason", "implausible_usage"))


def test_an_empty_reason_to_end_is_none():
    told = answer(delta(content="x", finish_reason="stop"), delta(content="", finish_reason=""), ended=True)
    assert (told.finish_reason, told.error) == ("stop", None)
    cut = answer(delta(content="x", finish_reason=""))
    assert (cut.finish_reason, cut.error.kind) == (None, "truncated")
