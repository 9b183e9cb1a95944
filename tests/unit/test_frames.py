"""The frame readers beside that of events: lines, a JSON array, and the one that finds out."""

import pytest

from harness.wire.json_array import ALONE, ElementReader
from harness.wire.ndjson import LineReader
from harness.wire.sse import MAX_EVENT_BYTES
from harness.wire.sse_or_array import EitherReader

LINES = [
    pytest.param(b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}'], id="LF"),
    pytest.param(b'{"a":1}\r\n{"b":2}\r\n', [b'{"a":1}\r', b'{"b":2}\r'], id="CRLF"),
    pytest.param(b'\n \n{"a":1}\n\n\r\n{"b":2}\n\n', [b'{"a":1}', b'{"b":2}'], id="blank-lines"),
    pytest.param(b'\xef\xbb\xbf{"a":1}\n', [b'{"a":1}'], id="BOM"),
    pytest.param(b'{"a":1}\nhello\n', [b'{"a":1}', b"hello"], id="no-JSON"),
    pytest.param(b'{"a":1}\n{"b":', [b'{"a":1}', b'{"b":'], id="without-its-end"),
    pytest.param('{"a":"\u2028\u0085é"}\n'.encode(), ['{"a":"\u2028\u0085é"}'.encode()], id="no-ends"),
    pytest.param(b"\n\n \n", [], id="nothing"),
]
ARRAYS = [
    pytest.param(b'[{"a":1},\r\n{"b":2}\n]', [b'{"a":1}', b'{"b":2}'], id="array"),
    pytest.param(b'[{"a":{"b":[{}]}},{}]', [b'{"a":{"b":[{}]}}', b"{}"], id="nested"),
    pytest.param(
        rb'[{"a":"}\"]{\\"},{"b":"\\\\\""}]', [rb'{"a":"}\"]{\\"}', rb'{"b":"\\\\\""}'], id="strings"
    ),
    pytest.param(b' \r\n[ , {"a":1} ] \n', [b'{"a":1}'], id="blanks"),
    pytest.param(b'[{"a":1},{"b"', [b'{"a":1}', b'{"b"'], id="without-its-end"),
    pytest.param(b"[]", [], id="empty"),
    pytest.param(b"[{]{}]", [b"{]", b"{}"], id="wrong-bracket"),
]


def fed(reader, pieces):
    return [payload for piece in pieces for payload in reader.feed(piece)] + reader.flush()


def check_cuts(reader, stream, payloads):
    for cut in range(len(stream) + 1):
        assert fed(reader(), [stream[:cut], stream[cut:]]) == payloads, f"cut at {cut}"
    assert fed(reader(), [bytes([byte]) for byte in stream]) == payloads


@pytest.mark.parametrize(("stream", "payloads"), LINES)
def test_lines_wherever_the_stream_is_cut(stream, payloads):
    check_cuts(LineReader, stream, payloads)


@pytest.mark.parametrize(("stream", "payloads"), ARRAYS)
def test_objects_wherever_the_stream_is_cut(stream, payloads):
    check_cuts(ElementReader, stream, payloads)
    check_cuts(EitherReader, stream, payloads)
    check_cuts(EitherReader, b"\xef\xbb\xbf" + stream, payloads)


