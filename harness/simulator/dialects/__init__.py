"""The dialects that a simulator speaks, and where."""

from harness.simulator.dialects.chat import CHAT, FIM
from harness.simulator.dialects.speech import Speech

__all__ = ["CHAT", "ROUTES"]

ROUTES: tuple[tuple[str, Speech], ...] = (
    ("/v1/chat/completions", CHAT),
    ("/v1/fim/completions", FIM),
)
