"""Times that servers tell of themselves, from where each of them puts them."""

import orjson
import pytest

from harness.wire import DIALECTS
from harness.wire.vendors import take_times


def told(event):
    timing = {}
    take_times(event, timing)
    return timing


GROQ = {"queue_time": 0.061, "prompt_tokens": 18, "prompt_time": 0.0002, "completion_tokens": 439}


@pytest.mark.parametrize(
    ("event", "timing"),
    [
        pytest.param(
            {
                "time_info": {
                    "queue_time": 2e-4,
                    "prompt_time": 0.016,
                    "completion_time": 1.1,
                    "total_time": 1.2,
                }
            },
            {"queue_s": 2e-4, "prompt_s": 0.016, "completion_s": 1.1, "total_s": 1.2},
            id="cerebras",
        ),
        pytest.param(
            {"x_groq": {"id": "r", "usage": GROQ}}, {"queue_s": 0.061, "prompt_s": 0.0002}, id="groq"
        ),
        pytest.param({"usage": GROQ}, {"queue_s": 0.061, "prompt_s": 0.0002}, id="groq-not-streamed"),
        pytest.param(
            {"usage": {"time_to_first_token": 0.09, "total_latency": 0.168, "start_time": 1721336361.4}},
            {"first_token_s": 0.09, "total_s": 0.168},
            id="sambanova",
        ),
        pytest.param(
            {
                "metrics": {
                    "queue_time_ms": 12.3,
                    "time_to_first_token_ms": 85.2,
                    "generation_time_ms": 1240.5,
                }
            },
            {"queue_s": 0.0123, "prompt_s": 0.0852, "completion_s": 1.2405},
            id="vllm",
        ),
        pytest.param(
            {"timings": {"prompt_n": 7, "prompt_ms": 29.898, "predicted_ms": 562.041}},
            {"prompt_s": 0.029898, "completion_s": 0.562041},
            id="llama.cpp",
        ),
        pytest.param(
            {"total_duration": 10**9, "load_duration": 2 * 10**8, "eval_duration": 5 * 10**8},
            {"total_s": 1.0, "load_s": 0.2, "completion_s": 0.5},
            id="ollama",
        ),
        pytest.param(
            {"x_sim": {"rtt_ms": 80, "queue_ms": 5}}, {"rtt_s": 0.08, "queue_s": 0.005}, id="our-simulator"
        ),
        pytest.param({"usage": {"cost": 0.95, "prompt_tokens": 3}, "provider": "x"}, {}, id="openrouter"),
    ],
)
def test_where_servers_put_their_times(event, timing):
    assert told(event) == pytest.approx(timing)


@pytest.mark.parametrize(
    "wrong", [-0.1, float("nan"), float("inf"), "0.1", None, True, [], 1e300, 10**400, {"queue_time": 1}]
)
def test_what_cannot_be_a_time_is_left_out(wrong):
    assert told({"time_info": {"queue_time": wrong, "total_time": 2}}) == {"total_s": 2}
    assert told({"total_duration": wrong, "x_groq": {"usage": {"queue_time": wrong}}}) == {}


@pytest.mark.parametrize("wrong", [None, 1, "queue_time", ["queue_time"], {"queue_time": None}])
def test_a_place_for_times_that_holds_none(wrong):
    assert told({"time_info": wrong, "x_groq": wrong, "usage": wrong, "timings": wrong}) == {}


def stream(*events):
    decoder = DIALECTS["openai-chat"].decoder()
    for at, event in enumerate(events, start=1):
        decoder.feed(b"data: " + orjson.dumps(event) + b"\n\n", at)
    return decoder.answer(ended=True)


def chunk(content=None, finish=None, **more):
    delta = {} if content is None else {"content": content}
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def test_times_of_a_stream_on_a_chunk_of_any_sort():
    queue = {"time_info": {"queue_time": 0.5}}
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    for last in (
        [chunk("a"), chunk(finish="stop", **queue)],
        [chunk("a"), chunk(finish="stop"), {"choices": [], "usage": usage, **queue}],
        [chunk("a", "stop", usage=usage, **queue)],
    ):
        assert stream(*last).server_timing == {"queue_s": 0.5}
    assert stream(chunk("a", "stop")).server_timing == {}


@pytest.mark.parametrize(
    ("dialect", "last"),
    [
        ("openai-chat", {"choices": []}),
        ("openai-completions", {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}),
        ("mistral-fim", {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        ("openai-responses", {"type": "response.completed", "response": {"status": "completed"}}),
        ("anthropic", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        ("llamacpp", {"content": "", "stop": True}),
        ("ollama", {"message": {"content": ""}, "done": True}),
        ("gemini", {"candidates": [{"finishReason": "STOP"}]}),
    ],
)
def test_every_dialect_takes_times_with_its_last_event(dialect, last):
    decoder = DIALECTS[dialect].decoder()
    body = orjson.dumps(last | {"x_sim": {"rtt_ms": 80, "queue_ms": 5}})
    decoder.feed(body + b"\n" if dialect == "ollama" else b"data: " + body + b"\n\n", 1)
    assert decoder.answer(ended=True).server_timing == pytest.approx({"rtt_s": 0.08, "queue_s": 0.005})


def test_usage_where_groq_and_moonshot_put_it():
    usage = {"prompt_tokens": 18, "completion_tokens": 439}
    groq = stream(chunk("a"), chunk(finish="stop", x_groq={"id": "r", "usage": {**usage, "queue_time": 1}}))
    last = chunk(finish="stop")
    last["choices"][0]["usage"] = usage
    for told_of in (groq, stream(chunk("a"), last)):
        assert (told_of.usage.input_tokens, told_of.usage.output_tokens) == (18, 439)
    assert stream(
        chunk("a"), chunk(finish="stop", usage=usage, x_groq={"usage": {"prompt_tokens": 9}})
    ).usage == (groq.usage)


def test_an_error_that_groq_puts_beside():
    answer = stream(chunk("a"), chunk(finish="stop", x_groq={"error": "over capacity"}))
    assert (answer.error.kind, answer.error.message) == ("stream_error", "over capacity")
