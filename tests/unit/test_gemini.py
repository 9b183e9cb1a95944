"""Dialect gemini: what responses and interactions mean, as events or as an array."""

import orjson
import pytest

from harness.measure.timeline import event_tokens
from harness.values import EventKind, Progress, ToolCall, Usage
from harness.wire import DIALECTS


def response(*parts, finish=None, usage=None, **more):
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    told = {"usageMetadata": usage} if usage else {}
    return {"candidates": [candidate], **told, "modelVersion": "g", "responseId": "r1", **more}


def text(said, **more):
    return response({"text": said}, **more)


def counts(prompt, said=None, thoughts=None, **more):
    told = {"promptTokenCount": prompt, "candidatesTokenCount": said, "thoughtsTokenCount": thoughts, **more}
    return {name: value for name, value in told.items() if value is not None}


def sse(*events):
    return [b"data: " + orjson.dumps(event) + b"\r\n\r\n" for event in events]


def array(*events):
    """As Google cuts it: each piece but the first begins with the comma."""
    pieces = [b"," * (n > 0) + b"\r\n" * (n > 0) + orjson.dumps(event) for n, event in enumerate(events)]
    return [b"[" + pieces[0], *pieces[1:], b"]"]


def answer(pieces, ended=True):
    decoder = DIALECTS["gemini"].decoder()
    for at, piece in enumerate(pieces, start=1):
        decoder.feed(piece, at)
    return decoder.answer(ended=ended)


def kinds(told):
    return [tuple(EventKind)[kind] for kind in told.kinds]


STREAM = (
    text("A long ", usage=counts(12, 3)),
    text("piece.", usage=counts(12, 7, trafficType="ON_DEMAND_PRIORITY")),
    text("", finish="STOP", usage=counts(12, 9, cachedContentTokenCount=8)),
)


@pytest.mark.parametrize("frames", [sse, array])
def test_a_stream(frames):
    told = answer(frames(*STREAM))
    assert (told.text, told.finish_reason, told.request_id, told.error) == (
        "A long piece.",
        "STOP",
        "r1",
        None,
    )
    assert (list(told.high_ns), list(told.low_ns), list(told.tokens)) == ([1, 2], [1, 2], [3, 4])
    assert (told.usage, told.tier_served) == (Usage(12, 9, 8), "priority")
    assert (told.warnings, told.done_ns) == ((), None)


def test_tokens_of_events_are_those_of_the_running_counts_less_what_was_thought():
    """30 thoughts before the first event, which brings 3 tokens; then 4; the last 2 come in no event."""
    stream = (
        text("A long ", usage=counts(12, 3, 30)),
        text("piece.", usage=counts(12, 7, 30)),
        text("", finish="STOP", usage=counts(12, 9, 30)),
    )
    told = answer(sse(*stream))
    assert told.usage == Usage(12, 39, None, 30)
    assert (list(told.tokens), event_tokens(told)) == ([33, 4], [3, 4])


def test_thoughts_are_summaries():
    told = answer(
        sse(response({"text": "hm", "thought": True}), text("a", finish="STOP", usage=counts(1, 1, 9)))
    )
    assert (told.reasoning, told.text, kinds(told)) == ("hm", "a", ["reasoning", "text"])
    assert (told.reasoning_summary, told.usage) == (True, Usage(1, 10, None, 9))


def test_calls_come_whole_and_stay_apart():
    first = {"functionCall": {"name": "f", "args": {"x": 1}}, "thoughtSignature": "abc"}
    told = answer(
        sse(
            response(first, {"functionCall": {"name": "f", "args": {"x": 1}, "id": "7"}}),
            response({"functionCall": {"name": "g"}}, finish="STOP"),
        )
    )
    assert told.tool_calls == (
        ToolCall("", "f", '{"x":1}'),
        ToolCall("7", "f", '{"x":1}'),
        ToolCall("", "g", "{}"),
    )
    assert (kinds(told), told.first_tool) == (["tool", "tool"], 0)


def test_arguments_in_pieces_and_code_are_output():
    told = answer(
        sse(
            response({"functionCall": {"name": "f", "willContinue": True}}),
            response({"functionCall": {"partialArgs": [{"jsonPath": "$.x", "stringValue": "a"}]}}),
            response({"functionCall": {}}),
            response({"executableCode": {"language": "PYTHON", "code": "1"}}),
            response({"codeExecutionResult": {"output": "1"}}, finish="STOP"),
        )
    )
    assert (list(told.high_ns), [call.name for call in told.tool_calls]) == ([1, 2, 4], ["f"])


@pytest.mark.parametrize(
    ("pieces", "output"),
    [
        pytest.param([text("a", finish="STOP", usage=counts(5, 2))], 2, id="no-thoughts"),
        pytest.param([response(finish="MAX_TOKENS", usage=counts(5, None, 64))], 64, id="only-thought"),
        pytest.param([text("a", finish="STOP", usage=counts(5, None, 64))], None, id="answer-not-counted"),
        pytest.param([text("a", usage=counts(5)), text("b", finish="STOP")], None, id="only-the-prompt"),
        pytest.param(
            [text("a", usage=counts(5, 1)), text("b", finish="STOP", usage={})], 1, id="nothing-at-last"
        ),
    ],
)
def test_output_tokens(pieces, output):
    told = answer(sse(*pieces))
    assert (told.usage.input_tokens, told.usage.output_tokens) == (5, output)


