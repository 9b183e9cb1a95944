"""Dialect llamacpp: what llama-server's own events mean, and what is sent."""

from dataclasses import replace

import orjson
import pytest

from harness.values import Block, Progress, Request, Role, Usage
from harness.wire import DIALECTS
from harness.wire.words import words

REQUEST = Request(model="m", blocks=(Block("s", 2, Role.SYSTEM), Block("u", 1, Role.USER)), max_tokens=9)


def event(**fields):
    return b"data: " + orjson.dumps(fields) + b"\n\n"


def piece(content, **more):
    return event(**{"index": 0, "content": content, "stop": False, **more})


def stop(**more):
    last = {"stop_type": "eos", "tokens_predicted": 4, "tokens_evaluated": 7, "tokens_cached": 10}
    return event(**{"index": 0, "content": "", "tokens": [], "stop": True, **last, **more})


def answer(*pieces, ended=True):
    decoder = DIALECTS["llamacpp"].decoder()
    for at, one in enumerate(pieces, start=1):
        decoder.feed(one, at)
    return decoder.answer(ended=ended)


def test_a_stream():
    progress = {"total": 7, "cache": 3, "processed": 5, "time_ms": 8}
    told = answer(
        piece("", tokens=[0], tokens_predicted=0, prompt_progress=progress),
        b":\n\n",
        piece("a", tokens=[5], tokens_predicted=1),
        piece("bc", tokens=[6], tokens_predicted=4),  # a character of three tokens, told with the last
        stop(timings={"cache_n": 3, "prompt_n": 4, "prompt_ms": 80.5, "predicted_ms": 12}),
    )
    assert (told.text, told.finish_reason, told.error, told.warnings) == ("abc", "eos", None, ())
    assert (list(told.high_ns), told.done_ns) == ([3, 4], 5)
    assert list(told.tokens) == [1, 3]
    assert told.usage == Usage(input_tokens=7, output_tokens=4, cached_tokens=3)
    assert told.server_timing == pytest.approx({"prompt_s": 0.0805, "completion_s": 0.012})


def test_where_no_total_is_told_the_lists_of_tokens_are_counted():
    told = answer(piece("a", tokens=[5]), piece("bc", tokens=[6, 7]), piece("", tokens=[8]), stop())
    assert list(told.tokens) == [1, 2]


def test_the_last_event_ends_the_call():
    decoder = DIALECTS["llamacpp"].decoder()
    assert decoder.feed(piece("a"), 1) is Progress.OUTPUT
    assert decoder.feed(stop(), 2) is Progress.DONE
    assert decoder.answer(ended=False).error is None


def test_the_last_event_may_bring_the_last_content():
    told = answer(piece("a", tokens_predicted=3), stop(content="b"))
    assert (told.text, list(told.high_ns), list(told.tokens)) == ("ab", [1, 2], [3, 1])


def test_several_prompts_end_with_the_last_of_them():
    told = answer(piece("a"), piece("x", index=1), stop(), piece("y", index=1), stop(index=1))
    assert (told.text, told.choices[1].text, told.done_ns) == ("a", "xy", 5)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"stop_type": "limit"}, "limit"),
        ({"stop_type": None, "stopped_word": True, "stopped_eos": False}, "word"),
        ({"stop_type": None, "stopped_limit": True}, "limit"),
        ({"stop_type": None}, "stop"),
    ],
)
def test_reasons_of_new_and_old_servers(told, reason):
    assert answer(piece("a"), stop(**told)).finish_reason == reason


def test_an_error_in_the_stream():
    said = {"code": 500, "message": "context full", "type": "server_error"}
    told = answer(piece("a"), event(error=said))
    assert (told.error.kind, told.error.message, told.text) == ("stream_error", "context full (500)", "a")


def test_cut_before_its_end():
    told = answer(piece("a", tokens_predicted=1, tokens_evaluated=7))
    assert (told.error.kind, told.usage) == ("truncated", Usage(7, 1))


def test_counts_that_cannot_be_true():
    told = answer(piece("a", tokens_predicted="4"), stop(tokens_predicted=-1, timings=[1]))
    assert (told.usage, told.warnings) == (Usage(input_tokens=7), ("implausible_usage",))
    assert (list(told.tokens), told.server_timing) == ([-1], {})


def test_an_answer_sent_at_once_keeps_its_text():
    whole = orjson.dumps({"content": "hi", "stop": True, "stop_type": "eos", "tokens_predicted": 2})
    told = DIALECTS["llamacpp"].unstreamed(status=200, content_type="application/json", body=whole)
    assert (told.text, told.error.kind, told.usage.output_tokens) == ("hi", "not_streamed", 2)


def test_a_refusal_has_the_servers_words():
    said = b'{"error":{"code":501,"message":"Infill is not supported by this model","type":"x"}}'
    told = DIALECTS["llamacpp"].unstreamed(status=501, content_type="application/json", body=said)
    assert told.error.message == "HTTP 501: Infill is not supported by this model"


def sent(**changes):
    request = DIALECTS["llamacpp"].encode(replace(REQUEST, **changes))
    return request.path, orjson.loads(request.body)


def test_what_is_sent():
    body = {"model": "m", "stream": True, "n_predict": 9, "prompt": f"{words('s', 2)} {words('u', 1)}"}
    assert sent() == ("/completion", body)
    assert sent(min_tokens=9) == ("/completion", body | {"ignore_eos": True})
    assert sent(service_tier="fast", tools=("read",)) == ("/completion", body)
    assert sent(extra_body={"return_progress": True}, x_plan={"k": 1}) == (
        "/completion",
        body | {"return_progress": True, "x_plan": {"k": 1}},
    )


def test_a_suffix_asks_for_the_infill():
    path, body = sent(suffix=(Block("x", 0, Role.USER, text="\n}"),))
    assert path == "/infill"
    assert body == {
        "model": "m",
        "stream": True,
        "n_predict": 9,
        "input_prefix": f"{words('s', 2)} {words('u', 1)}",
        "input_suffix": "\n}",
    }
