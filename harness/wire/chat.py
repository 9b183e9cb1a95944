"""Dialect `openai-chat`: POST /chat/completions with `stream: true`, as OpenAI and many others speak it.

Source of the format: OpenAI's API reference, "Chat Completions, streaming"; what other servers do
to it is told by tests/data/sse_cases.json, each case with its report.
"""

from array import array
from typing import Any

from orjson import loads

from harness.values import (
    Answer,
    CallError,
    Choice,
    ErrorKind,
    Progress,
    Usage,
)
from harness.wire import refusal as refusals
from harness.wire.bounds import UNTOLD, Bounds
from harness.wire.choice import KIND, TEXT, TOOL, ChoiceState
from harness.wire.payload import joined, parse
from harness.wire.prompt import encode
from harness.wire.sse import MAX_EVENT_BYTES, FrameReader
from harness.wire.usage import count, usage_of

__all__ = ["STREAM_TYPES", "Decoder", "encode", "refusal"]

STREAM_TYPES = ("text/event-stream",)
_SILENT, _OUTPUT, _DONE = Progress  # looking a member up costs more than reading an event


def refusal(*, status: int, content_type: str | None, body: bytes) -> CallError:
    """Name the failure of an answer that is no event stream."""
    return refusals.refusal(status=status, content_type=content_type, body=body, answer_keys=("choices",))


