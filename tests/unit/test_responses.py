"""Dialect openai-responses: what its events mean, and servers' oddities that no recorded case holds."""

import orjson
import pytest

from harness.values import CallError, Progress, ToolCall, Usage
from harness.wire import DIALECTS
from tests import decoding
from tests.decoding import bare, kinds, named

DONE = named("response.completed", response={"id": "r1", "status": "completed", "usage": None})
TOLD = {"input_tokens": 9, "output_tokens": 8, "output_tokens_details": {"reasoning_tokens": 3}}


def answer(*pieces, **how):
    return decoding.answer("openai-responses", *pieces, **how)


def finished(*pieces):
    return answer(*pieces, DONE)


def text(said, **fields):
    return named("response.output_text.delta", delta=said, **fields)


def item(event, kind, **fields):
    place = {"output_index": fields.pop("output_index")} if "output_index" in fields else {}
    return named(f"response.output_item.{event}", item={"type": kind, **fields}, **place)


def message(said):
    return {"type": "message", "id": "m1", "content": [{"type": "output_text", "text": said}]}


def arguments(said, event="delta", key="delta", **fields):
    return named(f"response.function_call_arguments.{event}", **{key: said}, **fields)


# --- what an event carries -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("piece", "said", "found"),
    [
        pytest.param(text("a"), ("a", ""), ["text"], id="text"),
        pytest.param(text(""), ("", ""), [], id="empty"),
        pytest.param(text(None), ("", ""), [], id="null"),
        pytest.param(text({"a": 1}), ("", ""), [], id="no-text"),
        pytest.param(named("response.refusal.delta", delta="no"), ("no", ""), ["text"], id="refusal"),
        pytest.param(
            named("response.reasoning_text.delta", delta="r"), ("", "r"), ["reasoning"], id="reasoning"
        ),
        pytest.param(
            named("response.reasoning_summary_text.delta", delta="r"), ("", "r"), ["reasoning"], id="summary"
        ),
        pytest.param(
            named("response.content_part.added", part={"type": "output_text", "text": "a"}),
            ("a", ""),
            ["text"],
            id="part-that-begins-with-text",
        ),
        pytest.param(
            named("response.content_part.added", part={"type": "output_text", "text": ""}),
            ("", ""),
            [],
            id="part-without-text",
        ),
        pytest.param(item("added", "message", content=[]), ("", ""), [], id="message-begins"),
        pytest.param(item("added", "reasoning", summary=[]), ("", ""), [], id="reasoning-begins"),
        pytest.param(
            named("response.mcp_call_arguments.delta", delta="{"), ("", ""), ["tool"], id="servers-own-tool"
        ),
        pytest.param(
            named("response.shell_call_output_content.delta", delta={"stdout": "x"}),
            ("", ""),
            [],
            id="a-tools-result",
        ),
        pytest.param(named("response.steer.accepted", previous_response_id="r"), ("", ""), [], id="steer"),
        pytest.param(
            named("response.steer.failed", error={"message": "late"}), ("", ""), [], id="steer-failed"
        ),
        pytest.param(named("response.output_text.annotation.added"), ("", ""), [], id="annotation"),
        pytest.param(named("response.queued", response={"id": "r1"}), ("", ""), [], id="queued"),
        pytest.param(bare("response.output_text.delta", delta="a"), ("a", ""), ["text"], id="without-name"),
        pytest.param(
            b'event: response.output_text.delta\ndata: {"delta":"a"}\n\n', ("a", ""), ["text"], id="name-only"
        ),
        pytest.param(b'data: {"type":[],"delta":"a"}\n\n', ("", ""), [], id="odd-type"),
    ],
)
def test_what_an_event_carries(piece, said, found):
    told = finished(piece)
    assert ((told.text, told.reasoning), kinds(told), told.error) == (said, found, None)


@pytest.mark.parametrize(
    ("pieces", "summary"),
    [
        pytest.param([named("response.reasoning_summary_text.delta", delta="s")], True, id="summary"),
        pytest.param([named("response.reasoning_text.delta", delta="r")], False, id="itself"),
        pytest.param(
            [
                named("response.reasoning_text.delta", delta="r"),
                named("response.reasoning_summary_text.delta", delta="s"),
            ],
            False,
            id="both",
        ),
        pytest.param([item("done", "reasoning", summary=[{"text": "s"}])], True, id="whole-summary"),
        pytest.param([item("done", "reasoning", content=[{"text": "r"}])], False, id="whole-reasoning"),
        pytest.param([item("done", "reasoning", summary=[])], False, id="nothing"),
    ],
)
def test_summaries_of_reasoning_are_told_apart(pieces, summary):
    assert finished(*pieces).reasoning_summary is summary


