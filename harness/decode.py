"""Play recorded streams through their dialect and tell what was understood (`harness decode`).

Three formats: a list of cases (pieces of a body with their times; tests/data/README.md), a recording of
one HTTP response, one of a WebSocket (`harness.recording`). One dict a case, and one a recording, comes out.
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
from harness.recording import Frame, Recording
from harness.values import Answer, CallError, ErrorKind, EventKind, Progress
from harness.wire import DIALECTS, Decoder, Dialect
from harness.wire.payload import parse
from harness.wire.refusal import refusal

PATHS = {path: dialect.name for dialect in DIALECTS.values() for path in dialect.paths}
"""How a request's path ends, and the dialect that this means; the longest ending that fits decides."""

_CUT = {
    "reset": CallError(ErrorKind.RESET, "the connection was reset"),
    "open": CallError(ErrorKind.TRUNCATED, "the connection stayed open and nothing more came"),
    "truncated": CallError(ErrorKind.TRUNCATED, "the body did not come to its end"),
}
_LONGEST_MS = 1e12
_ASKING = ("", "POST")
"""Methods that ask a model; a recording need not tell it."""
_OK, _REFUSED, _SWITCHED = 200, 400, 101


def decode_file(path: str | Path, *, dialect: str | None = None) -> Iterator[dict[str, Any]]:
    """Tell each case of a file, in its order, with the keys of the cases' `expect`.

    `dialect` wins over what the file says. What asks no model is told with the error `not_a_model_call`.
    Raises UsageError for an unknown dialect, and for a file that cannot be read or is of no such format.
    """
    if dialect is not None and dialect not in DIALECTS:
        raise UsageError(f"unknown dialect {dialect!r}: there are {', '.join(DIALECTS)}")
    try:
        content = orjson.loads(Path(path).read_bytes())
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {problem.strerror}") from problem
    except ValueError as problem:
        raise UsageError(f"{path} is not JSON: {problem}") from problem
    if isinstance(content, list):
        return _cases(path, content, dialect)
    try:
        if isinstance(content, dict) and "frames_ms" in content:
            asked, frames = recordings.parse_socket(content)
            return iter([{"id": Path(path).name} | _socket(frames, dialect or _dialect_of(asked))])
        if isinstance(content, dict) and "wire" in content:
            record = recordings.parse(content)
            asks = record.method.upper() in _ASKING
            speaks = dialect or (_dialect_of(record.path) if asks else None)
            return iter([{"id": Path(path).name} | _recording(record, speaks)])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as problem:
        raise UsageError(f"{path} is not a recording: {_worded(problem)}") from problem
    raise UsageError(f"{path} is neither a list of cases nor a recording (an object with `wire`)")


def _worded(problem: Exception) -> str:
    """Say what was wrong; a KeyError's own text is the bare key."""
    return f"no {problem.args[0]!r} in it" if isinstance(problem, KeyError) else str(problem)


def _cases(path: str | Path, cases: list[Any], dialect: str | None) -> Iterator[dict[str, Any]]:
    ends: dict[Any, CallError | None] = {"eof": None, **_CUT}
    for place, case in enumerate(cases):
        try:
            name, speaks = case["id"], dialect or str(case["protocol"])
            pieces = [
                (_ns(chunk["at_ms"]), base64.b64decode(chunk["bytes_b64"]) * chunk.get("repeat", 1))
                for chunk in case["chunks"]
            ]
            end = {"how": "eof", "at_ms": case["chunks"][-1]["at_ms"] if pieces else 0} | case.get("end", {})
            end_ns, cut = _ns(end["at_ms"]), ends[end["how"]]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, MemoryError) as problem:
            raise UsageError(
                f"{path}: case {place} is not of the cases' format: {_worded(problem)}"
            ) from problem
        if speaks in DIALECTS:
            answer = _play(DIALECTS[speaks], pieces, ended=cut is None)
        else:
            answer = _no_model_call(f"there is no dialect {speaks}")
        yield {"id": name, "dialect": speaks} | facts(answer, end_ns=end_ns, cut=cut)


