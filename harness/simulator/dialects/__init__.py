"""The dialects that a simulator speaks, and where.

Each at its native place, and under `/v1` where that is another: the base URL of a simulated backend ends
there, and a client puts its dialect's path behind it.
"""

from harness.simulator.dialects.chat import CHAT, FIM
from harness.simulator.dialects.completions import COMPLETIONS
from harness.simulator.dialects.gemini import GEMINI
from harness.simulator.dialects.llamacpp import INFILL, LLAMACPP
from harness.simulator.dialects.messages import MESSAGES
from harness.simulator.dialects.ollama import OLLAMA, OLLAMA_GENERATE
from harness.simulator.dialects.responses import RESPONSES
from harness.simulator.dialects.speech import Speech

__all__ = ["CHAT", "ROUTES"]

_GEMINI_MODEL = "/models/{model:[^:/]+}:{method:(?:streamG|g)enerateContent}"

ROUTES: tuple[tuple[str, Speech], ...] = (
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", COMPLETIONS),
    ("/v1/responses", RESPONSES),
    ("/v1/messages", MESSAGES),
    ("/v1/fim/completions", FIM),
    ("/v1beta" + _GEMINI_MODEL, GEMINI),
    ("/v1" + _GEMINI_MODEL, GEMINI),
    ("/api/chat", OLLAMA),
    ("/v1/api/chat", OLLAMA),
    ("/api/generate", OLLAMA_GENERATE),
    ("/v1/api/generate", OLLAMA_GENERATE),
    ("/completion", LLAMACPP),
    ("/v1/completion", LLAMACPP),
    ("/infill", INFILL),
    ("/v1/infill", INFILL),
)