# --- what is told twice, and what only once ------------------------------------------------------


def test_what_came_in_pieces_is_not_taken_again_when_it_is_told_whole():
    told = finished(
        item("added", "message", id="m1", content=[], output_index=0),
        text("Hel"),
        text("lo"),
        named("response.output_text.done", text="Hello"),
        named("response.content_part.done", part={"type": "output_text", "text": "Hello"}),
        item("done", "message", id="m1", content=message("Hello")["content"], output_index=0),
        named("response.completed", response={"output": [message("Hello")]}),
    )
    assert (told.text, kinds(told)) == ("Hello", ["text", "text"])


def test_a_message_that_is_told_whole_behind_the_call_that_follows_it_is_not_taken_again():
    told = finished(
        item("added", "message", id="m1", content=[]),
        text("Look", item_id="m1"),
        item("added", "function_call", id="f1", call_id="c1", name="read", arguments=""),
        arguments("{}", item_id="f1"),
        named("response.output_text.done", item_id="m1", text="Look"),
        item("done", "message", id="m1", content=message("Look")["content"]),
        arguments("{}", "done", "arguments", item_id="f1"),
        item("done", "function_call", id="f1", call_id="c1", name="read", arguments="{}"),
    )
    assert (told.text, kinds(told)) == ("Look", ["text", "tool", "tool"])
    assert told.tool_calls == (ToolCall("c1", "read", "{}"),)


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([named("response.output_text.done", text="Hi")], id="part"),
        pytest.param([item("done", "message", content=message("Hi")["content"])], id="item"),
        pytest.param(
            [
                named("response.output_text.done", text="Hi"),
                item("done", "message", content=message("Hi")["content"]),
            ],
            id="part-and-item",
        ),
        pytest.param([named("response.completed", response={"output": [message("Hi")]})], id="at-the-end"),
    ],
)
def test_what_never_came_in_pieces_is_taken_when_it_is_told_whole(pieces):
    told = finished(*pieces)
    assert (told.text, kinds(told), list(told.high_ns)) == ("Hi", ["text"], [1])


def test_a_second_message_without_pieces_is_taken_behind_a_first_one_with_them():
    told = finished(
        text("one"),
        named("response.output_text.done", text="one"),
        item("done", "message", content=message("one")["content"]),
        named("response.output_text.done", text="two"),
        item("done", "message", content=message("two")["content"]),
    )
    assert (told.text, list(told.high_ns)) == ("onetwo", [1, 4])


def test_an_answer_in_the_terminal_event_alone_is_output_and_end():
    decoder = DIALECTS["openai-responses"].decoder()
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
    end = named("response.completed", response={"output": [message("Hi"), call], "usage": TOLD})
    assert decoder.feed(end, 7) is Progress.DONE
    told = decoder.answer(ended=True)
    assert (told.text, told.tool_calls, told.done_ns) == ("Hi", (ToolCall("c1", "read", "{}"),), 7)
    assert (list(told.high_ns), told.usage) == ([7], Usage(9, 8, None, 3))


def test_odd_items_in_the_terminal_event_are_left_out():
    odd = [None, 5, {}, *({"type": kind, "name": "read"} for kind in (None, 5, [], {}, "unknown"))]
    told = answer(named("response.completed", response={"output": [*odd, message("Hi")]}))
    assert (told.text, told.tool_calls, len(told.high_ns)) == ("Hi", (), 1)


# --- tool calls ----------------------------------------------------------------------------------


BEGINS = [
    {"id": "f1", "call_id": "c1", "name": "read", "arguments": "", "output_index": 1},
    {"id": "f2", "call_id": "c2", "name": "find", "arguments": "", "output_index": 2},
]
TWO = (ToolCall("c1", "read", '{"a":1}'), ToolCall("c2", "find", '{"b":2}'))


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(({"item_id": "f1", "output_index": 1}, {"item_id": "f2", "output_index": 2}), id="both"),
        pytest.param(({"item_id": "f1"}, {"item_id": "f2"}), id="item-ids"),
        pytest.param(({"output_index": 1}, {"output_index": 2}), id="indices"),
        pytest.param(
            ({"item_id": "f1", "output_index": 0}, {"item_id": "f2", "output_index": 0}), id="all-0"
        ),
        pytest.param(
            ({"item_id": "x1", "output_index": 1}, {"item_id": "x2", "output_index": 2}), id="other-ids"
        ),
    ],
)
def test_calls_side_by_side_are_kept_apart(names):
    first, second = names
    told = finished(
        *(item("added", "function_call", **begins) for begins in BEGINS),
        arguments('{"a":', **first),
        arguments('{"b":', **second),
        arguments("1}", **first),
        arguments("2}", **second),
    )
    assert told.tool_calls == TWO
    assert (kinds(told), told.first_tool) == (["tool"] * 6, 0)