def test_results_of_tools_are_input():
    told = answer(sse(text("a", finish="STOP", usage=counts(5, 2, toolUsePromptTokenCount=40))))
    assert told.usage == Usage(45, 2)


def test_counts_that_cannot_be_true():
    told = answer(sse(text("a", finish="STOP", usage=counts("5", -2, 1.5))))
    assert (told.usage, told.warnings) == (None, ("no_usage", "implausible_usage"))
    for thoughts in (-2, "3", True, 10**12):  # a sum with it is none either
        told = answer(sse(text("a", finish="STOP", usage=counts(5, 4, thoughts))))
        assert (told.usage, told.warnings) == (Usage(input_tokens=5), ("implausible_usage",))


def test_a_prompt_that_is_refused_has_a_reason_and_no_output():
    told = answer(sse({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": counts(5)}))
    assert (told.finish_reason, told.error, len(told.high_ns)) == ("PROHIBITED_CONTENT", None, 0)


def test_candidates_are_kept_apart():
    both = {
        "candidates": [{"content": {"parts": [{"text": said}]}, "index": i} for i, said in enumerate("ab")]
    }
    told = answer(sse(both, text("c", finish="STOP")))
    assert (told.text, told.choices[1].text, list(told.tokens)) == ("ac", "b", [-1, -1])


ERROR = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}


@pytest.mark.parametrize("frames", [sse, array])
def test_an_error_in_the_stream(frames):
    told = answer(frames(text("a"), ERROR))
    assert (told.error.kind, told.error.message) == ("stream_error", "The model is overloaded. (503)")
    assert told.text == "a"


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        pytest.param(sse(text("a")), "truncated", id="no-reason-to-end"),
        pytest.param(array(text("a"))[:1], "truncated", id="no-bracket"),
        pytest.param([*array(text("a"))[:1], b',{"cand'], "malformed_event", id="half-an-object"),
        pytest.param([b"[]"], "empty_response", id="empty-array"),
        pytest.param([b"<html>busy</html>"], "not_sse", id="a-page"),
        pytest.param([b"[1,2]"], "not_sse", id="no-objects"),
        pytest.param([b'{"hello":1}'], "not_sse", id="another-object"),
        pytest.param([orjson.dumps(ERROR)], "stream_error", id="an-error-alone"),
    ],
)
def test_what_is_wrong_with_a_body(pieces, kind):
    assert answer(pieces).error.kind == kind


WHOLE = text("hi", finish="STOP", usage=counts(5, 1))


def test_an_answer_sent_at_once_is_no_stream_also_where_its_type_could_be_one():
    body = orjson.dumps(WHOLE, option=orjson.OPT_INDENT_2)
    for told in (
        answer([body[:30], body[30:]]),
        DIALECTS["gemini"].unstreamed(status=200, content_type="text/plain", body=body),
    ):
        assert (told.error.kind, told.text, told.usage) == ("not_streamed", "hi", Usage(5, 1))
        assert (list(told.high_ns), told.finish_reason) == ([], "STOP")


@pytest.mark.parametrize("body", [orjson.dumps(ERROR), orjson.dumps([ERROR], option=orjson.OPT_INDENT_2)])
def test_a_refusal_has_the_servers_words(body):
    told = DIALECTS["gemini"].unstreamed(status=503, content_type="application/json", body=body)
    assert told.error.message == "HTTP 503: The model is overloaded."


# --- interactions ---------------------------------------------------------------------------------


def typed(kind, **fields):
    return {**fields, "event_type": kind}


def delta(index=0, **fields):
    return typed("step.delta", index=index, delta=fields)


def completed(status="completed", **usage):
    return typed("interaction.completed", interaction={"id": "i1", "status": status, "usage": usage})


CREATED = typed(
    "interaction.created", interaction={"id": "i1", "status": "in_progress", "service_tier": "flex"}
)
USAGE = {
    "total_input_tokens": 7,
    "total_output_tokens": 5,
    "total_thought_tokens": 20,
    "total_cached_tokens": 3,
}


def named(*events):
    return [b"event: %s\n%s" % (e["event_type"].encode(), sse(e)[0].replace(b"\r", b"")) for e in events]


