"""For every dialect: any cut into reads gives the same answer; bounds hold the truth; junk never raises."""

import itertools

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.decode import facts
from harness.values import ErrorKind, Progress
from harness.wire import DIALECTS, sse
from tests.shapes import SHAPES

text = st.text(max_size=8) | st.text('"\\{}[],:\n aé🚀', max_size=8)
shapes = st.sampled_from(list(SHAPES.values()))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**63) | st.floats() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)


def keys_of(value):
    """All keys of an event, also those inside."""
    if isinstance(value, dict):
        return set(value).union(*map(keys_of, value.values()))
    return set().union(*map(keys_of, value)) if isinstance(value, list | tuple) else set()


KEYS = sorted(
    keys_of([[shape.text("a"), shape.others] for shape in SHAPES.values()])
    | {"reasoning_content", "reasoning_details", "refusal", "function_call", "message", "summary", "code"}
    | {"service_tier", "completion_tokens_details", "prompt_tokens_details", "reasoning_tokens", "metadata"}
    | {"total_usage", "total_output_tokens", "total_thought_tokens", "steps", "outputs", "promptFeedback"}
    | {
        "custom",
        "input",
        "detail",
        "errors",
        "object",
        "thinking",
        "reasoning_text",
        "output",
        "part",
        "item",
    }
    | {"cachedContentTokenCount", "trafficType", "partialArgs", "time_info", "queue_time", "total_duration"}
)
odd_values = st.recursive(
    json_values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)
often = settings(deadline=None, max_examples=400)  # the machine may be busy, and the shapes are many


def spoilt(event, odd, place):
    """An event with one of its values, at any depth, replaced by an odd one."""
    if place == 0 or not isinstance(event, dict | list) or not event:
        return odd
    keys = list(event) if isinstance(event, dict) else list(range(len(event)))
    at = keys[place % len(keys)]
    copy = dict(event) if isinstance(event, dict) else list(event)
    copy[at] = spoilt(event[at], odd, place // len(keys))
    return copy


@st.composite
def odd_bodies(draw):
    shape = draw(shapes)
    known = st.sampled_from([shape.text("a"), *shape.others])
    one = st.builds(spoilt, known, odd_values, st.integers(1, 500)) | odd_values
    events = draw(st.lists(one, max_size=4))
    return shape, shape.body([shape.frame(event) for event in events])


def cut(body, places):
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[a:b] for a, b in itertools.pairwise(edges)]


def decode(dialect, pieces, stamps=None):
    decoder = DIALECTS[dialect].decoder()
    for piece, at in zip(pieces, stamps or range(1, len(pieces) + 1), strict=True):
        assert decoder.feed(piece, at) in Progress
    return decoder.answer(ended=True)


def content(answer):
    times = {"ttft_ms", "first_text_ms", "first_tool_ms", "event_ms", "exact", "last_output_ms", "tpot_ms"}
    told = {key: value for key, value in facts(answer, end_ns=0).items() if key not in times | {"done_ms"}}
    return told | {"timing": answer.server_timing, "kinds": list(answer.kinds)}


def test_every_dialect_has_a_shape():
    assert {shape.dialect for shape in SHAPES.values()} == set(DIALECTS)


@often
@given(data=st.data(), places=st.lists(st.integers(0, 10_000)))
def test_any_cut_gives_the_same_answer(data, places):
    shape = data.draw(shapes)
    event = text.map(shape.text) | st.sampled_from(shape.others)
    frame = event.map(shape.frame) | st.sampled_from([shape.broken, *shape.silent])
    line_end = data.draw(
        st.sampled_from([b"\n", b"\r\n", b"\r"] if shape.dialect != "ollama" else [b"\n", b"\r\n"])
    )
    body = shape.body(data.draw(st.lists(frame))).replace(b"\n", line_end)
    assert content(decode(shape.dialect, cut(body, places))) == content(decode(shape.dialect, [body]))


