"""What the simulator reads out of a request's body."""

import pytest

from harness.simulator.asked import Place
from harness.simulator.dialects.chat import parse

ANYWHERE = Place({}, {}.get)


def prefixes(*messages):
    return parse({"model": "m", "messages": list(messages)}, ANYWHERE).prefixes


def said(content, role="user", **more):
    return {"role": role, "content": content, **more}


CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"input":"here now"}'}}


@pytest.mark.parametrize(
    ("message", "words"),
    [
        pytest.param(said("one two three"), 3, id="plain"),
        pytest.param(said(" one two three"), 3, id="as streamed, with a blank before each word"),
        pytest.param(said(""), 0, id="empty"),
        pytest.param(
            said([{"type": "text", "text": "one two"}, {"type": "text", "text": "three"}]), 3, id="parts"
        ),
        pytest.param(said(None, "assistant", tool_calls=[CALL]), 3, id="tool call"),
        pytest.param(said("one", "assistant", tool_calls=[CALL]), 4, id="text and tool call"),
        pytest.param(said("one two", "tool", tool_call_id="1"), 2, id="tool result"),
    ],
)
def test_words_are_counted_as_tokens(message, words):
    assert [prefix.tokens for prefix in prefixes(message)] == [words]


def test_prefixes_add_up_and_are_equal_where_the_words_are():
    short = prefixes(said("be kind", "system"), said("hello"))
    long = prefixes(said("be kind", "system"), said("hello"), said("yes", "assistant"))
    assert [prefix.tokens for prefix in long] == [2, 3, 4]
    assert long[:2] == short


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([said("be kind"), said("hello")], id="role"),
        pytest.param([said("be good", "system"), said("hello")], id="words"),
        pytest.param([said("hello")], id="a message less"),
    ],
)
def test_a_difference_anywhere_before_changes_the_last_prefix(other):
    assert prefixes(*other)[-1].key != prefixes(said("be kind", "system"), said("hello"))[-1].key
