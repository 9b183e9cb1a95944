"""Dialect `mistral-fim`: POST /fim/completions, the text between a prompt and a suffix; chunks are chat's.

Source: Mistral's API reference, "Fill-in-the-middle completion". Unknown fields are refused there (422),
and usage comes unasked, on the last chunk.
"""

from typing import Any

from harness.values import Request
from harness.wire.chat import ChatReading
from harness.wire.dialect import Dialect
from harness.wire.prompt import text_of, with_body
from harness.wire.sse import FrameReader


def encode(request: Request) -> Request:
    """Fill `path` and `body`: all blocks are the text before the gap."""
    body: dict[str, Any] = {
        "model": request.model,
        "prompt": text_of(request.blocks),
        "stream": True,
        "max_tokens": request.max_tokens,
    }
    if request.suffix:
        body["suffix"] = text_of(request.suffix)
    if request.min_tokens is not None:
        body["min_tokens"] = request.min_tokens
    if request.service_tier is not None:
        body["service_tier"] = request.service_tier
    return with_body(request, body, path="/fim/completions")


DIALECT = Dialect(
    name="mistral-fim",
    encode=encode,
    reading=ChatReading,
    frames=FrameReader,
    stream_types=("text/event-stream",),
    paths=("/fim/completions",),
    answer_keys=("choices",),
)
