"""Play recorded streams through their dialect and tell what was understood (`harness decode`).

Two formats: a list of cases (pieces of a body with their times; tests/data/README.md), and a
recording of one HTTP response (`harness.recording`). One dict a case comes out.
"""

import base64
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from harness import recording as recordings
from harness.errors import UsageError
from harness.measure.metrics import call
from harness.measure.timeline import event_tokens, hidden_of, streamed_of
from harness.recording import Recording
from harness.values import Answer, CallError, ErrorKind, EventKind
from harness.wire import DIALECTS, Dialect

PATHS = {"/chat/completions": "openai-chat"}
"""How a request's path ends, and the dialect that this means. Other paths' recordings are skipped."""

_CUT = {
    "reset": CallError(ErrorKind.RESET, "the connection was reset"),
    "open": CallError(ErrorKind.IDLE_TIMEOUT, "the connection stayed open and nothing more came"),
    "truncated": CallError(ErrorKind.TRUNCATED, "the connection closed before the body's end"),
}


def decode_file(path: str | Path, *, dialect: str | None = None) -> Iterator[dict[str, Any]]:
    """Tell each case of a file, in its order, with the keys of the cases' `expect`.

    `dialect` wins over what the file says. What is of no dialect that is there is told in one dict with
    `skipped`. Raises UsageError for an unknown dialect, and for a file that cannot be read or is of neither
    format.
    """
    if dialect is not None and dialect not in DIALECTS:
        raise UsageError(f"unknown dialect {dialect!r}: there are {', '.join(DIALECTS)}")
    try:
        content = orjson.loads(Path(path).read_bytes())
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {problem.strerror}") from problem
    except ValueError as problem:
        raise UsageError(f"{path} is not JSON: {problem}") from problem
    if isinstance(content, dict) and "frames_ms" in content:  # WebSocket: no dialect reads it yet
        return iter([_skipped(content.get("name"), dialect or _dialect_of(str(content.get("url"))))])
    if isinstance(content, list):
        return _cases(path, content, dialect)
    if isinstance(content, dict) and "wire" in content:
        return _recording(path, content, dialect)
    raise UsageError(f"{path} is neither a list of cases nor a recording (an object with `wire`)")


def _cases(path: str | Path, cases: list[Any], dialect: str | None) -> Iterator[dict[str, Any]]:
    for place, case in enumerate(cases):
        try:
            name, speaks = case["id"], dialect or case["protocol"]
            pieces = [
                (_ns(chunk["at_ms"]), base64.b64decode(chunk["bytes_b64"]) * chunk.get("repeat", 1))
                for chunk in case["chunks"]
            ]
            end = {"how": "eof", "at_ms": case["chunks"][-1]["at_ms"] if pieces else 0} | case.get("end", {})
            end_ns, how = _ns(end["at_ms"]), end["how"]
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise UsageError(f"{path}: case {place} is not of the cases' format: {problem!r}") from problem
        if speaks not in DIALECTS:
            yield _skipped(name, speaks)
            continue
        answer = _play(DIALECTS[speaks], pieces, ended=how == "eof")
        yield {"id": name} | facts(answer, end_ns=end_ns, cut=_CUT.get(how))


def _recording(path: str | Path, content: dict[str, Any], dialect: str | None) -> Iterator[dict[str, Any]]:
    try:
        record = recordings.parse(content)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as problem:
        raise UsageError(f"{path} is not a recording: {problem!r}") from problem
    name, speaks = record.name or Path(path).stem, dialect or _dialect_of(record.path)
    if speaks not in DIALECTS:
        yield _skipped(name, speaks)
        return
    told = DIALECTS[speaks]
    content_type = (record.content_type or "").split(";")[0].strip().lower()
    if record.status == 200 and content_type in told.stream_types:  # noqa: PLR2004 - HTTP's OK
        answer = _play(told, record.reads, ended=record.whole)
        cut = None if record.whole else _CUT["truncated"]
    else:
        answer, cut = Answer(), _refused(told, record)
    yield {"id": name, "status": record.status} | facts(answer, end_ns=record.done_ns, cut=cut)


