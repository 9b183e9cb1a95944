"""How a simulated backend departs from its profile: `behaviour` of a backend in a scenario."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from harness.tables import TABLE

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Limit = Annotated[int, Field(ge=1)]


class Behaviour(BaseModel):
    """Network, limits, failures and tier faults; what is left out is as the profile says.

    rtt_ms: round trip to the client. requests_per_min, tokens_per_min: buckets that fill evenly.
    fail_first, fail_share: so many first requests, and this share of the others, are refused with
    `fail_status`, and `retry_after_s` is told where it is given.
    fallback: profile that really serves the calls behind the first `fallback_after`, this share of them; it
    has a prompt cache of its own. fallback_echo: the tier told for these: of what served, or as asked.
    """

    model_config = TABLE

    rtt_ms: float | None = Field(None, ge=0, le=10_000)
    requests_per_min: Limit | None = None
    tokens_per_min: Limit | None = None
    fail_first: Count = 0
    fail_share: Share = 0
    fail_status: Literal[400, 401, 403, 404, 408, 409, 429, 500, 502, 503, 504, 529] = 503
    retry_after_s: float | None = Field(None, ge=0, le=3600)
    fallback: str | None = Field(None, min_length=1)
    fallback_after: Count = 0
    fallback_share: Share = 1
    fallback_echo: Literal["served", "asked"] = "served"
