"""llama.cpp's own interface, `/completion` and `/infill`. Pure.

Each event tells the tokens so far; with `timings_per_token` each has `timings`, the last one has them anyway.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from harness.simulator.asked import (
    Asked,
    Finish,
    Place,
    all_text,
    count,
    list_in,
    plan_of,
    prefixes_of,
    reserved,
    text_in,
)
from harness.simulator.dialects.completions import prompt_in
from harness.simulator.dialects.speech import EVENT_STREAM, Speech, sse
from harness.simulator.output import Output, Sent
from harness.simulator.refusal import Refusal

FINISH = {Finish.STOP: "eos", Finish.LENGTH: "limit"}

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    503: "unavailable_error",
}


def parse(body: Mapping[str, Any], _place: Place) -> Asked:
    """Check the body of `POST /completion`."""
    return _asked(body, [("prompt", prompt_in(body))])


def parse_infill(body: Mapping[str, Any], _place: Place) -> Asked:
    """Check the body of `POST /infill`."""
    if text_in(body, "input_prefix") is None or text_in(body, "input_suffix") is None:
        raise ValueError("'input_prefix' and 'input_suffix' must be strings")
    files = [one for one in list_in(body, "input_extra") if isinstance(one, dict)]
    extra = [("extra", text_in(file, "text") or "") for file in files]
    parts = ("input_prefix", "prompt", "input_suffix")
    return _asked(body, [*extra, *((part, text_in(body, part) or "") for part in parts)])


def _asked(body: Mapping[str, Any], messages: list[tuple[str, str]]) -> Asked:
    limit = body.get("n_predict")
    limit = None if limit == -1 else count(body, "n_predict", least=1)
    prefixes = prefixes_of(messages)
    plan = all_text(plan_of(body, limit=limit))
    return Asked(
        model=text_in(body, "model"),
        prefixes=prefixes,
        plan=plan,
        reserve_tokens=reserved(prefixes, plan, limit=limit),
        stream=body.get("stream") is True,
        options={"timings_per_token": body.get("timings_per_token") is True},
    )


def refuse(refusal: Refusal) -> bytes:
    """Word a refusal as llama-server does."""
    kind = _ERRORS.get(refusal.status, "server_error")
    return orjson.dumps({"error": {"code": refusal.status, "message": refusal.message, "type": kind}})


class LlamacppEncoder:
    """Events with content, the last with `stop`."""

    content_type = EVENT_STREAM

    def __init__(self, output: Output) -> None:
        self._output = output

    def greeting(self) -> tuple[bytes, ...]:
        """See Encoder."""
        return ()

    def opening(self) -> tuple[bytes, ...]:
        """See Encoder."""
        return ()

    def events(self, tokens: int) -> Iterator[Sent]:
        """See Encoder."""
        output = self._output
        for piece in output.take(tokens):
            event: dict[str, Any] = {
                "index": 0,
                "content": piece.text,
                "tokens": list(range(1, piece.tokens + 1)),  # of a vocabulary that does not exist
                "stop": False,
                "id_slot": 0,
                "tokens_predicted": output.sent_tokens,
                "tokens_evaluated": output.input_tokens,
            }
            if output.asked.options["timings_per_token"]:
                event["timings"] = self._timings()
            yield Sent(piece.kind, piece.tokens, sse(event))

    def ending(self) -> Iterator[bytes]:
        """See Encoder."""
        yield sse(self._last(""))

    def completion(self) -> bytes:
        """See Encoder."""
        text = "".join(piece.text for piece in self._output.whole())
        return orjson.dumps(self._last(text))

    def _last(self, text: str) -> dict[str, Any]:
        output = self._output
        return {
            "index": 0,
            "content": text,
            "tokens": [],
            "id_slot": 0,
            "stop": True,
            "model": output.facts.model,
            "tokens_predicted": output.sent_tokens,
            "tokens_evaluated": output.input_tokens,
            "generation_settings": {"n_predict": output.asked.plan.output_tokens},
            "has_new_line": False,
            "truncated": False,
            "stop_type": FINISH[output.asked.plan.finish],
            "stopping_word": "",
            "tokens_cached": output.input_tokens + output.sent_tokens - 1,
            "timings": self._timings(),
            "x_sim": output.x_sim,
        }

    def _timings(self) -> dict[str, float]:
        """As the server's own README has them; its decode begins at the first token."""
        output = self._output
        prompt_ms, decode_ms = output.prompt_ns / 1e6, output.decode_ns / 1e6
        prompt_n = output.input_tokens - output.cached_tokens
        return {
            "cache_n": output.cached_tokens,
            "prompt_n": prompt_n,
            "prompt_ms": prompt_ms,
            "prompt_per_token_ms": prompt_ms / max(1, prompt_n),
            "prompt_per_second": prompt_n / prompt_ms * 1e3 if prompt_ms else 0.0,
            "predicted_n": output.sent_tokens,
            "predicted_ms": decode_ms,
            "predicted_per_token_ms": decode_ms / max(1, output.sent_tokens),
            "predicted_per_second": output.sent_tokens / decode_ms * 1e3 if decode_ms else 0.0,
        }


LLAMACPP = Speech(parse=parse, encoder=LlamacppEncoder, refuse=refuse, id_prefix="sim")
INFILL = Speech(parse=parse_infill, encoder=LlamacppEncoder, refuse=refuse, id_prefix="sim")