def test_an_interaction():
    told = answer(
        [
            *named(
                CREATED,
                typed("interaction.status_update", interaction_id="i1", status="in_progress"),
                typed("step.start", index=0, step={"type": "thought"}),
                delta(type="thought_summary", content={"type": "text", "text": "hm"}),
                delta(type="thought_signature", signature="abc"),
                typed("step.start", index=1, step={"type": "model_output"}),
                delta(1, type="text", text="a"),
                delta(1, type="text", text="b"),
                typed("step.stop", index=1),
                completed(**USAGE),
            ),
            b"event: done\ndata: [DONE]\n\n",
        ]
    )
    assert (told.text, told.reasoning, told.reasoning_summary) == ("ab", "hm", True)
    assert (list(told.high_ns), told.done_ns, kinds(told)) == ([4, 7, 8], 10, ["reasoning", "text", "text"])
    assert (told.finish_reason, told.request_id, told.tier_served) == ("completed", "i1", "flex")
    assert (told.usage, told.error, told.warnings) == (Usage(7, 25, 3, 20), None, ())


def test_running_totals_of_an_interaction():
    def said(text, total):
        return delta(type="text", text=text) | {"metadata": {"total_usage": {"total_output_tokens": total}}}

    told = answer(named(CREATED, said("a", 2), said("bc", 7), completed(total_output_tokens=8)))
    assert (list(told.tokens), told.usage) == ([2, 5], Usage(output_tokens=8))


def test_the_usage_of_a_step_is_not_that_of_all():
    told = answer(
        named(
            delta(type="text", text="a"),
            typed(
                "step.stop", index=0, step_usage={"total_output_tokens": 1}, usage={"total_output_tokens": 4}
            ),
            typed("interaction.status_update", status="completed"),
        )
    )
    assert (told.usage, told.finish_reason) == (Usage(output_tokens=4), "completed")


def test_function_calls_of_an_interaction():
    told = answer(
        named(
            typed(
                "step.start",
                index=1,
                step={"type": "function_call", "id": "c1", "name": "f", "arguments": {}},
            ),
            typed("step.start", index=2, step={"type": "function_call", "id": "c2", "name": "f"}),
            delta(2, type="arguments_delta", arguments='{"b'),
            delta(1, type="arguments_delta", arguments='{"a":1}'),
            delta(2, type="arguments_delta", arguments='":2}'),
            completed("requires_action"),
        )
    )
    assert told.tool_calls == (ToolCall("c1", "f", '{"a":1}'), ToolCall("c2", "f", '{"b":2}'))
    assert (len(told.high_ns), told.finish_reason, told.error) == (5, "requires_action", None)


def test_tools_of_the_server_are_called_by_the_model_and_answered_by_the_server():
    call, result = {"type": "google_search_call", "arguments": {}}, {"type": "google_search_result"}
    told = answer(named(delta(**call), delta(**result), delta(type="image", data="x"), completed()))
    assert (list(told.high_ns), kinds(told), told.tool_calls) == ([1], ["tool"], ())


def test_the_words_before_may_2026():
    told = answer(
        named(
            typed("interaction.start", interaction={"id": "i1", "status": "in_progress"}),
            typed("content.start", index=0, content={"type": "text"}),
            typed("content.delta", index=0, delta={"type": "text", "text": "a"}),
            typed(
                "content.delta",
                index=1,
                delta={"type": "function_call", "id": "c", "name": "f", "arguments": {}},
            ),
            typed("interaction.complete", interaction={"id": "i1", "status": "completed"}),
        )
    )
    assert (told.text, told.tool_calls, told.done_ns) == ("a", (ToolCall("c", "f", "{}"),), 5)
    assert list(told.high_ns) == [3, 4]


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (typed("error", error={"code": "overloaded", "message": "busy"}), "busy (overloaded)"),
        (completed("failed"), "the interaction ended with status failed"),
        (
            typed("interaction.status_update", status="cancelled"),
            "the interaction ended with status cancelled",
        ),
    ],
)
def test_an_interaction_that_fails(last, message):
    told = answer(named(CREATED, delta(type="text", text="a"), last))
    assert (told.error.kind, told.error.message, told.text) == ("stream_error", message, "a")


def test_completion_ends_the_call():
    decoder = DIALECTS["gemini"].decoder()
    said = [decoder.feed(piece, 1) for piece in named(CREATED, delta(type="text", text="a"), completed())]
    assert said == [Progress.SILENT, Progress.OUTPUT, Progress.DONE]


@pytest.mark.parametrize("parts", ["steps", "outputs"])
def test_an_interaction_sent_at_once_keeps_its_text(parts):
    steps = [
        {"type": "thought", "summary": [{"type": "text", "text": "hm"}]},
        {"type": "function_call", "id": "c", "name": "f", "arguments": {"x": 1}},
        {"type": "model_output", "content": [{"type": "text", "text": "hi"}]}
        if parts == "steps"
        else {"type": "text", "text": "hi"},
    ]
    whole = orjson.dumps({"id": "i1", "status": "completed", parts: steps, "usage": USAGE})
    told = DIALECTS["gemini"].unstreamed(status=200, content_type="text/plain", body=whole)
    assert (told.text, told.reasoning, told.tool_calls) == ("hi", "hm", (ToolCall("c", "f", '{"x":1}'),))
    assert (told.error.kind, told.usage, told.finish_reason) == (
        "not_streamed",
        Usage(7, 25, 3, 20),
        "completed",
    )
    assert answer([whole]).error.kind == "not_streamed"
