"""Tokens are not events: what is believed of counts, and tokens of tool calls that no event carried."""

from array import array
from pathlib import Path

import orjson
import pytest

from harness.measure.calls import calls_of
from harness.measure.conclude import conclude
from harness.measure.metrics.call import swallowed_tokens
from harness.measure.metrics.registry import METRICS
from harness.measure.timeline import believed, records_of
from harness.recording import parse
from harness.records import TokenSource
from harness.results import FindingName
from harness.values import ToolCall, Usage
from harness.wire import DIALECTS
from tests.making import MS, a_call, a_task, a_timeline, an_answer, kept
from tests.unit.test_conclude import facts, found, names
from tests.unit.test_timeline import FACTS

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"


def recorded(name, dialect):
    """The record of a recorded call."""
    record = parse(orjson.loads((RECORDINGS / f"{name}.json").read_bytes()))
    decoder = DIALECTS[dialect].decoder()
    for at, data in record.reads:
        decoder.feed(data, at)
    timeline = a_timeline(decoder.answer(ended=record.whole), sent_ns=0, done_ns=record.done_ns)
    return records_of(timeline, FACTS, cut=False)[0]


# --- swallowed tokens ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dialect", "swallowed"),
    [
        # usage 76; 16 events of text, 22 of the call, each a token's: 71, 189 ms pass without an event
        pytest.param("llamacpp_chat_tools_required", "openai-chat", 76 - 38, id="chat"),
        pytest.param("llamacpp_responses_tools", "openai-responses", 76 - 39, id="responses"),
        # totals: 15, 6, seven times 1, 2; the rest of 51 behind the last
        pytest.param("llamacpp_agent_tool_call", "openai-chat", 14 + 5 + 51 - 30, id="with-totals"),
        # totals: 9, 4, then 1 an event of 60
        pytest.param("llamacpp_agent_tool_call_cut", "openai-chat", 0, id="less-than-a-fifth"),
        pytest.param("llamacpp_chat_usage_timings", "openai-chat", 0, id="text"),
        # usage 21, 11 events of about 8 characters: each holds two tokens
        pytest.param("aimock_chat_tools_parallel", "openai-chat", 0, id="long-events"),
        pytest.param("lcp_chat", "openai-chat", 0, id="no-usage"),
    ],
)
def test_tokens_of_a_tool_call_that_came_in_no_event(name, dialect, swallowed):
    call = recorded(name, dialect)
    assert call.swallowed_tokens == swallowed
    assert ("swallowed_tokens" in call.warnings) is (swallowed > 0)


