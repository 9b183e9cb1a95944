"""Which prompt prefixes a backend still holds: whole messages, kept while used and while there is room."""

from collections import OrderedDict
from typing import NamedTuple


class Prefix(NamedTuple):
    """A prompt up to the end of one message: `key` stands for all of its words, `tokens` is its length."""

    key: int
    tokens: int


class PrefixCache:
    """Prefixes by key, held while used within `idle_ns`; above `capacity_tokens` the longest unused go first.

    The lifetime and the 1024 tokens below which nothing is cached are OpenAI's published ones; the
    capacity is a guess of the size of one machine's KV memory.
    """

    def __init__(
        self,
        *,
        idle_ns: int = 300_000_000_000,
        capacity_tokens: int = 4_000_000,
        min_tokens: int = 1024,
    ) -> None:
        self._idle_ns = idle_ns
        self._capacity_tokens = capacity_tokens
        self._min_tokens = min_tokens
        self._entries: OrderedDict[int, tuple[int, int]] = OrderedDict()  # key -> (own tokens, last use)
        self._held_tokens = 0

    def lookup(self, prefixes: tuple[Prefix, ...], now_ns: int) -> int:
        """Tokens of the longest held prefix, and mark it as used; 0 if it is too short to be cached.

        `prefixes` of one prompt, shortest first.
        """
        self._forget_idle(now_ns)
        held = 0
        while held < len(prefixes) and prefixes[held].key in self._entries:
            held += 1
        self._use(prefixes[:held], now_ns)
        tokens = prefixes[held - 1].tokens if held else 0
        return tokens if tokens >= self._min_tokens else 0

    def store(self, prefixes: tuple[Prefix, ...], now_ns: int) -> None:
        """Hold all prefixes of one prompt, shortest first."""
        self._forget_idle(now_ns)
        before = 0
        for prefix in prefixes:
            if prefix.key not in self._entries:
                self._entries[prefix.key] = (prefix.tokens - before, now_ns)
                self._held_tokens += prefix.tokens - before
            before = prefix.tokens
        self._use(prefixes, now_ns)
        while self._held_tokens > self._capacity_tokens:
            self._drop_oldest()

    def _use(self, prefixes: tuple[Prefix, ...], now_ns: int) -> None:
        # Longest first, so that a prefix is always younger than what was built on it and dropped after it.
        for prefix in reversed(prefixes):
            own, _ = self._entries[prefix.key]
            self._entries[prefix.key] = (own, now_ns)
            self._entries.move_to_end(prefix.key)

    def _forget_idle(self, now_ns: int) -> None:
        while self._entries and next(iter(self._entries.values()))[1] + self._idle_ns < now_ns:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, (own, _) = self._entries.popitem(last=False)
        self._held_tokens -= own