def test_calls_one_after_the_other_need_no_names_at_all():
    pieces = []
    for begins, said in zip(BEGINS, ('{"a":1}', '{"b":2}'), strict=True):
        begins = {key: begins[key] for key in ("call_id", "name", "arguments")}
        pieces += [item("added", "function_call", **begins), arguments(said[:3]), arguments(said[3:])]
    assert finished(*pieces).tool_calls == TWO


def test_two_calls_at_one_index_are_two():
    told = finished(
        *(item("done", "function_call", call_id=c, name="f", arguments="{}", output_index=0) for c in "ab")
    )
    assert told.tool_calls == (ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}"))


@pytest.mark.parametrize(
    ("pieces", "call", "events"),
    [
        pytest.param(
            [item("done", "function_call", call_id="c", name="f", arguments="{}")],
            ToolCall("c", "f", "{}"),
            1,
            id="whole",
        ),
        pytest.param(
            [
                item("added", "function_call", id="i", call_id="c", name="f"),
                arguments("{}", "done", "arguments", item_id="i"),
                item("done", "function_call", id="i", call_id="c", name="f", arguments="{}"),
            ],
            ToolCall("c", "f", "{}"),
            2,
            id="arguments-whole",
        ),
        pytest.param(
            [
                item("added", "custom_tool_call", id="i", call_id="c", name="grep", input=""),
                named("response.custom_tool_call_input.delta", item_id="i", delta="a b"),
                named("response.custom_tool_call_input.done", item_id="i", input="a b"),
                item("done", "custom_tool_call", id="i", call_id="c", name="grep", input="a b"),
            ],
            ToolCall("c", "grep", "a b"),
            2,
            id="custom",
        ),
        pytest.param(
            [
                item("added", "computer_call", id="i", call_id="c"),
                item("done", "computer_call", id="i", call_id="c", action={"type": "wait"}),
            ],
            ToolCall("c", "computer_call", '{"type":"wait"}'),
            1,
            id="vendors-own",
        ),
        pytest.param(
            [arguments("{}", item_id="i"), item("done", "function_call", id="i", name="f", arguments="{}")],
            ToolCall("i", "f", "{}"),
            2,
            id="begun-without-a-word",
        ),
    ],
)
def test_a_call_is_told_once(pieces, call, events):
    told = finished(*pieces)
    assert told.tool_calls == (call,)
    assert kinds(told) == ["tool"] * events


def test_tools_that_the_server_runs_are_output_but_no_calls():
    told = finished(
        item("added", "mcp_call", id="i", name="search", arguments=""),
        named("response.mcp_call_arguments.delta", item_id="i", delta='{"q":1}'),
        item("done", "mcp_call", id="i", name="search", arguments='{"q":1}', output="found"),
        item("added", "web_search_call", id="w"),
        item("done", "web_search_call", id="w", action={"query": "x"}),
    )
    assert (kinds(told), told.tool_calls, told.first_tool) == (["tool"] * 2, (), 0)


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "response", "reason", "message"),
    [
        pytest.param("completed", {}, None, None, id="completed"),
        pytest.param(
            "incomplete",
            {"incomplete_details": {"reason": "max_output_tokens"}},
            "max_output_tokens",
            None,
            id="incomplete",
        ),
        pytest.param(
            "incomplete", {"incomplete_details": None}, None, None, id="incomplete-without-a-reason"
        ),
        pytest.param(
            "failed",
            {"error": {"code": "server_error", "message": "it broke"}},
            None,
            "it broke (server_error)",
            id="failed",
        ),
        pytest.param(
            "failed", {"error": None}, None, "the response ended as failed", id="failed-without-a-word"
        ),
        pytest.param("cancelled", {}, None, "the response ended as cancelled", id="cancelled"),
    ],
)
def test_terminal_events(word, response, reason, message):
    decoder = DIALECTS["openai-responses"].decoder()
    decoder.feed(text("a"), 1)
    assert decoder.feed(named(f"response.{word}", response=response), 2) is Progress.DONE
    told = decoder.answer(ended=True)
    assert (told.finish_reason, told.incomplete_reason, told.done_ns) == (word, reason, 2)
    assert (told.error and told.error.message) == message


def test_a_stray_end_mark_changes_nothing():
    told = answer(text("a"), DONE, b"data: [DONE]\n\n")
    assert (told.text, told.finish_reason, told.error, told.done_ns) == ("a", "completed", None, 2)


def test_an_end_mark_alone_ends_it_too():
    told = answer(text("a"), b"data: [DONE]\n\n")
    assert (told.error, told.done_ns, told.finish_reason) == (None, 2, None)
    assert "no_finish_reason" in told.warnings


