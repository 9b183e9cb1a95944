"""One way of speaking to a model, put together: what is sent, how a body is cut, what its events mean."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus

from harness.values import Answer, ErrorKind, Request
from harness.wire.payload import parse
from harness.wire.refusal import refusal
from harness.wire.stream import Frames, Reading, StreamDecoder
from harness.wire.websocket import MessageFrames


def bearer(key: str) -> dict[str, str]:
    """Carry a key as most vendors want it."""
    return {"Authorization": f"Bearer {key}"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a backend speaks. A new one is a file with one of these, and a line in `wire.DIALECTS`.

    encode: fills `path` and `body` of a Request. stream_types: content types of its streams, the one to
    ask for first. paths: how its requests' paths end, by which recordings are known. answer_keys: top-level
    keys of its complete answer, sent at once. headers: those that carry a key; fixed_headers: always sent.
    as_message: turns an encoded body into a WebSocket's message; None where the dialect has no such form.
    """

    name: str
    encode: Callable[[Request], Request]
    reading: Callable[[], Reading]
    frames: Callable[[], Frames]
    stream_types: tuple[str, ...]
    paths: tuple[str, ...]
    answer_keys: tuple[str, ...]
    headers: Callable[[str], Mapping[str, str]] = bearer
    fixed_headers: tuple[tuple[str, str], ...] = ()
    as_message: Callable[[bytes], bytes] | None = None

    def decoder(self, *, messages: bool = False) -> StreamDecoder:
        """Make the decoder of one answer.

        messages: it is fed whole messages of a WebSocket. That stays open behind an error, which is the end
        of the answer then.
        """
        reading = self.reading()
        reading.draft.error_ends = messages
        return StreamDecoder(reading, MessageFrames() if messages else self.frames())

    def unstreamed(self, *, status: int, content_type: str | None, body: bytes) -> Answer:
        """Read an answer that is no event stream: its failure, and the text if the whole came at once."""
        error = refusal(status=status, content_type=content_type, body=body, answer_keys=self.answer_keys)
        parsed = parse(body)
        if status != HTTPStatus.OK or error.kind is not ErrorKind.NOT_STREAMED or parsed is None:
            return Answer(error=error)
        reading = self.reading()
        reading.whole(parsed)
        return replace(StreamDecoder(reading, self.frames()).answer(ended=False), error=error)
