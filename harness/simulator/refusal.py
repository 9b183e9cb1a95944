"""Why a request is not served, before a dialect has worded it. Pure."""

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class Refusal:
    """A status with one sentence.

    code: OpenAI's word for the case, where there is one. retry_after_ms: when to come again.
    should_retry: what the server says of that itself. limited: the bucket that is empty.
    """

    status: int
    message: str
    code: str | None = None
    retry_after_ms: float | None = None
    should_retry: bool | None = None
    limited: str | None = None

    def headers(self) -> dict[str, str]:
        """Tell when to come again: in whole seconds, as HTTP has it, and in milliseconds."""
        headers = {}
        if self.retry_after_ms is not None:
            headers["retry-after"] = str(ceil(self.retry_after_ms / 1000))
            headers["retry-after-ms"] = str(ceil(self.retry_after_ms))
        if self.should_retry is not None:
            headers["x-should-retry"] = str(self.should_retry).lower()
        return headers
