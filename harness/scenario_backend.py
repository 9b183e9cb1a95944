"""One backend of a scenario: where it is, what it speaks, and what is asked of it."""

import re
from ipaddress import ip_address
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator

from harness.behaviour import Behaviour
from harness.prices import Price
from harness.tables import TABLE

_LONG_NAME = 20  # characters; one so long that mixes small letters and digits is taken for a key
_SECRETS = ("sk_", "gsk_", "hf_", "AIza", "fw_", "r8_")  # of keys that could be names

Dialect = Literal[
    "openai-chat",
    "openai-responses",
    "anthropic",
    "mistral-fim",
    "openai-completions",
    "llamacpp",
    "ollama",
    "gemini",
]
"""The names of `wire.DIALECTS`: this file must not import them, and a checker reads them here."""

Text = Annotated[str, Field(min_length=1)]
_A_YEAR_S = 31_536_000  # longer than any run; what is far longer does not fit into a timer
Seconds = Annotated[float, Field(ge=0, le=_A_YEAR_S)]
SomeSeconds = Annotated[float, Field(gt=0, le=_A_YEAR_S)]


class TimeLimits(BaseModel):
    """How long one call may take, and each stage of it; `stall_s` is silence after the first output."""

    model_config = TABLE

    connect_s: SomeSeconds = 10
    first_output_s: SomeSeconds = 120
    stall_s: SomeSeconds = 60
    total_s: SomeSeconds = 600


class Quota(BaseModel):
    """What the client lets out in any minute; tokens: prompts as planned and all that may be answered."""

    model_config = TABLE

    requests_per_min: int | None = Field(None, ge=1)
    tokens_per_min: int | None = Field(None, ge=1)


class Backend(BaseModel):
    """One endpoint under test: simulated by a profile, with a `behaviour` that departs from it, or at a URL.

    `key_env` is the name of the environment variable that holds the key; the key is never here.
    `output_control` tells how the planned output length is forced on a real server.
    """

    model_config = TABLE

    simulate: Text | None = None
    behaviour: Behaviour | None = None
    url: Text | None = None
    dialect: Dialect = "openai-chat"
    model: Text
    key_env: str | None = None
    service_tier: Text | None = None
    transport: Literal["keep-alive", "new-connection", "websocket"] = "keep-alive"
    proxy: Text | None = None
    extra_body: dict[str, Any] = Field(default_factory=dict)
    output_control: Literal["max_tokens", "ignore_eos"] = "max_tokens"
    limits: TimeLimits = TimeLimits()
    quota: Quota = Quota()
    retry: Literal["off", "sdk"] = "off"
    price: Price | None = None

    @field_validator("url")
    @classmethod
    def _http(cls, url: str) -> str:
        wrong = ValueError("want http:// or https://, a host and a path, such as http://127.0.0.1:8000/v1")
        try:
            parts = urlsplit(url)
            parts.port  # noqa: B018 - looks whether it is a number
        except ValueError:
            raise wrong from None
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError("want no user, password, query or fragment in it; a key goes into key_env")
        if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"\s", url):
            raise wrong
        return url

    @field_validator("proxy")
    @classmethod
    def _plain_proxy(cls, url: str) -> str:
        wrong = ValueError("want http://HOST:PORT of an HTTP proxy, without user and password")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise wrong from None
        if parts.scheme != "http" or not parts.hostname or port is None or re.search(r"[\s@]", url):
            raise wrong
        return url

    @field_validator("key_env")
    @classmethod
    def _a_name(cls, name: str) -> str:
        long_and_mixed = len(name) >= _LONG_NAME and re.search("[a-z]", name) and re.search("[0-9]", name)
        is_name = re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)
        if not is_name or name.startswith(_SECRETS) or long_and_mixed:
            raise ValueError(
                "want the NAME of an environment variable, such as OPENAI_API_KEY; never the key"
            )
        return name


def is_loopback(backend: Backend) -> bool:
    """Tell whether a backend is on this machine, where calls cost nothing."""
    host = urlsplit(backend.url).hostname if backend.url else "localhost"
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:
        return False
