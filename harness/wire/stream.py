"""Every dialect's decoder: pieces of a body in, one Answer out; a dialect brings what its events mean.

Nothing here knows a dialect: how a body is cut into events is the business of `Frames`, what an event
means that of a `Reading`. Time is taken here, by the rules of `wire.bounds`.
"""

from array import array
from typing import Any, Protocol

from orjson import loads

from harness.values import Answer, CallError, Choice, ErrorKind, Progress, Usage
from harness.wire import refusal as refusals
from harness.wire.bounds import UNTOLD, Bounds
from harness.wire.choice import KIND, TOOL
from harness.wire.draft import Draft
from harness.wire.payload import joined, parse
from harness.wire.sse import MAX_EVENT_BYTES
from harness.wire.usage import usage_of

_SILENT, _OUTPUT, _DONE = Progress  # looking a member up costs more than reading an event


class Frames(Protocol):
    """Cuts a body into the payloads of its events; see `sse.FrameReader` for the attributes."""

    clean: bool
    names: dict[int, str]
    junk: bytes
    too_large: bool

    def whole(self, data: bytes) -> bytes | None:
        """Return the payload if `data` is just one event, the usual; else None, and nothing is read."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payloads of the events that `data` completes."""

    def flush(self) -> list[bytes]:
        """End the body: payloads of events that lack only their end."""


class Reading(Protocol):
    """What one answer's events mean in a dialect. Nothing that they hold makes it raise."""

    draft: Draft

    def event(self, event: dict[str, Any], name: str) -> int:
        """Take one event, `name` from its `event:` line or empty; bits (`wire.choice`) of its output."""

    def whole(self, answer: dict[str, Any]) -> None:
        """Take an answer that was sent at once, not streamed."""

    def counts(self) -> dict[str, object]:
        """Tell `draft.usage` in the words of `values.Usage`; what was not told is None."""


