"""OpenAI's legacy completions: all that comes is text, after `prompt` and before `suffix`. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from harness.simulator.asked import (
    Asked,
    Finish,
    Place,
    all_text,
    count,
    mapping,
    model_in,
    plan_of,
    prefixes_of,
    reserved,
    text_in,
)
from harness.simulator.dialects.chat import DONE, usage_of
from harness.simulator.dialects.speech import EVENT_STREAM, Speech, openai_refuse
from harness.simulator.output import Output, Sent

FINISH = {Finish.STOP: "stop", Finish.LENGTH: "length"}


def parse(body: Mapping[str, Any], _place: Place) -> Asked:
    """Check the body of `POST /v1/completions`."""
    limit = count(body, "max_tokens", least=1)
    prefixes = prefixes_of([("prompt", prompt_in(body)), ("suffix", text_in(body, "suffix") or "")])
    plan = all_text(plan_of(body, limit=limit, least=count(body, "min_tokens")))
    options = mapping(body, "stream_options")
    return Asked(
        model=model_in(body),
        prefixes=prefixes,
        plan=plan,
        reserve_tokens=reserved(prefixes, plan, limit=limit),
        stream=body.get("stream") is True,
        tier=text_in(body, "service_tier"),
        include_usage=options.get("include_usage") is True,
        continuous_usage=options.get("continuous_usage_stats") is True,
    )


def prompt_in(body: Mapping[str, Any]) -> str:
    """Read a prompt: one text, or a list that holds one."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise ValueError("'prompt' must be a string")  # noqa: TRY004 - one error for all bad bodies
    return prompt


class CompletionsEncoder:
    """Chunks with text."""

    content_type = EVENT_STREAM

    def __init__(self, output: Output) -> None:
        self._output = output
        self._head = b"data: " + orjson.dumps(self._heading())[:-1] + b',"choices":['

    def greeting(self) -> tuple[bytes, ...]:
        """See Encoder."""
        return ()

    def opening(self) -> tuple[bytes, ...]:
        """See Encoder."""
        return ()

    def events(self, tokens: int) -> Iterator[Sent]:
        """See Encoder."""
        for piece in self._output.take(tokens):
            yield Sent(piece.kind, piece.tokens, self._chunk(piece.text.encode()))

    def ending(self) -> Iterator[bytes]:
        """See Encoder."""
        asked = self._output.asked
        yield self._chunk(b"", finish_reason=b'"%b"' % FINISH[asked.plan.finish].encode())
        if asked.include_usage:
            usage, x_sim = orjson.dumps(usage_of(self._output)), orjson.dumps(self._output.x_sim)
            yield self._head + b'],"usage":%b,"x_sim":%b}\n\n' % (usage, x_sim)
        yield DONE

    def completion(self) -> bytes:
        """See Encoder."""
        output = self._output
        text = "".join(piece.text for piece in output.whole())
        finish = FINISH[output.asked.plan.finish]
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        told = {"choices": [choice], "usage": usage_of(output), "x_sim": output.x_sim}
        return orjson.dumps(self._heading() | told)

    def _heading(self) -> dict[str, Any]:
        facts = self._output.facts
        return {
            "id": facts.id,
            "object": "text_completion",
            "created": facts.created,
            "model": facts.model,
            "service_tier": facts.tier,
            "system_fingerprint": "fp_simulated",
        }

    def _chunk(self, text: bytes, *, finish_reason: bytes = b"null") -> bytes:
        asked = self._output.asked
        if asked.continuous_usage:
            tail = b'],"usage":' + orjson.dumps(usage_of(self._output))
        else:
            tail = b'],"usage":null' if asked.include_usage else b"]"
        choice = b'{"index":0,"text":"%b","logprobs":null,"finish_reason":%b}' % (text, finish_reason)
        return self._head + choice + tail + b"}\n\n"


COMPLETIONS = Speech(parse=parse, encoder=CompletionsEncoder, refuse=openai_refuse, id_prefix="cmpl-sim")
