"""Dialects: what a request looks like on the wire and what the bytes of an answer mean.

Sans-io: bytes and stamps come in, values go out; no clock, socket or dice. A new dialect is one
file and one line in `DIALECTS`.
"""

from harness.wire import chat, completions, fim, gemini, llamacpp, messages, ollama, responses
from harness.wire.dialect import Dialect
from harness.wire.stream import StreamDecoder as Decoder

__all__ = ["DIALECTS", "Decoder", "Dialect"]

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        chat.DIALECT,
        responses.DIALECT,
        messages.DIALECT,
        fim.DIALECT,
        completions.DIALECT,
        llamacpp.DIALECT,
        ollama.DIALECT,
        gemini.DIALECT,
    )
}
"""By the name that scenarios use."""