class StreamDecoder:
    """Understands one answer. Nothing that a server sends makes it raise."""

    __slots__ = (
        "_bounds",
        "_done_ns",
        "_draft",
        "_first_tool",
        "_frames",
        "_last_total",
        "_malformed",
        "_malformed_text",
        "_output_was_last",
        "_read",
        "_reading",
    )

    def __init__(self, reading: Reading, frames: Frames) -> None:
        self._frames = frames
        self._reading = reading
        self._read = reading.event
        self._draft = reading.draft
        self._bounds = Bounds()
        self._output_was_last = False  # the newest event was an output event
        self._done_ns: int | None = None
        self._malformed = 0
        self._malformed_text = b""
        self._last_total = 0  # running total of output tokens at the last output event
        self._first_tool: int | None = None

    def feed(self, data: bytes, stamp_ns: int) -> Progress:
        """Take a piece of the body that arrived at `stamp_ns`; nothing is read behind the end mark.

        Empty data: the read of `stamp_ns` went on behind what came last.
        """
        if self._draft.over or not data:
            if not data:
                self._bounds.went_on(stamp_ns)
            return _DONE if self._draft.over else _SILENT
        self._bounds.piece(stamp_ns)
        payload = self._frames.whole(data)
        if payload is None:
            return self._events(data, stamp_ns)
        names = self._frames.names
        output = self._event(payload, names[0] if names else "")
        self._bounds.ends_read = output
        over: bool = self._draft.over  # the event may have been the end mark
        if over:
            self._done_ns = stamp_ns
            return _DONE
        return _OUTPUT if output else _SILENT

    def _events(self, data: bytes, stamp_ns: int) -> Progress:
        """Take a piece that is not just one event."""
        payloads = self._frames.feed(data)
        names = self._frames.names
        progress = _SILENT
        for place, payload in enumerate(payloads):
            if self._event(payload, names.get(place, "") if names else ""):
                progress = _OUTPUT
            if self._draft.over:
                self._done_ns = stamp_ns
                break
        if self._frames.too_large:
            self._give_up()
        self._bounds.ends_read = self._frames.clean and self._output_was_last
        return _DONE if self._draft.over else progress

    def _event(self, payload: bytes, name: str) -> bool:
        """Take one event; True if it brought output."""
        try:
            event: Any = loads(payload)
        except ValueError:
            event = None
        if type(event) is not dict:
            event = self._no_json(payload)
        if name == "error":  # its data need not hold an `error`
            self._draft.broke(event, refusals.snippet(payload))
        bits = self._read(event, name)
        self._output_was_last = bits != 0
        if not bits:
            return False
        self._bounds.output(KIND[bits])
        if bits & TOOL and self._first_tool is None:
            self._first_tool = len(self._bounds.high_ns) - 1
        total = self._draft.total
        if total is not None:
            self._bounds.told(max(UNTOLD, total - self._last_total))
            self._last_total, self._draft.total = total, None
        return True

    def _no_json(self, payload: bytes) -> dict[str, Any]:
        """Take what is no JSON object to orjson: the end mark, an empty event, odd JSON, a broken one."""
        word = payload.strip()
        if word == b"[DONE]":
            self._draft.over = True
        elif word:  # servers send empty ones to keep the connection open
            event = parse(payload)
            if event is not None:
                return event
            self._malformed += 1
            self._malformed_text = self._malformed_text or payload[:200]
        return {}

    def _give_up(self) -> None:
        self._draft.over = True
        size = MAX_EVENT_BYTES // 2**20
        self._draft.fail(ErrorKind.TOO_LARGE, f"an event of the stream is longer than {size} MiB")

    def answer(self, *, ended: bool) -> Answer:
        """All that was understood. `ended`: the body came to its clean end, so nothing more will come.

        Not ended means cut: by the transport, a limit or the caller, who knows the reason.
        """
        if ended and not self._draft.over:
            self._flush()
        self._bounds.close()
        draft, bounds = self._draft, self._bounds
        main = draft.choices[0]
        error = draft.error or self._flaw(ended=ended)
        usage, plausible = usage_of(self._reading.counts())
        several = len(draft.choices) > 1
        untold = array("q", [UNTOLD]) * len(bounds.high_ns)
        return Answer(
            high_ns=bounds.high_ns,
            low_ns=bounds.low_ns,
            kinds=bounds.kinds,
            tokens=untold if several else bounds.tokens(),
            first_tool=self._first_tool,
            text=joined(main.text),
            reasoning=joined(main.reasoning),
            tool_calls=main.tools.whole(),
            usage=usage,
            finish_reason=main.finish_reason,
            tier_served=draft.tier,
            request_id=draft.request_id,
            done_ns=self._done_ns,
            error=error,
            malformed_events=self._malformed,
            reasoning_summary=main.summaries and not main.raw_reasoning,
            choices={i: Choice(joined(c.text), c.finish_reason) for i, c in sorted(draft.choices.items())}
            if several
            else {},
            server_timing=draft.timing,
            incomplete_reason=draft.incomplete,
            error_status=draft.error_status,
            warnings=self._warnings(usage, plausible=plausible, whole=ended and error is None),
        )

    def _flush(self) -> None:
        """Read the last event though its end is missing: finish and usage may stand in it."""
        for place, payload in enumerate(self._frames.flush()):
            # an end mark here has the time of the connection's end
            self._bounds.ends_read = self._event(payload, self._frames.names.get(place, ""))

    def _warnings(self, usage: Usage | None, *, plausible: bool, whole: bool) -> tuple[str, ...]:
        """Name what is odd. `whole`: an answer that came to its end without a failure can lack something."""
        odd = {
            "no_usage": whole and usage is None,
            "no_finish_reason": whole and self._draft.choices[0].finish_reason is None,
            "implausible_usage": self._draft.implausible or not plausible or self._counts_nothing(usage),
        }
        return tuple(name for name, is_so in odd.items() if is_so)

    def _counts_nothing(self, usage: Usage | None) -> bool:
        return usage is not None and usage.output_tokens == 0 and len(self._bounds.high_ns) > 0

    def _flaw(self, *, ended: bool) -> CallError | None:
        """Find what is wrong with a stream that named no error itself."""
        if self._malformed:
            said = refusals.snippet(self._malformed_text)
            return CallError(ErrorKind.MALFORMED_EVENT, f"{self._malformed} events were not JSON: {said}")
        told = refusals.error_message(parse(self._frames.junk)) if self._frames.junk else ""
        choices = [choice for choice in self._draft.choices.values() if choice.began()]
        finished = bool(choices) and all(choice.finish_reason for choice in choices)
        came = len(self._bounds.high_ns) > 0
        if not ended or (self._draft.over and (came or finished)) or (finished and not told):
            return None
        if self._frames.junk:
            said = told or refusals.snippet(self._frames.junk)
            kind = ErrorKind.STREAM_ERROR if told else ErrorKind.NOT_SSE
            return CallError(kind, f"the body is no event stream: {said}")
        if came:
            return CallError(ErrorKind.TRUNCATED, "the stream ended without its end mark or a reason to end")
        return CallError(ErrorKind.EMPTY_RESPONSE, "the stream ended without any output")