class Decoder:
    """Understands one answer. Nothing that a server sends makes it raise."""

    __slots__ = (
        "_bounds",
        "_choices",
        "_done_ns",
        "_error",
        "_first_tool",
        "_frames",
        "_implausible",
        "_last_total",
        "_malformed",
        "_malformed_text",
        "_output_was_last",
        "_over",
        "_request_id",
        "_tier",
        "_usage",
    )

    def __init__(self) -> None:
        self._frames = FrameReader()
        self._bounds = Bounds()
        self._choices = {0: ChoiceState()}
        self._output_was_last = False  # the newest event was an output event
        self._over = False
        self._done_ns: int | None = None
        self._error: CallError | None = None
        self._malformed = 0
        self._malformed_text = b""
        self._usage: dict[str, Any] = {}
        self._implausible = False  # a running total cannot be true
        self._last_total = 0  # running total of output tokens at the last output event
        self._tier: str | None = None
        self._request_id: str | None = None
        self._first_tool: int | None = None

    def feed(self, data: bytes, stamp_ns: int) -> Progress:
        """Take a piece of the body that arrived at `stamp_ns`; nothing is read behind the end mark.

        Empty data: the read of `stamp_ns` went on behind what came last.
        """
        if self._over or not data:
            if not data:
                self._bounds.went_on(stamp_ns)
            return _DONE if self._over else _SILENT
        self._bounds.piece(stamp_ns)
        payload = self._frames.whole(data)
        if payload is None:
            return self._events(data, stamp_ns)
        output = self._event(payload)
        self._bounds.ends_read = output
        return _OUTPUT if output else self._no_output(stamp_ns)

    def _no_output(self, stamp_ns: int) -> Progress:
        if self._over:
            self._done_ns = stamp_ns
        return _DONE if self._over else _SILENT

    def _events(self, data: bytes, stamp_ns: int) -> Progress:
        """Take a piece that is not just one event."""
        payloads = self._frames.feed(data)
        if self._frames.names:
            self._named(payloads)
        progress = _SILENT
        for payload in payloads:
            if self._event(payload):
                progress = _OUTPUT
            elif self._over:
                self._done_ns = stamp_ns
                break
        if self._frames.too_large:
            self._give_up()
        self._bounds.ends_read = self._frames.clean and self._output_was_last
        return _DONE if self._over else progress

    def _event(self, payload: bytes) -> bool:
        """Take one event; True if it brought output."""
        try:
            event = loads(payload)
        except ValueError:
            event = self._no_json(payload)
        if type(event) is not dict:
            event = self._no_json(payload)
        usage = event.get("usage")
        if usage:
            self._told(usage)
        if event.get("error"):
            self._fail(ErrorKind.STREAM_ERROR, refusals.error_message(event))
        if self._request_id is None or "service_tier" in event:
            self._facts(event)
        bits = self._choices_of(event)
        self._output_was_last = bits != 0
        if not bits:
            return False
        self._bounds.output(KIND[bits])
        timings = event.get("timings")
        if usage or timings or bits & TOOL:
            self._details(bits, usage, timings)
        return True

    def _no_json(self, payload: bytes) -> dict[str, Any]:
        """Take what is no JSON object to orjson: the end mark, an empty event, odd JSON, a broken one."""
        word = payload.strip()
        if word == b"[DONE]":
            self._over = True
        elif word:  # servers send empty ones to keep the connection open
            event = parse(payload)
            if event is not None:
                return event
            self._malformed += 1
            self._malformed_text = self._malformed_text or payload[:200]
        return {}

    def _give_up(self) -> None:
        self._over = True
        size = MAX_EVENT_BYTES // 2**20
        self._fail(ErrorKind.TOO_LARGE, f"an event of the stream is longer than {size} MiB")

    def _choices_of(self, event: dict[str, Any]) -> int:
        """Take an event's choices; bits of what they carry."""
        bits = 0
        choices = event.get("choices")
        if type(choices) is list:
            for choice in choices:
                bits |= self._choice(choice)
        return bits

    def _named(self, payloads: list[bytes]) -> None:
        """Hear `event: error`, whose data need not hold an `error`."""
        for place, name in self._frames.names.items():
            if name == "error":
                said = refusals.error_message(parse(payloads[place])) or refusals.snippet(payloads[place])
                self._fail(ErrorKind.STREAM_ERROR, said)

    def _choice(self, choice: object) -> int:
        """Take one choice's part of an event; bits of what it carries."""
        if type(choice) is not dict:
            return 0
        index = choice.get("index")
        state = self._choices.get(index if type(index) is int else 0)
        if state is None:
            state = self._choices[choice["index"]] = ChoiceState()
        if choice.get("finish_reason") is not None:
            self._finish(state, choice)
        delta = choice.get("delta")
        if not delta or type(delta) is not dict:
            return 0
        if len(delta) == 1:  # the usual one
            content = delta.get("content")
            if content and type(content) is str:
                state.text.append(content)
                return TEXT
        return state.delta(delta)

    def _details(self, bits: int, usage: object, timings: object) -> None:
        """Keep what few output events tell: their tokens, by a running total, and the first tool call.

        `usage`: vLLM's `continuous_usage_stats`; `timings`: llama.cpp's `timings_per_token`.
        """
        if bits & TOOL and self._first_tool is None:
            self._first_tool = len(self._bounds.high_ns) - 1
        said = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if said is None and isinstance(timings, dict):
            said = timings.get("predicted_n")
        total = count(said)
        self._implausible |= said is not None and total is None
        if total is not None:
            self._bounds.told(max(UNTOLD, total - self._last_total))
            self._last_total = total

    def _told(self, usage: object) -> None:
        """Keep the newest usage that holds a number: `{}` at the end does not take one back."""
        if type(usage) is not dict:
            return
        if "completion_tokens" in usage or "prompt_tokens" in usage:
            self._usage = usage
        if isinstance(tier := usage.get("service_tier"), str):
            self._tier = joined([tier])

    def _facts(self, event: dict[str, Any]) -> None:
        if self._request_id is None and isinstance(id_ := event.get("id"), str):
            self._request_id = joined([id_]) or None
        if isinstance(tier := event.get("service_tier"), str):
            self._tier = joined([tier])

    def _finish(self, state: ChoiceState, choice: dict[str, Any]) -> None:
        state.finish_reason = joined([str(choice["finish_reason"])])
        if state.finish_reason == "error":
            said = refusals.error_message(choice) or "the server ended the answer with finish_reason error"
            self._fail(ErrorKind.STREAM_ERROR, said)

    def _fail(self, kind: ErrorKind, message: str) -> None:
        """Keep the first failure, it is the cause of the others."""
        self._error = self._error or CallError(kind, message)

    def answer(self, *, ended: bool) -> Answer:
        """All that was understood. `ended`: the body came to its clean end, so nothing more will come.

        Not ended means cut: by the transport, a limit or the caller, who knows the reason.
        """
        if ended and not self._over:
            self._flush()
        self._bounds.close()
        main, bounds = self._choices[0], self._bounds
        error = self._error or self._flaw(ended=ended)
        usage, plausible = usage_of(self._usage)
        several = len(self._choices) > 1
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
            tier_served=self._tier,
            request_id=self._request_id,
            done_ns=self._done_ns,
            error=error,
            malformed_events=self._malformed,
            reasoning_summary=main.summaries and not main.raw_reasoning,
            choices={i: Choice(joined(c.text), c.finish_reason) for i, c in sorted(self._choices.items())}
            if several
            else {},
            warnings=self._warnings(usage, plausible=plausible, whole=ended and error is None),
        )

    def _flush(self) -> None:
        """Read the last event though its blank line is missing: finish and usage may stand in it."""
        for payload in self._frames.flush():  # a [DONE] here has the time of the connection's end
            self._bounds.ends_read = self._event(payload)

    def _warnings(self, usage: Usage | None, *, plausible: bool, whole: bool) -> tuple[str, ...]:
        """Name what is odd. `whole`: an answer that came to its end without a failure can lack something."""
        odd = {
            "no_usage": whole and usage is None,
            "no_finish_reason": whole and self._choices[0].finish_reason is None,
            "implausible_usage": self._implausible or not plausible,
        }
        return tuple(name for name, is_so in odd.items() if is_so)

    def _flaw(self, *, ended: bool) -> CallError | None:
        """Find what is wrong with a stream that named no error itself."""
        if self._malformed:
            said = refusals.snippet(self._malformed_text)
            return CallError(ErrorKind.MALFORMED_EVENT, f"{self._malformed} events were not JSON: {said}")
        finished = any(choice.finish_reason for choice in self._choices.values())
        came = len(self._bounds.high_ns) > 0
        if finished or not ended or (came and self._over):
            return None
        if self._frames.junk:
            told = refusals.error_message(parse(self._frames.junk))
            said = told or refusals.snippet(self._frames.junk)
            kind = ErrorKind.STREAM_ERROR if told else ErrorKind.NOT_SSE
            return CallError(kind, f"the body is no event stream: {said}")
        if came:
            return CallError(ErrorKind.TRUNCATED, "the stream ended without a finish_reason or [DONE]")
        return CallError(ErrorKind.EMPTY_RESPONSE, "the stream ended without any output")
