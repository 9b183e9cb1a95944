"""One served profile: who is let in, which machine serves, and what is told of it."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from harness.behaviour import Behaviour
from harness.clock import Clock, wall_time
from harness.simulator.asked import Asked, Place, UnservableError
from harness.simulator.dialects.speech import Speech
from harness.simulator.jobs import Job
from harness.simulator.limits import Limits
from harness.simulator.output import Encoder, Facts, Output
from harness.simulator.prefix_cache import Prefix
from harness.simulator.profiles import Profile, Reasoning, profiles
from harness.simulator.refusal import Refusal
from harness.simulator.serving import Serving, StreamLog

MakeEncoder = Callable[[Output], Encoder]

STORED_ANSWERS = 10_000
"""Answers of which a later request may speak (`previous_response_id`); the oldest go first."""

_FAILURES = {
    400: "The request was refused on purpose.",
    429: "Rate limit reached.",
    500: "The server had an error while processing your request.",
    503: "The engine is currently overloaded, please try again later.",
    529: "Overloaded.",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A request that has been let in. headers: the request's id and what is left of the limits."""

    received_ns: int
    serving: Serving
    job: Job
    output: Output
    encoder: Encoder
    headers: Mapping[str, str]


class Endpoint:
    """A profile and its behaviour behind one URL. A fallback is a machine of its own, with its own cache."""

    def __init__(
        self, profile: Profile, behaviour: Behaviour, *, clock: Clock, log: StreamLog | None, seed: int
    ) -> None:
        self.profile = profile
        self.rtt_ms = profile.rtt_ms if behaviour.rtt_ms is None else behaviour.rtt_ms
        self.stored: OrderedDict[str, tuple[Prefix, ...]] = OrderedDict()
        self._behaviour = behaviour
        self._clock = clock
        self._log = log
        self._serving = Serving(profile, clock=clock, seed=seed)
        self._fallback = (
            Serving(profiles()[behaviour.fallback], clock=clock, seed=seed) if behaviour.fallback else None
        )
        self._limits = Limits(
            requests_per_min=behaviour.requests_per_min or profile.requests_per_min,
            tokens_per_min=behaviour.tokens_per_min or profile.tokens_per_min,
        )
        self._dice = np.random.default_rng(np.random.SeedSequence([seed, crc32(profile.name.encode()), 1]))
        self._asked = 0
        self._served = 0
        self._refused: Counter[int] = Counter()

    def admit(
        self, speech: Speech, body: object, *, place: Place, received_ns: int, make: MakeEncoder | None = None
    ) -> Call | Refusal:
        """Let a request in, or say why not. make: the encoder to use instead of the dialect's own."""
        asked = self._understood(speech, body, place)
        if isinstance(asked, Refusal):
            return self._counted(asked)
        refusal = self._failure() or self._limits.admit(asked.reserve_tokens, self._clock.now_ns())
        if refusal is not None:
            return self._counted(refusal)
        serving = self._machine()
        self._served += 1
        job = Job(self._served, asked.prefixes, asked.plan.output_tokens)
        facts = Facts(
            id=f"{speech.id_prefix}{job.id}",
            created=int(wall_time()),
            model=self.profile.model,
            tier=self._told_tier(asked.tier, serving),
            show_reasoning=self.profile.reasoning is Reasoning.STREAMED or not speech.hides_reasoning,
            rtt_ms=self.rtt_ms,
        )
        output = Output(asked, job, facts=facts)
        headers = {speech.request_id_header: f"req_sim{job.id}", **self.limit_headers(speech)}
        return Call(received_ns, serving, job, output, (make or speech.encoder)(output), headers)

    def limit_headers(self, speech: Speech) -> dict[str, str]:
        """Tell what is left of the limits, in the dialect's headers."""
        return self._limits.headers(speech.limit_headers, now_ns=self._clock.now_ns(), wall_s=wall_time())

    def close(
        self, call: Call, first_byte_ns: int | None, *, sends: list[tuple[int, int, str]], cancelled: bool
    ) -> None:
        """End a call, done or not, and log it."""
        call.serving.cancel(call.job)
        if not cancelled and call.output.asked.options.get("store"):
            self._store(call.output)
        if self._log:
            self._log.write(
                {
                    "call_id": call.output.asked.plan.call_id,
                    "profile": call.serving.profile.name,
                    "received_ns": call.received_ns,
                    "queued_ns": call.job.queued_ns,
                    "first_byte_ns": first_byte_ns,
                    "sends": sends,
                    "ended_ns": self._clock.now_ns(),
                    "cancelled": cancelled,
                }
            )

    def stats(self) -> dict[str, Any]:
        """Count what happened; `refused` by status, `fallback` as the machine itself tells it."""
        told = {**self._serving.stats(), "refused": {str(s): n for s, n in self._refused.items()}}
        return told | ({"fallback": self._fallback.stats()} if self._fallback else {})

    def _understood(self, speech: Speech, body: object, place: Place) -> Asked | Refusal:
        if not isinstance(body, dict):
            return Refusal(400, "The body must be a JSON object.")
        try:
            asked = speech.parse(body, place)
        except ValueError as error:
            return Refusal(400, f"{error}.")
        except UnservableError as error:
            return Refusal(400, f"{error}.", code=error.code)
        if asked.model not in (None, self.profile.model):
            message = f"The model `{asked.model}` does not exist; this server serves `{self.profile.model}`."
            return Refusal(404, message, code="model_not_found")
        return asked

    def _store(self, output: Output) -> None:
        """Keep an answer, so that a later request can go on from it."""
        self.stored[output.facts.id] = output.history
        if len(self.stored) > STORED_ANSWERS:
            self.stored.popitem(last=False)

    def _counted(self, refusal: Refusal) -> Refusal:
        self._refused[refusal.status] += 1
        return refusal

    def _failure(self) -> Refusal | None:
        """Refuse what the behaviour wants refused."""
        behaviour = self._behaviour
        self._asked += 1
        unlucky = behaviour.fail_share > 0 and self._dice.random() < behaviour.fail_share
        if self._asked > behaviour.fail_first and not unlucky:
            return None
        after_s, status = behaviour.retry_after_s, behaviour.fail_status
        return Refusal(
            status,
            _FAILURES.get(status, "The request failed on purpose."),
            retry_after_ms=None if after_s is None else after_s * 1000,
        )

    def _machine(self) -> Serving:
        """Choose who serves: the profile's machine, or unasked the fallback."""
        behaviour = self._behaviour
        if self._fallback is None or self._served < behaviour.fallback_after:
            return self._serving
        share = behaviour.fallback_share
        return self._fallback if share == 1 or self._dice.random() < share else self._serving

    def _told_tier(self, asked: str | None, serving: Serving) -> str:
        if serving is self._fallback and self._behaviour.fallback_echo == "served":
            return serving.profile.service_tier
        own = self.profile.service_tier
        return own if asked in (None, "auto", own) else "default"
