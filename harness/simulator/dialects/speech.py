"""What the server needs of a dialect: how it asks, answers and refuses. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson

from harness.simulator.asked import Asked, Place
from harness.simulator.limits import HeaderStyle, openai_headers
from harness.simulator.output import Encoder, Output
from harness.simulator.refusal import Refusal

EVENT_STREAM = "text/event-stream; charset=utf-8"

_OPENAI_TYPES = {429: "rate_limit_error", 500: "server_error", 503: "service_unavailable_error"}
_OPENAI_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


@dataclass(frozen=True, slots=True)
class Speech:
    """A dialect, served. parse: ValueError with a sentence where a body cannot be served.

    hides_reasoning: whether a model's reasoning can stay unseen in it, though its tokens count.
    """

    parse: Callable[[Mapping[str, Any], Place], Asked]
    encoder: Callable[[Output], Encoder]
    refuse: Callable[[Refusal], bytes]
    id_prefix: str
    limit_headers: HeaderStyle = openai_headers
    request_id_header: str = "x-request-id"
    hides_reasoning: bool = True


def openai_error(refusal: Refusal) -> dict[str, Any]:
    """Word a refusal as OpenAI: type, code, message, param."""
    ours = refusal.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    otherwise = "server_error" if ours else "invalid_request_error"
    kind = refusal.limited or _OPENAI_TYPES.get(refusal.status, otherwise)
    code = refusal.code or _OPENAI_CODES.get(refusal.status)
    return {"message": refusal.message, "type": kind, "param": None, "code": code}


def openai_refuse(refusal: Refusal) -> bytes:
    """Encode a refusal as OpenAI does over HTTP."""
    return orjson.dumps({"error": openai_error(refusal)})


def sse(event: Mapping[str, Any], name: str = "") -> bytes:
    """Frame one event, with its `event:` line where it has a name."""
    data = b"data: " + orjson.dumps(event) + b"\n\n"
    return b"event: %b\n%b" % (name.encode(), data) if name else data