def _recording(record: Recording, dialect: str | None) -> dict[str, Any]:
    """Tell one HTTP response."""
    body = b"".join(data for _, data in record.reads)
    told = None if dialect is None else DIALECTS[dialect]
    content_type = (record.content_type or "").split(";")[0].strip().lower()
    if not record.status:
        answer = Answer(error=_CUT["truncated"])
    elif told is None and record.status < _REFUSED:
        answer = _no_model_call(f"{record.method} {record.path} asks no model that a dialect knows")
    elif told is None:
        kind = record.content_type
        answer = Answer(error=refusal(status=record.status, content_type=kind, body=body, answer_keys=()))
    else:
        answer = told.unstreamed(status=record.status, content_type=record.content_type, body=body)
        if record.status == _OK:
            answer = _streamed(told, record, otherwise=answer, said=content_type in told.stream_types)
    cut = None if record.whole else _CUT["truncated"]
    return {"dialect": dialect, "status": record.status} | facts(answer, end_ns=record.done_ns, cut=cut)


def _streamed(dialect: Dialect, record: Recording, *, otherwise: Answer, said: bool) -> Answer:
    """Choose between the stream that a response is, and what it is if it came at once.

    `said`: its content type is a stream's. The body decides: gateways send streams under other types, which
    the official SDKs do not look at, and whole answers as streams.
    """
    played = _play(dialect, record.reads, ended=record.whole)
    at_once = otherwise.error and otherwise.error.kind
    broken = played.error and played.error.kind
    if said:
        return otherwise if at_once is ErrorKind.NOT_STREAMED and broken is ErrorKind.NOT_SSE else played
    understood = len(played.high_ns) > 0 or broken is ErrorKind.STREAM_ERROR
    return played if at_once is ErrorKind.NOT_SSE and understood else otherwise


class _Turn:
    """One answer over a WebSocket, while its messages come. Times count from its request."""

    def __init__(self, dialect: Dialect, sent_ns: int) -> None:
        self._decoder: Decoder = dialect.decoder(messages=True)
        self._sent_ns = self._end_ns = sent_ns
        self.over = False

    def take(self, message: bytes, at_ns: int) -> None:
        """Take a message; nothing behind the end mark is a part of the answer."""
        if not self.over:
            self.over = self._decoder.feed(message, at_ns - self._sent_ns) is Progress.DONE
            self._end_ns = at_ns

    def facts(self) -> dict[str, Any]:
        """Tell the answer, as far as it came."""
        return facts(self._decoder.answer(ended=True), end_ns=self._end_ns - self._sent_ns)


def _socket(frames: list[Frame], dialect: str | None) -> dict[str, Any]:
    """Tell the answers over one WebSocket: the first by the usual keys, all of several in `answers`.

    A message belongs to the oldest answer of its lane (`stream_id`) that is not over.
    """
    if dialect is None:
        no_model = _no_model_call("the path of this WebSocket is no dialect's")
        return {"dialect": None, "status": _SWITCHED} | facts(no_model, end_ns=0)
    lanes: dict[str, list[_Turn]] = {}
    turns: list[_Turn] = []
    for frame in frames:
        event = parse(frame.message) or {}
        lane = lanes.setdefault(str(event.get("stream_id") or ""), [])
        begins = event.get("type") == "response.create" if frame.sent else not turns
        if begins:
            turns.append(_Turn(DIALECTS[dialect], frame.at_ns))
            lane.append(turns[-1])
        if not frame.sent and (lane or turns):
            of_lane = lane or turns
            next((turn for turn in of_lane if not turn.over), of_lane[-1]).take(frame.message, frame.at_ns)
    told = [turn.facts() for turn in turns or [_Turn(DIALECTS[dialect], 0)]]
    several = {"answers": told} if len(told) > 1 else {}
    return {"dialect": dialect, "status": _SWITCHED} | told[0] | several


def _play(dialect: Dialect, pieces: Any, *, ended: bool) -> Answer:  # noqa: ANN401 - list or tuple
    decoder = dialect.decoder()
    for stamp_ns, data in pieces:
        decoder.feed(data, stamp_ns)
    return decoder.answer(ended=ended)


def _no_model_call(why: str) -> Answer:
    return Answer(error=CallError(ErrorKind.NOT_A_MODEL_CALL, why))


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
        "incomplete_reason": answer.incomplete_reason,
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


def _dialect_of(path: str) -> str | None:
    path = path.split("?")[0].rstrip("/")
    return PATHS.get(max((end for end in PATHS if path.endswith(end)), key=len, default=""))


def _at(answer: Answer, event: int | None) -> float | None:
    return None if event is None else _ms(answer.high_ns[event])


def _ms(at_ns: int) -> float:
    return at_ns / 1e6


def _ns(at_ms: float) -> int:
    if abs(at_ms) > _LONGEST_MS:
        raise ValueError(f"{at_ms} ms is no time of a call")
    return round(at_ms * 1e6)
