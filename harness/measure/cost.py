"""Money: what tokens cost by a price in USD per million tokens."""

from harness.records import CallRecord
from harness.scenario import TokenPrice


def tokens_usd(price: TokenPrice, *, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
    """Uncached input x input price + cached x cached price + output x output price, per million.

    Input includes cached tokens, output includes reasoning.
    """
    uncached = input_tokens - cached_tokens
    return (uncached * price.input + cached_tokens * price.cached + output_tokens * price.output) / 1e6


def call_usd(price: TokenPrice, call: CallRecord) -> float | None:
    """Cost of one call; None where the server did not tell its tokens."""
    if call.input_tokens is None or call.output_tokens is None:
        return None
    return tokens_usd(
        price,
        input_tokens=call.input_tokens,
        cached_tokens=call.cached_tokens or 0,
        output_tokens=call.output_tokens,
    )