def _play(dialect: Dialect, pieces: Any, *, ended: bool) -> Answer:  # noqa: ANN401 - list or tuple
    decoder = dialect.decoder()
    for stamp_ns, data in pieces:
        decoder.feed(data, stamp_ns)
    return decoder.answer(ended=ended)


def _refused(dialect: Dialect, record: Recording) -> CallError:
    body = b"".join(data for _, data in record.reads)
    if not record.status:
        return _CUT["truncated"]
    return dialect.refusal(status=record.status, content_type=record.content_type, body=body)


def facts(answer: Answer, *, end_ns: int, cut: CallError | None = None) -> dict[str, Any]:
    """Tell an answer in the keys of the cases, times in ms from the request's sending.

    `cut`: how the transport ended the call, if not well; it does not matter behind the end mark.
    """
    error = answer.error or (cut if answer.done_ns is None else None)
    kinds = [tuple(EventKind)[kind] for kind in answer.kinds]
    usage = answer.usage and {k: v for k, v in asdict(answer.usage).items() if v is not None}
    tokens = list(answer.tokens)
    first_text = kinds.index(EventKind.TEXT) if EventKind.TEXT in kinds else None
    hidden, tpot_ns = _speed(answer)
    return {
        "ok": error is None,
        "error": error and {"kind": error.kind, "message": error.message},
        "ttft_ms": _at(answer, 0 if kinds else None),
        "first_text_ms": _at(answer, first_text),
        "first_tool_ms": _at(answer, answer.first_tool),
        "n_content_events": len(kinds),
        "event_ms": [_ms(at) for at in answer.high_ns],
        "exact": [high == low for high, low in zip(answer.high_ns, answer.low_ns, strict=True)],
        "last_output_ms": _at(answer, -1 if kinds else None),
        "done_ms": _ms(end_ns if answer.done_ns is None else answer.done_ns),
        "text": answer.text,
        "reasoning": answer.reasoning,
        "tool_calls": [asdict(tool) for tool in answer.tool_calls],
        "finish_reason": answer.finish_reason,
        "usage": usage or None,
        "hidden_tokens": hidden,
        "tpot_ms": None if tpot_ns is None else tpot_ns / 1e6,
        "tokens_per_event": tokens if tokens and min(tokens) >= 0 else None,
        "malformed_events": answer.malformed_events,
        "choices": {str(index): asdict(choice) for index, choice in answer.choices.items()},
        "tier_served": answer.tier_served,
        "request_id": answer.request_id,
        "warnings": list(answer.warnings),
    }


def _speed(answer: Answer) -> tuple[int | None, float | None]:
    """Hidden tokens and time per output token; none over mixed choices."""
    hidden, tokens, streamed = hidden_of(answer), event_tokens(answer), streamed_of(answer)
    if answer.choices:
        return hidden, None
    after = call.tokens_after_last(tokens, streamed=streamed)
    tpot_ns = call.tpot_ns(
        answer.high_ns[-1] - answer.high_ns[0] if len(tokens) > 1 else None,
        streamed=None if streamed is None else streamed - after,
        first=tokens[0] if tokens else None,
    )
    return hidden, tpot_ns


def _skipped(name: object, dialect: str | None) -> dict[str, Any]:
    said = f"dialect {dialect} is not there yet" if dialect else "no dialect reads what its path asks for"
    return {"id": name, "dialect": dialect, "skipped": said}


def _dialect_of(path: str) -> str | None:
    path = path.split("?")[0]
    return next((name for end, name in PATHS.items() if path.endswith(end)), None)


def _at(answer: Answer, event: int | None) -> float | None:
    return None if event is None else _ms(answer.high_ns[event])


def _ms(at_ns: int) -> float:
    return at_ns / 1e6


def _ns(at_ms: float) -> int:
    return round(at_ms * 1e6)
