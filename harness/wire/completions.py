"""Dialect `openai-completions`: POST /completions, the legacy interface that compatible servers keep.

Its chunks are chat's with `text` in place of a delta, so chat's reading takes them. With a suffix the
text between is asked for (fill in the middle): OpenAI's API reference, "Completions"; llama-cpp-python,
DeepSeek and, for models with a template for it, vLLM take it.
"""

from typing import Any

from harness.values import Request
from harness.wire.chat import ChatReading
from harness.wire.dialect import Dialect
from harness.wire.prompt import forced, text_of, with_body
from harness.wire.sse import FrameReader


def encode(request: Request) -> Request:
    """Fill `path` and `body`: all blocks are one text. The interface knows no tools."""
    body: dict[str, Any] = {
        "model": request.model,
        "prompt": text_of(request.blocks),
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": request.max_tokens,
    }
    if request.suffix:
        body["suffix"] = text_of(request.suffix)
    if request.service_tier is not None:
        body["service_tier"] = request.service_tier
    return with_body(request, body | forced(request), path="/completions")


DIALECT = Dialect(
    name="openai-completions",
    encode=encode,
    reading=ChatReading,
    frames=FrameReader,
    stream_types=("text/event-stream",),
    paths=("/completions",),
    answer_keys=("choices",),
)
