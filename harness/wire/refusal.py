"""What a body says that is no event stream: the server's own message, as a CallError."""

import re
from typing import Any

from harness.values import CallError, ErrorKind
from harness.wire.payload import dumped, parse

AT_ONCE = "the server sent the whole answer at once, not a stream"

MAX_MESSAGE = 300
"""Characters of a server's text that go into a message."""

_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_SECRETS = re.compile(r"\b(sk-|bearer\s+)[^\s\"',;]{6,}", re.IGNORECASE)
_REDIRECT, _REFUSED = 300, 400


def refusal(*, status: int, content_type: str | None, body: bytes, answer_keys: tuple[str, ...]) -> CallError:
    """Name the failure of an answer that is not a stream.

    `answer_keys` are the top-level keys of the dialect's complete, unstreamed answer.
    """
    parsed = parse(body) or parse(_unpacked(body))
    said = (error_message(parsed) or snippet(body)).removesuffix(f" ({status})")
    if status >= _REFUSED:
        return CallError(ErrorKind.HTTP_ERROR, f"HTTP {status}: {said}" if said else f"HTTP {status}")
    if status >= _REDIRECT:
        return CallError(ErrorKind.HTTP_ERROR, f"redirects are not followed: HTTP {status}")
    at_once = parsed and any(key in parsed for key in answer_keys)
    if parsed and (parsed.get("error") or (not at_once and fails(parsed))):
        return CallError(ErrorKind.STREAM_ERROR, f"HTTP {status} with an error: {said}")
    if at_once:
        return CallError(ErrorKind.NOT_STREAMED, AT_ONCE)
    kind = content_type or "no content type"
    return CallError(ErrorKind.NOT_SSE, f"the body is no event stream ({kind}): {said or 'it is empty'}")


def error_message(parsed: object) -> str:
    """Find the message in an answer's or event's `error`; some servers say `detail` or just `message`."""
    if not isinstance(parsed, dict):
        return ""
    error = parsed.get("error") or parsed.get("detail") or parsed.get("errors") or parsed
    if isinstance(error, str):
        return _clean(error)
    if not isinstance(error, dict):
        return _clean(dumped(error))
    message = error.get("message") or error.get("error")
    if not isinstance(message, str):
        return "" if error is parsed else _clean(dumped(error))
    code = error.get("code")
    return _clean(message) + (f" ({_clean(str(code))})" if isinstance(code, str | int) else "")


def fails(event: dict[str, Any]) -> bool:
    """Tell whether an event is an error though it has no `error`.

    Older vLLM, Mistral: `object` or `type` says so; FastAPI: `detail`; Cloudflare: `errors`; DashScope:
    `code` and `message`.
    """
    kind = event.get("type")
    if event.get("object") == "error" or (type(kind) is str and kind.lower().endswith("error")):
        return True
    said = event.get("detail") or event.get("errors") or (event.get("code") and event.get("message"))
    return kind is None and bool(said)


def snippet(body: bytes) -> str:
    """Keep the first words of a text or a page, for a person."""
    return _clean(_TAGS.sub(" ", body[:16384].decode("utf-8", "replace")))


def _unpacked(body: bytes) -> bytes:
    """Take the array off an answer: Gemini puts an error into one where it was to stream one."""
    return body.strip().removeprefix(b"[").removesuffix(b"]")


def _clean(text: str) -> str:
    """One line of bounded length, with nothing in it that looks like a key."""
    text = text.encode("utf-8", "replace").decode()
    line = " ".join(_SECRETS.sub(r"\1…", text[: 4 * MAX_MESSAGE]).split())
    return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "…"