def test_the_tier_that_served_is_the_one_named_last():
    pieces = [
        named("response.created", response={"id": "r1", "service_tier": "auto"}),
        text("a"),
        named("response.completed", response={"id": "r1", "service_tier": "priority", "usage": TOLD}),
    ]
    told = answer(*pieces)
    assert (told.tier_served, told.request_id) == ("priority", "r1")
    assert answer(*pieces[:2], ended=False).tier_served is None  # `auto` is what was asked for


def test_usage_of_a_cut_answer_is_unknown():
    created = named("response.created", response={"id": "r1", "usage": None})
    assert answer(created, text("a"), ended=False).usage is None


# --- errors --------------------------------------------------------------------------------------

FLAT = {"code": "rate_limit_exceeded", "message": "slow down", "param": None}
NESTED = {"error": {"type": "x", "code": "rate_limit_exceeded", "message": "slow down"}, "status": 429}


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(named("error", **FLAT), id="flat"),
        pytest.param(bare("error", **FLAT), id="flat-without-name"),
        pytest.param(named("error", **NESTED), id="nested"),
        pytest.param(b"data: " + orjson.dumps({"error": NESTED["error"]}) + b"\n\n", id="without-type"),
        pytest.param(b"event: error\ndata: " + orjson.dumps(FLAT) + b"\n\n", id="name-only"),
        pytest.param(b"event: error\ndata: " + orjson.dumps(FLAT), id="without-end"),
    ],
)
def test_errors_amid_the_stream(piece):
    told = answer(text("a"), piece)
    assert told.error == CallError("stream_error", "slow down (rate_limit_exceeded)")
    assert (told.text, told.done_ns) == ("a", None)  # the call ends with its connection


@pytest.mark.parametrize("status", [429, None, "429"])
def test_an_error_on_a_websocket_is_the_end_and_tells_its_status(status):
    decoder = DIALECTS["openai-responses"].decoder(messages=True)
    frame = orjson.dumps({"type": "error"} | NESTED | {"status": status})
    assert (
        decoder.feed(orjson.dumps({"type": "response.output_text.delta", "delta": "a"}), 1) is Progress.OUTPUT
    )
    assert decoder.feed(frame, 2) is Progress.DONE
    told = decoder.answer(ended=True)
    assert told.error == CallError("stream_error", "slow down (rate_limit_exceeded)")
    assert (told.error_status, told.done_ns) == (status if status == 429 else None, 2)


def test_messages_of_a_websocket_are_the_same_events():
    bodies = [piece.partition(b"data: ")[2].strip() for piece in (text("a"), text("b"), DONE)]
    told, streamed = answer(*bodies, messages=True), finished(text("a"), text("b"))
    assert told == streamed
    assert list(told.low_ns) == list(told.high_ns) == [1, 2]


def test_messages_of_one_read_share_its_bounds():
    decoder = DIALECTS["openai-responses"].decoder(messages=True)
    for at, said in ((5, "a"), (9, "b"), (9, "c")):
        decoder.feed(orjson.dumps({"type": "response.output_text.delta", "delta": said}), at)
    told = decoder.answer(ended=False)
    assert (list(told.low_ns), list(told.high_ns)) == ([5, 5, 9], [5, 9, 9])


def test_a_message_without_end_is_given_up():
    decoder = DIALECTS["openai-responses"].decoder(messages=True)
    assert decoder.feed(b" " * (16 * 2**20 + 1), 1) is Progress.DONE
    assert decoder.answer(ended=False).error.kind == "too_large"


def test_a_refused_answer_is_told_in_the_servers_words():
    body = orjson.dumps({"error": {"message": "no", "code": "bad"}})
    told = DIALECTS["openai-responses"].unstreamed(status=400, content_type=None, body=body)
    assert told.error == CallError("http_error", "HTTP 400: no (bad)")


def test_an_answer_at_once_keeps_all_but_its_times():
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    body = {
        "id": "r",
        "status": "incomplete",
        "incomplete_details": {"reason": "content_filter"},
        "usage": TOLD,
    }
    told = DIALECTS["openai-responses"].unstreamed(
        status=200, content_type=None, body=orjson.dumps(body | {"output": [thought, message("Hi"), call]})
    )
    assert (told.text, told.reasoning, told.tool_calls) == ("Hi", "hm", (ToolCall("c", "f", "{}"),))
    assert (told.finish_reason, told.incomplete_reason) == ("incomplete", "content_filter")
    assert (told.usage, len(told.high_ns), told.error.kind) == (Usage(9, 8, None, 3), 0, "not_streamed")
