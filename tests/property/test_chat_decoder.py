"""Any cut into reads gives the same answer; bounds contain the truth; junk never raises."""

import itertools

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.decode import facts
from harness.values import Progress
from harness.wire import DIALECTS

text = st.text(max_size=8)
deltas = st.one_of(
    st.fixed_dictionaries({"content": text}),
    st.fixed_dictionaries({"reasoning": text, "content": st.none()}),
    st.fixed_dictionaries(
        {
            "tool_calls": st.lists(
                st.fixed_dictionaries(
                    {"function": st.fixed_dictionaries({"name": text, "arguments": text})},
                    optional={"index": st.integers(0, 2), "id": text},
                ),
                max_size=2,
            )
        }
    ),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**63) | st.floats() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    "choices",
    "delta",
    "index",
    "content",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "refusal",
    "tool_calls",
    "function_call",
    "function",
    "name",
    "arguments",
    "id",
    "usage",
    "completion_tokens",
    "prompt_tokens",
    "error",
    "message",
    "finish_reason",
    "service_tier",
    "type",
    "text",
    "thinking",
    "summary",
    "code",
]
odd_values = st.recursive(
    json_values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)
odd_events = st.one_of(
    odd_values,
    odd_values.map(lambda odd: {"choices": odd}),
    odd_values.map(lambda odd: {"choices": [odd], "usage": odd}),
    odd_values.map(lambda odd: {"choices": [{"index": 0, "delta": odd}]}),
    st.tuples(st.sampled_from(KEYS), odd_values).map(lambda pair: {"choices": [{"delta": dict([pair])}]}),
)
steady = settings(deadline=None)  # the machine may be busy


def frame(delta):
    return b"data: " + orjson.dumps({"id": "c", "choices": [{"index": 0, "delta": delta}]}) + b"\n\n"


def cut(body, places):
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[a:b] for a, b in itertools.pairwise(edges)]


def decode(pieces, stamps=None):
    decoder = DIALECTS["openai-chat"].decoder()
    for piece, at in zip(pieces, stamps or range(1, len(pieces) + 1), strict=True):
        assert decoder.feed(piece, at) in Progress
    return decoder.answer(ended=True)


def content(answer):
    times = {"ttft_ms", "first_text_ms", "first_tool_ms", "event_ms", "exact", "last_output_ms", "tpot_ms"}
    return {key: value for key, value in facts(answer, end_ns=0).items() if key not in times}


@steady
@given(
    frames=st.lists(st.one_of(deltas.map(frame), st.sampled_from([b":\n\n", b"data:\n\n", b"data: {\n\n"]))),
    line_end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    places=st.lists(st.integers(0, 10_000)),
)
def test_any_cut_gives_the_same_answer(frames, line_end, places):
    body = b"".join(frames).replace(b"\n", line_end)
    assert content(decode(cut(body, places))) == content(decode([body]))


@steady
@given(
    frames=st.lists(
        st.one_of(
            st.text(min_size=1, max_size=4).map(lambda said: (frame({"content": said}), True)),
            st.sampled_from([(b":\n\n", False), (frame({}), False), (b"event: ping\n\n", False)]),
        ),
        max_size=8,
    ),
    places=st.lists(st.integers(0, 10_000), max_size=12),
    steps=st.lists(st.integers(0, 2), min_size=14, max_size=14),
)
def test_bounds_are_those_of_the_reads(frames, places, steps):
    """The oracle works on byte offsets: which stamp each byte came with, and where stamps change."""
    body = b"".join(data for data, _ in frames)
    pieces = [piece for piece in cut(body, places) if piece]  # without bytes: "the read went on"
    stamps = [10 + sum(steps[: n + 1]) for n in range(len(pieces))]
    of_byte = [at for piece, at in zip(pieces, stamps, strict=True) for _ in piece]
    told = decode(pieces, stamps)
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


@settings(deadline=None, max_examples=200)
@given(events=st.lists(odd_events, max_size=4), places=st.lists(st.integers(0, 500), max_size=4))
def test_odd_json_never_raises(events, places):
    body = b"".join(
        b"data: " + orjson.dumps(event, option=orjson.OPT_NON_STR_KEYS) + b"\n\n" for event in events
    )
    answer = decode(cut(body, places))
    assert orjson.dumps(facts(answer, end_ns=0))
    assert len(answer.high_ns) == len(answer.low_ns) == len(answer.kinds) == len(answer.tokens)


@steady
@given(
    junk=st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from(
                [b"data: ", b"\n\n", b"\r", b"event: error\n", b"[DONE]", b'{"choices":[{"delta":']
            ),
            st.sampled_from([b'"\\ud800"', b"NaN", b"\xef\xbb\xbf", b"[" * 2000, frame({"content": "x"})]),
        )
    ),
    ended=st.booleans(),
)
def test_junk_never_raises(junk, ended):
    decoder = DIALECTS["openai-chat"].decoder()
    for at, piece in enumerate(junk):
        decoder.feed(piece, at)
    assert orjson.dumps(facts(decoder.answer(ended=ended), end_ns=0))


@steady
@given(status=st.integers(100, 599), body=st.binary() | odd_values.map(orjson.dumps))
def test_refusals_never_raise(status, body):
    assert DIALECTS["openai-chat"].unstreamed(status=status, content_type=None, body=body).error.message