def test_a_running_total_that_jumps_without_an_event_is_found():
    """sgl-project/sglang#36272: `completion_tokens` from 1 to 17, and no chunk between."""
    decoder = DIALECTS["openai-chat"].decoder()

    def chunk(at_ms, total, **delta):
        told = {"choices": [{"index": 0, "delta": delta}], "usage": {"completion_tokens": total}}
        decoder.feed(b"data: %b\n\n" % orjson.dumps(told), at_ms * MS)

    def tool(arguments):
        return [{"index": 0, "id": "t", "function": {"name": "f", "arguments": arguments}}]

    chunk(100, 1, content="I")
    for at_ms, total in ((110, 5), (120, 9), (130, 16)):
        chunk(at_ms, total, content="")
    chunk(140, 17, tool_calls=tool('{"a"'))
    chunk(150, 18, tool_calls=tool(":1}"))
    decoder.feed(b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n', 160 * MS)
    decoder.feed(b"data: [DONE]\n\n", 160 * MS)
    call, events = records_of(a_timeline(decoder.answer(ended=True)), FACTS, cut=False)
    assert events.tokens == [(1, 1), (16, 1), (1, 1)]
    assert (call.swallowed_tokens, call.token_source) == (15, TokenSource.EVENTS)
    assert METRICS["tpot_ms"].value(calls_of([call])) == 50 * MS / 17


@pytest.mark.parametrize(
    ("told", "streamed", "first_tool", "characters", "swallowed"),
    [
        pytest.param([None] * 40, 76, 20, 160, 36, id="usage-alone"),
        pytest.param([None] * 40, 76, None, 160, 0, id="no-tool"),
        pytest.param([None] * 40, 48, 20, 160, 0, id="a-few-signs"),
        pytest.param([None] * 40, 76, 20, 6 * 40, 0, id="events-of-several-tokens"),
        pytest.param([None] * 40, None, 20, 160, 0, id="unknown"),
        pytest.param([], 76, None, 0, 0, id="no-events"),
        pytest.param([1, 1, 17, 1, 1], 21, 2, 20, 16, id="a-jump"),
        pytest.param([1, 17, 1, 1, 1], 21, 2, 20, 0, id="a-jump-in-the-text"),
        pytest.param([10, 10, 10, 4], 34, 0, 120, 0, id="bundles"),
        pytest.param([3, 1, 5, 2, 6, 4], 21, 0, 90, 0, id="speculation"),
        pytest.param([1, 1, 1, 1], 20, 2, 20, 16, id="behind-the-last"),
        pytest.param([1, 1, None, 1], 20, 2, 20, 16, id="not-all-told"),
    ],
)
def test_swallowed_tokens(told, streamed, first_tool, characters, swallowed):
    assert (
        swallowed_tokens(told, streamed=streamed, first_tool=first_tool, characters=characters) == swallowed
    )


def test_swallowed_tokens_are_a_finding():
    calls = [
        a_call(call_id=str(i), output_tokens=76, streamed_events=38, swallowed_tokens=38 * (i < 2))
        for i in range(3)
    ]
    summary, _ = conclude(kept([a_task()], calls), facts())
    assert found(summary, FindingName.SWALLOWED_TOKENS) == (
        "in 2 of 3 calls 76 of 152 output tokens came in no event: tool calls passed unseen"
    )
    summary, _ = conclude(kept([a_task()], calls[2:]), facts())
    assert FindingName.SWALLOWED_TOKENS not in names(summary)


def test_a_call_of_several_choices_is_not_judged():
    answer = an_answer([[200 * MS, 1]], usage=Usage(5, 50), first_tool=0, choices={0: None, 1: None})
    assert records_of(a_timeline(answer), FACTS, cut=False)[0].swallowed_tokens == 0


# --- what is believed ----------------------------------------------------------------------------

TWO = [[200 * MS, 1], [210 * MS, 1]]
ENDED = {"finish_reason": "stop"}
CUT = {"finish_reason": None}


@pytest.mark.parametrize(
    ("events", "said", "told", "right"),
    [
        pytest.param(TWO, ENDED, Usage(9, 2, 3, 1), Usage(9, 2, 3, 1), id="all"),
        pytest.param(TWO, ENDED, Usage(0, 0, 0), None, id="a-server-that-does-not-count"),
        pytest.param(TWO, ENDED, Usage(0, 7, 0), Usage(None, 7), id="no-prompt-has-no-tokens"),
        pytest.param([], ENDED, Usage(9, 0), Usage(9, 0), id="no-output-has-none"),
        pytest.param(TWO, CUT, Usage(9, 1), Usage(9), id="the-number-of-the-beginning"),
        pytest.param([], CUT, Usage(9, 1), Usage(9), id="and-nothing-came"),
        pytest.param(TWO, CUT, Usage(9, 2), Usage(9, 2), id="a-running-total"),
        pytest.param(TWO, CUT | {"done_ns": 9}, Usage(9, 1), Usage(9, 1), id="the-end-mark-came"),
        pytest.param(TWO, CUT, None, None, id="nothing"),
    ],
)
def test_what_usage_cannot_mean_is_unknown(events, said, told, right):
    assert believed(an_answer(events, usage=told, **said)) == right


def test_running_totals_stand_in_where_usage_never_came():
    answer = an_answer(TWO, tokens=array("q", [2, 3]), **CUT)
    call, events = records_of(a_timeline(answer), FACTS, cut=True)
    assert (call.output_tokens, call.input_tokens) == (5, None)
    assert (call.token_source, events.tokens) == (TokenSource.EVENTS, [(2, 1), (3, 1)])


def test_a_broken_anthropic_stream_keeps_its_input_and_tells_no_output():
    decoder = DIALECTS["anthropic"].decoder()
    usage = {"input_tokens": 10, "output_tokens": 1}
    event = {"type": "message_start", "message": {"id": "m", "usage": usage}}
    decoder.feed(b"data: %b\n\n" % orjson.dumps(event), 1)
    for at in (2, 3):
        decoder.feed(b'data: {"type":"content_block_delta","delta":{"text":"a"}}\n\n', at)
    answer = decoder.answer(ended=False)
    call, _ = records_of(a_timeline(answer), FACTS, cut=False)
    assert answer.usage == Usage(10, 1)  # as on the wire
    assert (call.input_tokens, call.output_tokens, call.streamed_events) == (10, None, 2)
    assert call.token_source is TokenSource.COUNTED


def test_zeros_beside_output_are_told_as_odd():
    call = recorded("aimock_responses_text_reasoning", "openai-responses")
    assert (call.output_tokens, call.input_tokens, call.token_source) == (None, None, TokenSource.COUNTED)
    assert "implausible_usage" in call.warnings


def test_the_reason_for_an_incomplete_answer_is_kept():
    answer = an_answer(TWO, finish_reason="incomplete", incomplete_reason="max_output_tokens")
    call, _ = records_of(a_timeline(answer), FACTS, cut=False)
    assert (call.finish_reason, call.incomplete_reason) == ("incomplete", "max_output_tokens")


def test_what_the_server_says_is_made_fit_to_keep():
    answer = an_answer(TWO, incomplete_reason="a\x1b[31m" + "x" * 99, tool_calls=(ToolCall("", "", ""),))
    call, _ = records_of(a_timeline(answer), FACTS, cut=False)
    assert "\x1b" not in call.incomplete_reason
    assert len(call.incomplete_reason) == 64