@pytest.mark.parametrize(
    ("stream", "payloads"),
    [
        pytest.param(b'data: {"a":1}\n\ndata: [1]\n\n', [b'{"a":1}', b"[1]"], id="events"),
        pytest.param(b"\r\n\n: hi\n\nevent: x\ndata: a\n\n", [b"a"], id="blanks-and-comments"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [b"a"], id="BOM"),
        pytest.param(b"\xef\xbbdata: a\n\ndata: b\n\n", [b"b"], id="half-a-BOM"),
        pytest.param(b"data: a", [b"a"], id="without-its-end"),
        pytest.param(b"<p>no stream</p>", [], id="a-page"),
        pytest.param(b"\xef\xbb", [], id="half-a-BOM-alone"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_events_wherever_the_stream_is_cut(stream, payloads):
    check_cuts(EitherReader, stream, payloads)


@pytest.mark.parametrize(
    ("reader", "event"),
    [(LineReader, b'{"a":1}\n'), (ElementReader, b'{"a":"}"}'), (EitherReader, b"data: a\n\n")],
)
def test_an_event_is_due_with_the_byte_that_ends_it(reader, event):
    one = reader()
    for _ in range(2):
        assert [one.feed(bytes([byte])) for byte in event[:-1]] == [[]] * (len(event) - 1)
        assert not one.clean
        assert one.feed(event[-1:]) == [event.strip().removeprefix(b"data: ")]
        assert one.clean


@pytest.mark.parametrize(
    ("reader", "pieces", "clean"),
    [
        pytest.param(LineReader, [b"{}\n", b"{}\n"], True, id="line"),
        pytest.param(LineReader, [b"{}\n{}\n"], True, id="lines"),
        pytest.param(LineReader, [b"{}\n\n"], False, id="blank-line-behind"),
        pytest.param(LineReader, [b"{}\n", b"\n"], False, id="blank-line-alone"),
        pytest.param(LineReader, [b"{}\n{"], False, id="begun-line"),
        pytest.param(ElementReader, [b"[{}"], True, id="element"),
        pytest.param(ElementReader, [b"[{}", b",{}"], True, id="comma-before"),
        pytest.param(ElementReader, [b"[{},"], False, id="comma-behind"),
        pytest.param(ElementReader, [b"[{}", b"]"], False, id="end"),
        pytest.param(ElementReader, [b"[{},{"], False, id="begun-element"),
        pytest.param(EitherReader, [b"data: a\n\n", b"data: b\n\n"], True, id="event"),
        pytest.param(EitherReader, [b"data: a\n\n", b":\n\n"], False, id="comment"),
        pytest.param(EitherReader, [b"[{}"], True, id="either-element"),
    ],
)
def test_clean_is_exact(reader, pieces, clean):
    one = reader()
    for piece in pieces:
        if one.whole(piece) is None:
            one.feed(piece)
    assert one.clean is clean


def test_the_short_way_gives_what_the_long_way_does():
    one = LineReader()
    assert one.whole(b"{}\n") is None  # a BOM may stand there
    assert one.feed(b"{}\n") == [b"{}"]
    assert one.whole(b'{"a":1}\n') == b'{"a":1}'
    assert [one.whole(data) for data in (b"", b"\n", b"{}\n{}\n", b"{}", b" \n")] == [None] * 5
    assert one.feed(b'{"b"') == []
    assert one.whole(b":1}\n") is None  # the end of a begun line
    either = EitherReader()
    assert either.whole(b"data: a\n\n") is None
    assert either.feed(b"data: a\n\n") == [b"a"]
    assert either.whole(b"data: b\n\n") == b"b"


def test_an_object_alone_is_told_by_its_name():
    one = ElementReader()
    assert one.feed(b'{"a":1} ') == [b'{"a":1}']
    assert one.names == {0: ALONE}
    assert one.feed(b'[{"a":1}') == [b'{"a":1}']
    assert one.names == {}


def test_what_is_no_object_is_kept_to_be_shown_and_bounded():
    one = EitherReader()
    assert one.feed(b'[1, "two", {}, three]') == [b"{}"]
    assert one.junk == b'1"two"three'
    one.feed(b"x" * 100_000)
    assert len(one.junk) == 4096


@pytest.mark.parametrize(
    ("reader", "start"),
    [(LineReader, b"{"), (ElementReader, b'[{"'), (EitherReader, b'[{"'), (EitherReader, b"data: ")],
)
def test_an_endless_event_is_given_up(reader, start):
    one = reader()
    one.feed(start + b"x" * (MAX_EVENT_BYTES - 100))
    assert not one.too_large
    one.feed(b"x" * 200)
    assert one.too_large
    assert one.feed(b"\n\n") + one.feed(b'"}') == []
    assert len(one.flush()) == 0


@pytest.mark.parametrize(
    ("reader", "blank"), [(LineReader, b" \n"), (ElementReader, b" \n"), (EitherReader, b"\n")]
)
def test_endless_blanks_are_not_kept(reader, blank):
    one = reader()
    for _ in range(5):
        one.feed(blank * 100_000)
    assert not one.too_large
    held = [getattr(one, name, b"") for name in ("_buffer", "_held")]
    assert sum(len(part) for part in held) < 10_000
