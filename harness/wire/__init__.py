"""Dialects: what a request looks like on the wire and what the bytes of an answer mean.

Sans-io: bytes and stamps come in, values go out; no clock, socket or dice. A new dialect is one
file and one line in `DIALECTS`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from harness.values import Answer, CallError, Progress, Request
from harness.wire import chat


class Decoder(Protocol):
    """Understands one answer, piece by piece; nothing that a server sends makes it raise."""

    def feed(self, data: bytes, stamp_ns: int) -> Progress:
        """Take a piece of the body and the stamp of its read; after DONE nothing is read any more.

        Empty data, see `values.OnRead`: what came last does not end the read of this stamp.
        """

    def answer(self, *, ended: bool) -> Answer:
        """All that was understood; `ended`: the body came to its clean end, else it was cut."""


class Refusal(Protocol):
    """Names the failure of an answer that is no event stream."""

    def __call__(self, *, status: int, content_type: str | None, body: bytes) -> CallError:
        """Tell the kind of failure, with the server's own message where it gave one."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way of speaking to a model. `stream_types`: content types of its streams."""

    name: str
    encode: Callable[[Request], Request]
    decoder: Callable[[], Decoder]
    refusal: Refusal
    stream_types: tuple[str, ...]


DIALECTS: dict[str, Dialect] = {
    d.name: d for d in (Dialect("openai-chat", chat.encode, chat.Decoder, chat.refusal, chat.STREAM_TYPES),)
}
"""By the name that scenarios use."""
