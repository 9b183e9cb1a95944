"""A WebSocket's frames, cut anywhere."""

import contextlib
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from harness.client.frames import BrokenError, FrameReader, Opcode
from tests.websocket_server import PING, frame


@st.composite
def streams(draw):
    """(bytes, what they say): messages whole or in pieces, with pings between."""
    said, data = [], b""
    for payload in draw(st.lists(st.binary(max_size=200), min_size=1, max_size=6)):
        if draw(st.booleans()):
            middle = draw(st.integers(0, len(payload)))
            data += frame(payload[:middle], last=False)
            if draw(st.booleans()):
                data += frame(b"ping", PING)
                said.append((Opcode.PING, b"ping"))
            data += frame(payload[middle:], 0)
        else:
            data += frame(payload)
        said.append((Opcode.TEXT, payload))
    return data, said


@given(streams(), st.lists(st.integers(0, 1500)))
def test_any_cut_gives_the_same_messages(stream, cuts):
    data, said = stream
    reader, heard = FrameReader(), []
    places = sorted({0, *(cut for cut in cuts if cut < len(data)), len(data)})
    for start, end in pairwise(places):
        heard += reader.feed(data[start:end])
    assert heard == said
    assert reader.clean


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_junk_raises_nothing_but_that_it_is_junk(data, more):
    reader = FrameReader()
    with contextlib.suppress(BrokenError):
        list(reader.feed(data))
        list(reader.feed(more))


@given(streams(), st.integers(1, 1000))
def test_a_stream_that_stops_amid_a_message_is_not_clean(stream, missing):
    data, said = stream
    reader = FrameReader()
    heard = list(reader.feed(data[: max(1, len(data) - missing)]))
    assert heard == said[: len(heard)]
    assert not reader.clean or len(heard) < len(said)
