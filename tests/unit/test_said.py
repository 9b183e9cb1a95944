"""What a server says is harmless once it has passed: no key, no terminal control, bounded."""

import pytest

from harness.said import shown, without_key

KEY = "key-4711-secret"


@pytest.mark.parametrize(
    ("said", "fit"),
    [
        pytest.param("plain words", "plain words", id="plain"),
        pytest.param("\x1b[31mred\x07", "\\x1b[31mred\\x07", id="escape-sequences"),
        pytest.param("a\x00b\x7fc\x9bd", "a\\x00b\\x7fc\\x9bd", id="nul-del-c1"),
        pytest.param("two\nlines\r\t", "two\\nlines\\r\\t", id="lines"),
        pytest.param("\u202er\u2066l\u2069", "\\u202er\\u2066l\\u2069", id="bidi"),
        pytest.param("half \ud800", "half ?", id="surrogate"),
        pytest.param("ümläut 漢字 🙂", "ümläut 漢字 🙂", id="other-scripts"),
        pytest.param("x" * 20, "x" * 20, id="just-fits"),
        pytest.param("x" * 21, "x" * 19 + "…", id="too-long"),
        pytest.param("\x00" * 20, "\\x00" * 4 + "\\x0…", id="long-by-escapes"),
    ],
)
def test_shown(said, fit):
    assert shown(said, length=20) == fit


@pytest.mark.parametrize(
    ("said", "key", "left"),
    [
        pytest.param(f"Bearer {KEY}!", KEY, "Bearer …!", id="whole"),
        pytest.param(f"{KEY}{KEY}", KEY, "……", id="twice"),
        pytest.param('{"key":"a\\"b-c-d-e"}', 'a"b-c-d-e', '{"key":"…"}', id="as-json"),
        pytest.param("EMPTY", "EMPTY", "EMPTY", id="no-key"),
        pytest.param("words", None, "words", id="none"),
        pytest.param("my key-4711-s…", KEY, "my key-4711-s…", id="not-cut"),
    ],
)
def test_without_key(said, key, left):
    assert without_key(said, key) == left


@pytest.mark.parametrize("length", range(len("you sent "), len("you sent ") + len(KEY) + 1))
@pytest.mark.parametrize("mark", ["", "…"])
def test_no_more_than_a_scrap_of_a_key_is_left_where_a_text_was_cut(length, mark):
    left = without_key(f"you sent {KEY}"[:length] + mark, KEY, cut=True)
    assert left.startswith("you sent")
    assert KEY[:6] not in left
