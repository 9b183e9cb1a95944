"""The frame reader: every way to end a line, wherever the bytes are cut."""

import pytest

from harness.wire import sse
from harness.wire.sse import FrameReader

STREAMS = [
    pytest.param(b"data: a\n\ndata: b\n\n", [b"a", b"b"], id="LF"),
    pytest.param(b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"], id="CRLF"),
    pytest.param(b"data: a\r\rdata: b\r\r", [b"a", b"b"], id="CR"),
    pytest.param(b"data: a\r\n\ndata: b\n\r\ndata: c\n\rdata: d\r\r\n", [b"a", b"b", b"c", b"d"], id="mixed"),
    pytest.param(b"data: a\r\rdata: b\n\n", [b"a", b"b"], id="CR-then-LF"),
    pytest.param(b"data:a\n\ndata:  a\n\n", [b"a", b" a"], id="one-optional-blank"),
    pytest.param(b"data: a\ndata: b\ndata:\n\n", [b"a\nb\n"], id="data-lines-join"),
    pytest.param(b": hello\n\ndata: a\n: between\n\n:\n\n", [b"a"], id="comments"),
    pytest.param(b"\n\n\ndata: a\n\n\n\ndata: b\n\n\n", [b"a", b"b"], id="blank-lines"),
    pytest.param(b"data\n\ndata:\n\nevent: ping\n\nid: 1\n\nretry: 9\n\n", [b"", b""], id="empty"),
    pytest.param(b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", [b"a"], id="BOM-only-first"),
    pytest.param(
        "data: a\u2028b\u0085c\x0b\x0c\x1e\n\n".encode(),
        ["a\u2028b\u0085c\x0b\x0c\x1e".encode()],
        id="no-ends",
    ),
    pytest.param(b"id: 7\ndata: a\nevent: x\n\n", [b"a"], id="other-fields"),
    pytest.param(b"error: a\n\ndata: b\n\n", [b"a", b"b"], id="an-error-of-llama.cpp"),
    pytest.param(b"database: a\n\nDATA: b\n\n data: c\n\n", [], id="no-fields"),
    pytest.param(b"data: a\n\ndata: b", [b"a", b"b"], id="flushed-without-line-end"),
    pytest.param(b"data: a\n\ndata: b\r\n", [b"a", b"b"], id="flushed-without-blank-line"),
]


@pytest.mark.parametrize(("stream", "payloads"), STREAMS)
def test_payloads_wherever_the_stream_is_cut(stream, payloads):
    for cut in range(len(stream) + 1):
        reader = FrameReader()
        got = reader.feed(stream[:cut]) + reader.feed(stream[cut:]) + reader.flush()
        assert got == payloads, f"cut at {cut}"


@pytest.mark.parametrize(("stream", "payloads"), STREAMS)
def test_payloads_byte_by_byte(stream, payloads):
    reader = FrameReader()
    got = [payload for byte in stream for payload in reader.feed(bytes([byte]))]
    assert got + reader.flush() == payloads


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"\r\n\r", b"\n\r"])
def test_an_event_is_due_with_the_byte_that_ends_it(end):
    reader = FrameReader()
    assert reader.feed(b"data: a" + end[:-1]) == []
    assert reader.feed(end[-1:]) == [b"a"]
    assert reader.clean


@pytest.mark.parametrize(
    ("pieces", "clean"),
    [
        pytest.param([b"data: a\n\n"], True, id="event"),
        pytest.param([b":\n\n", b"data: a\n\n"], True, id="short-way"),
        pytest.param([b"data: a\r\n\r", b"\n"], True, id="rest-of-its-line-end"),
        pytest.param([b"data: a\n\nd"], False, id="next-begins"),
        pytest.param([b"data: a\n\n:\n\n"], False, id="comment-behind"),
        pytest.param([b"data: a\n\n\n"], False, id="blank-line-behind"),
        pytest.param([b"data: a\n\n\n\n"], False, id="blank-lines-behind"),
        pytest.param([b"data: a\n\nevent: ping\n\n"], False, id="event-without-data-behind"),
        pytest.param([b"data: a\n\n:", b"\n\n"], False, id="end-of-a-comment"),
        pytest.param([b"data: a\n"], False, id="no-blank-line"),
    ],
)
def test_clean_tells_whether_the_newest_byte_ends_an_event(pieces, clean):
    reader = FrameReader()
    for piece in pieces:
        reader.feed(piece)
    assert reader.clean is clean


def test_names_belong_to_the_payloads_that_were_just_returned():
    reader = FrameReader()
    assert reader.feed(b"data: a\n\nevent: x\ndata: b\n\nevent: ping\n\n") == [b"a", b"b"]
    assert reader.names == {1: "x"}
    assert reader.feed(b"data: c\n\n") == [b"c"]
    assert reader.names == {}


def test_what_is_no_field_is_kept_to_be_shown():
    reader = FrameReader()
    reader.feed(b'{"error":\n\n{"message": "no"}}')
    reader.flush()
    assert reader.junk == b'{"error":\n{"message": "no"}}\n'
    reader.feed(b"x" * 10_000 + b"\n\n")
    assert len(reader.junk) == sse.MAX_JUNK_BYTES


def test_an_event_without_end_is_given_up_at_the_bound(monkeypatch):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    reader = FrameReader()
    assert reader.feed(b"data: " + b"x" * 994) == []
    assert not reader.too_large
    assert reader.feed(b"x") == []
    assert reader.too_large
    assert reader.feed(b"\n\ndata: a\n\n") == reader.flush() == []


def test_what_has_ended_does_not_count_against_the_bound(monkeypatch):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    reader = FrameReader()
    assert len(reader.feed(b"data: " + b"x" * 5000 + b"\n\n" + b"data: a\n\n" * 500)) == 501
    assert not reader.too_large


def test_a_long_line_in_small_pieces_is_searched_once():
    reader = FrameReader()
    searched = []

    class Counting(bytearray):
        def find(self, sub, start=0):
            searched.append(len(self) - start)
            return super().find(sub, start)

    reader._buffer = Counting(b"data: ")
    for _ in range(1000):
        reader.feed(b"x" * 100)
    assert reader.feed(b"\n\n") == [b"x" * 100_000]
    assert sum(searched) < 110_000  # each byte about once, not the whole line at each piece
