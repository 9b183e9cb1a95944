"""Events of dialects that name them, and what our decoder makes of a list of pieces."""

import orjson

from harness.values import EventKind
from harness.wire import DIALECTS


def named(kind, **fields):
    """An event with its `event:` line, as OpenAI and Anthropic send it."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **fields}))


def bare(kind, **fields):
    """The same without that line."""
    return b"data: " + orjson.dumps({"type": kind, **fields}) + b"\n\n"


def answer(dialect, *pieces, ended=True, messages=False):
    """Each piece comes in a read of its own, at 1, 2, 3 ns."""
    decoder = DIALECTS[dialect].decoder(messages=messages)
    for at, piece in enumerate(pieces, start=1):
        decoder.feed(piece, at)
    return decoder.answer(ended=ended)


def kinds(told):
    return [tuple(EventKind)[kind] for kind in told.kinds]
