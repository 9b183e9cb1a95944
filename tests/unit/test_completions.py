"""Dialects openai-completions and mistral-fim: chat's reading of `text`, and what is sent."""

from dataclasses import replace

import orjson
import pytest

from harness.values import Block, EventKind, Request, Role, Usage
from harness.wire import DIALECTS
from harness.wire.words import words
from tests.unit.test_decode import FILES, decode_file, differences

REQUEST = Request(
    model="m", blocks=(Block("s", 2, Role.SYSTEM), Block("u", 1, Role.USER, text="def f():")), max_tokens=9
)
SUFFIX = (Block("x", 0, Role.USER, text="\n"), Block("y", 2, Role.USER))


def event(**fields):
    return b"data: " + orjson.dumps(fields) + b"\n\n"


def text(said, index=0, **more):
    return event(id="c", choices=[{"index": index, "text": said, "finish_reason": None, **more}])


def answer(*pieces, dialect="openai-completions"):
    decoder = DIALECTS[dialect].decoder()
    for at, piece in enumerate(pieces, start=1):
        decoder.feed(piece, at)
    return decoder.answer(ended=True)


def body(request, dialect="openai-completions"):
    return orjson.loads(DIALECTS[dialect].encode(request).body)


def test_the_public_case_of_legacy_completions():
    (case,) = [c for c in orjson.loads(FILES[0].read_bytes()) if c["protocol"] == "openai-completions"]
    (line,) = [line for line in decode_file(FILES[0]) if line["id"] == case["id"]]
    assert differences(case["expect"], line) == {}


def test_texts_are_joined_and_empty_ones_are_no_output():
    told = answer(text(""), text("a"), text(None), text("b", finish_reason="stop"), b"data: [DONE]\n\n")
    assert (told.text, told.finish_reason, told.error) == ("ab", "stop", None)
    assert list(told.high_ns) == [2, 4]
    assert told.done_ns == 5


def test_running_totals_give_tokens_per_event():
    """vLLM and SGLang with `continuous_usage_stats`: 1, 3 and 4 tokens so far."""
    pieces = [
        event(choices=[{"index": 0, "text": said}], usage={"prompt_tokens": 5, "completion_tokens": total})
        for said, total in (("a", 1), ("bcd", 3), ("e", 4))
    ]
    told = answer(*pieces, text("", finish_reason="length"))
    assert list(told.tokens) == [1, 2, 1]
    assert told.usage == Usage(5, 4)


def test_several_choices_are_kept_apart():
    told = answer(text("a"), text("x", index=1), text("b", finish_reason="stop"))
    assert (told.text, told.choices[1].text) == ("ab", "x")


def test_without_an_end_mark_and_a_reason_it_is_truncated():
    assert answer(text("a")).error.kind == "truncated"


def test_an_answer_sent_at_once_keeps_its_text():
    whole = orjson.dumps(
        {"choices": [{"index": 0, "text": "hi", "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}
    )
    told = DIALECTS["openai-completions"].unstreamed(status=200, content_type="application/json", body=whole)
    assert (told.text, told.error.kind, list(told.high_ns)) == ("hi", "not_streamed", [])


def test_what_is_sent():
    assert DIALECTS["openai-completions"].encode(REQUEST).path == "/completions"
    assert body(REQUEST) == {
        "model": "m",
        "prompt": f"{words('s', 2)} def f():",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 9,
    }


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        pytest.param({"suffix": SUFFIX}, {"suffix": f"\n {words('y', 2)}"}, id="fill-in"),
        pytest.param({"min_tokens": 9}, {"min_tokens": 9, "ignore_eos": True}, id="forced-length"),
        pytest.param({"service_tier": "fast"}, {"service_tier": "fast"}, id="tier"),
        pytest.param({"x_plan": {"k": 1}}, {"x_plan": {"k": 1}}, id="plan"),
        pytest.param({"tools": ("read",)}, {}, id="no-tools"),
        pytest.param(
            {"extra_body": {"max_tokens": 2, "echo": True}}, {"max_tokens": 2, "echo": True}, id="extra"
        ),
    ],
)
def test_options(changes, fields):
    assert body(replace(REQUEST, **changes)) == body(REQUEST) | fields


def test_mistral_is_sent_nothing_that_it_does_not_know():
    sent = replace(REQUEST, suffix=SUFFIX, min_tokens=3, tools=("read",))
    assert DIALECTS["mistral-fim"].encode(sent).path == "/fim/completions"
    assert body(sent, "mistral-fim") == {
        "model": "m",
        "prompt": f"{words('s', 2)} def f():",
        "suffix": f"\n {words('y', 2)}",
        "stream": True,
        "max_tokens": 9,
        "min_tokens": 3,
    }


def test_mistral_tells_usage_on_the_chunk_that_ends_the_choice():
    first = event(id="m", choices=[{"index": 0, "delta": {"role": "assistant", "content": "return a"}}])
    parts = [{"type": "text", "text": " + b"}]
    last = event(
        id="m",
        choices=[{"index": 0, "delta": {"content": parts}, "finish_reason": "stop"}],
        usage={"prompt_tokens": 9, "completion_tokens": 5, "service_tier": "priority"},
    )
    told = answer(first, last, b"data: [DONE]\n\n", dialect="mistral-fim")
    assert (told.text, told.finish_reason, told.usage) == ("return a + b", "stop", Usage(9, 5))
    assert (told.tier_served, told.request_id) == ("priority", "m")
    assert [tuple(EventKind)[kind] for kind in told.kinds] == ["text", "text"]