@often
@given(
    data=st.data(),
    places=st.lists(st.integers(0, 10_000), max_size=12),
    steps=st.lists(st.integers(0, 2), min_size=14, max_size=14),
)
def test_bounds_are_those_of_the_reads(data, places, steps):
    """The oracle works on byte offsets: which stamp each byte came with, and where stamps change."""
    shape = data.draw(shapes)
    said = st.text(min_size=1, max_size=4).map(lambda said: (shape.frame(shape.text(said)), True))
    quiet = st.sampled_from([*shape.silent, shape.frame({})]).map(lambda silent: (silent, False))
    frames = data.draw(st.lists(st.one_of(said, quiet), max_size=8))
    if shape.opening:  # what stands between elements is of no event
        parted = [part for frame in frames for part in ((shape.between, False), frame)]
        frames = [(shape.opening, False), *parted[1:]]
    body = b"".join(data for data, _ in frames)
    pieces = [piece for piece in cut(body, places) if piece]  # without bytes: "the read went on"
    stamps = [10 + sum(steps[: n + 1]) for n in range(len(pieces))]
    of_byte = [at for piece, at in zip(pieces, stamps, strict=True) for _ in piece]
    told = decode(shape.dialect, pieces, stamps)
    ends = list(itertools.accumulate(len(data) for data, _ in frames))
    high = [of_byte[end - 1] for end, (_, output) in zip(ends, frames, strict=True) if output]
    low = []
    for end, (_, output) in zip(ends, frames, strict=True):
        at = of_byte[end - 1]
        if output:
            ends_its_read = end == len(body) or of_byte[end] != at
            low.append(at if ends_its_read else max((s for s in of_byte if s < at), default=0))
    assert list(told.high_ns) == high
    assert list(told.low_ns) == low


@often
@given(bodies=odd_bodies(), places=st.lists(st.integers(0, 500), max_size=4))
def test_odd_json_never_raises(bodies, places):
    shape, body = bodies
    answer = decode(shape.dialect, cut(body, places))
    assert orjson.dumps(facts(answer, end_ns=0))
    assert len(answer.high_ns) == len(answer.low_ns) == len(answer.kinds) == len(answer.tokens)
    assert all(type(took) in {int, float} and took >= 0 for took in answer.server_timing.values())
    assert content(answer) == content(decode(shape.dialect, [body]))


@often
@given(data=st.data(), ended=st.booleans())
def test_junk_never_raises(data, ended):
    shape = data.draw(shapes)
    parts = [
        b"data: ",
        b"\n\n",
        b"\r",
        b"event: error\n",
        b"[DONE]",
        b'{"choices":[{"delta":',
        b"[",
        b"]",
        b"}",
    ]
    odd = [
        b'"\\ud800"',
        b"NaN",
        b"\xef\xbb\xbf",
        b"\xef",
        b"[" * 2000,
        b'"',
        b"\\",
        shape.frame(shape.text("x")),
    ]
    junk = data.draw(st.lists(st.binary(max_size=40) | st.sampled_from(parts + odd)))
    decoder = DIALECTS[shape.dialect].decoder()
    for at, piece in enumerate(junk):
        decoder.feed(piece, at)
    told = decoder.answer(ended=ended)
    assert orjson.dumps(facts(told, end_ns=0))
    assert content(decode(shape.dialect, junk)) == content(decode(shape.dialect, [b"".join(junk)]))


@often
@given(
    name=st.sampled_from(list(DIALECTS)),
    status=st.integers(100, 599),
    body=st.binary() | odd_values.map(orjson.dumps),
)
def test_refusals_never_raise(name, status, body):
    assert DIALECTS[name].unstreamed(status=status, content_type=None, body=body).error.message


@pytest.mark.parametrize("name", SHAPES)
def test_a_long_event_is_read_and_an_endless_one_is_given_up(name):
    shape = SHAPES[name]
    long = shape.frame(shape.text("word " * 120_000))
    whole = decode(shape.dialect, [shape.opening + long[:9], long[9:]])
    assert len(whole.text) == 600_000
    decoder = DIALECTS[shape.dialect].decoder()
    pieces = [shape.endless, *[b"word " * 200_000] * (1 + sse.MAX_EVENT_BYTES // 1_000_000)]
    said = [decoder.feed(piece, at) for at, piece in enumerate(pieces)]
    assert (said[-1], Progress.DONE in said[:-1]) == (Progress.DONE, False)
    assert decoder.answer(ended=False).error.kind is ErrorKind.TOO_LARGE
