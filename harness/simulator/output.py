"""A plan becomes words, a piece an event; encoders dress them in a dialect. Pure.

A token is one English word with a blank before it. A tool call's name is its first token and a piece of
its own; the rest are pieces of its arguments, which are valid JSON when all of them are joined.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import orjson

from harness.simulator.asked import Asked, Plan
from harness.simulator.jobs import Job
from harness.simulator.prefix_cache import Prefix
from harness.values import EventKind

_TEXT = """
 the of and a to in is you that it he was for on are as with his they at be this have from or one had by
 word but not what all were we when your can said there use an each which she do how their if will up other
 about out many then them these so some her would make like him into time has look two more write go see
 number no way could people my than first water been call who oil its now find long down day did get come
"""
WORDS = tuple(f" {word}" for word in _TEXT.split())

SHORTEST_VALUE_TOKENS = 3
"""Name, opening, closing: a tool call of fewer tokens has the arguments {}."""


class Sent(NamedTuple):
    """One write: bytes of a dialect, and the output tokens in them; kind None for an event without output."""

    kind: EventKind | None
    tokens: int
    data: bytes


class Encoder(Protocol):
    """One answer in a dialect. Its events hold nothing that needs escaping but where it is made JSON."""

    content_type: str

    def greeting(self) -> Iterable[bytes]:
        """Encode what is sent as soon as the request has been taken; often nothing."""

    def opening(self) -> Iterable[bytes]:
        """Encode what stands before the first output and goes out with it."""

    def events(self, tokens: int) -> Iterable[Sent]:
        """Encode the next `tokens`."""

    def ending(self) -> Iterable[bytes]:
        """Encode finish, usage and end mark, each by itself where the dialect has them apart."""

    def completion(self) -> bytes:
        """Encode the whole answer of a request that does not stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What an answer says of itself beside its words. `tier` is what is told, be it true or not."""

    id: str
    created: int
    model: str
    tier: str
    show_reasoning: bool
    rtt_ms: float


class Piece(NamedTuple):
    """`tokens` of one kind in one event; of a tool call, `text` is of its arguments.

    place, name: of a tool call, which one of the answer it is and what it calls.
    first, last: of its run of tokens, which is all reasoning, all text, or one call.
    """

    kind: EventKind
    tokens: int
    text: str
    place: int
    name: str
    first: bool
    last: bool


@dataclass(slots=True)
class _Segment:
    kind: EventKind
    tokens: int
    index: int = 0
    name: str = ""
    done: int = 0


class Output:
    """Turns "so many tokens more" into pieces, in the order of the plan, and keeps count."""

    def __init__(self, asked: Asked, job: Job, *, facts: Facts) -> None:
        self.asked = asked
        self.facts = facts
        self.sent_tokens = 0
        self._job = job
        self._segments = _segments(asked.plan)
        self._at = 0

    @property
    def input_tokens(self) -> int:
        """Tokens of the prompt."""
        return self._job.prefixes[-1].tokens

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that needed no prefill; known once the model has begun on it."""
        return self._job.cached_tokens

    @property
    def reasoning_tokens(self) -> int:
        """Reasoning tokens so far, hidden or not."""
        return min(self.sent_tokens, self.asked.plan.reasoning_tokens)

    @property
    def x_sim(self) -> dict[str, float]:
        """What the simulator knows of this call's way: round trip and wait for a turn, in ms."""
        return {"rtt_ms": self.facts.rtt_ms, "queue_ms": self._job.queued_ns / 1e6}

    @property
    def prompt_ns(self) -> int:
        """From the end of the wait for a turn to the first token."""
        return self._job.first_ns - self._job.arrived_ns - self._job.queued_ns

    @property
    def decode_ns(self) -> int:
        """From the first token to the newest."""
        return self._job.newest_ns - self._job.first_ns

    @property
    def history(self) -> tuple[Prefix, ...]:
        """Prompt and visible answer, for a later request that goes on from here."""
        asked = self._job.prefixes
        visible = self.sent_tokens - self.reasoning_tokens
        said = Prefix(hash((asked[-1].key, self.facts.id)), asked[-1].tokens + visible)
        return (*asked, said)

    def take(self, tokens: int) -> Iterator[Piece]:
        """Yield the next `tokens`; hidden ones count and make no piece."""
        while tokens:
            segment = self._segments[self._at]
            count = min(tokens, segment.tokens - segment.done)
            tool = segment.kind is EventKind.TOOL
            if tool and not segment.done:
                count = 1
            start = segment.done
            segment.done += count
            self.sent_tokens += count
            tokens -= count
            self._at += segment.done == segment.tokens
            if segment.kind is EventKind.REASONING and not self.facts.show_reasoning:
                continue
            text = self._arguments(segment, start, count) if tool else self._words(start, count)
            last = segment.done == segment.tokens or self.sent_tokens == self.asked.plan.output_tokens
            yield Piece(segment.kind, count, text, segment.index, segment.name, not start, last)

    def whole(self) -> list[Piece]:
        """Take all that is left as one piece a run: for an answer that is not streamed."""
        pieces: list[Piece] = []
        for piece in self.take(self.asked.plan.output_tokens - self.sent_tokens):
            if piece.first:
                pieces.append(piece)
            else:  # a call's arguments behind its name
                before = pieces.pop()
                pieces.append(
                    before._replace(
                        tokens=before.tokens + piece.tokens, text=before.text + piece.text, last=piece.last
                    )
                )
        return pieces

    def tool_id(self, index: int) -> str:
        """Name a tool call."""
        return f"call_sim{self._job.id}x{index}"

    def _words(self, start: int, count: int) -> str:
        start += self._job.id * 7  # so that neighbours do not say the same
        return "".join([WORDS[(start + i) % len(WORDS)] for i in range(count)])

    def _arguments(self, segment: _Segment, start: int, count: int) -> str:
        """Pieces start .. start + count of a call, of which piece 0 is its name and no argument."""
        if segment.tokens < SHORTEST_VALUE_TOKENS:
            return "{}" if start + count == segment.tokens else ""
        first, last = max(start, 1), start + count
        text = self._words(first, last - first) if last > first else ""
        if start <= 1 < last:
            text = '{"input":"' + text.lstrip()
        return text + '"}' if last == segment.tokens else text


class WholeCalls:
    """Gathers tool calls for dialects that send each in one event."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._call: Piece | None = None

    def take(self, tokens: int) -> Iterator[Piece]:
        """Yield pieces as `Output.take`, each call as one piece with its last token."""
        for piece in self._output.take(tokens):
            if piece.kind is not EventKind.TOOL:
                yield piece
                continue
            before = self._call
            if before is not None:
                piece = piece._replace(
                    tokens=before.tokens + piece.tokens, text=before.text + piece.text, first=True
                )
            self._call = None if piece.last else piece
            if piece.last:
                yield piece


def arguments_of(piece: Piece) -> dict[str, Any]:
    """Read a call's arguments; what the limit cut is kept as one text."""
    try:
        read: dict[str, Any] = orjson.loads(piece.text)
    except ValueError:
        return {"input": piece.text}
    return read


def _segments(plan: Plan) -> list[_Segment]:
    segments = [
        _Segment(EventKind.REASONING, plan.reasoning_tokens),
        _Segment(EventKind.TEXT, plan.text_tokens),
    ]
    segments += [
        _Segment(EventKind.TOOL, tool.tokens, index=index, name=tool.name)
        for index, tool in enumerate(plan.tools)
    ]
    return [segment for segment in segments if segment.tokens]
