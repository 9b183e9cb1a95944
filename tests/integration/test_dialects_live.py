"""Each dialect from a scenario's words to a request on the wire and back: path, key, content type, text."""

import asyncio
from contextlib import AsyncExitStack

import orjson
import pytest

from harness.clock import MachineClock
from harness.connect import connect
from harness.scenario import parse_scenario
from harness.values import Block, Request, Role
from tests.raw_server import LAST_CHUNK, chunk, serve
from tests.scenario_text import KINDS, PROFILES

SCENARIO = """
schema = 1
name = "one dialect"
[backends.b]
url = "http://127.0.0.1:%d%s"
model = "m"
dialect = "%s"
key_env = "KEY"
[[workloads]]
kind = "agent"
preset = "coding"
[load]
kind = "closed"
users = 1
tasks = 1
"""
CHAT = [
    b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
]
GEMINI = b'{"candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}]}'
EVENTS, JSON = b"text/event-stream", b"application/json; charset=UTF-8"


def answering(heads, kind, pieces):
    async def handler(peer):
        heads.append(await peer.request())
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n" % kind)
        for piece in pieces:
            await peer.send(chunk(piece))
            await asyncio.sleep(0.01)
        await peer.send(LAST_CHUNK)
        await peer.gone()

    return handler


async def call(dialect, base, kind, pieces):
    """(request's first line, its headers, its body, the timeline, the answer)"""
    heads = []
    async with serve(answering(heads, kind, pieces)) as port, AsyncExitStack() as stack:
        scenario = parse_scenario(
            SCENARIO % (port, base, dialect), source="x.toml", kinds=KINDS, profiles=PROFILES
        )
        (live,) = await connect(scenario, {"b": "secret"}, [], clock=MachineClock(), stack=stack)
        request = Request(model="m", blocks=(Block("u", 3, Role.USER),), max_tokens=9)
        decoder = live.dialect.decoder()
        timeline = await live.exchange(live.dialect.encode(request), decoder.feed)
    ((head, body),) = heads
    first, *rest = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in rest if line)
    return first, headers, orjson.loads(body), timeline, decoder.answer(ended=timeline.error is None)


@pytest.mark.parametrize(
    ("dialect", "base", "path", "kind", "pieces"),
    [
        ("openai-chat", "/v1", "/v1/chat/completions", EVENTS, CHAT),
        ("mistral-fim", "/v1", "/v1/fim/completions", EVENTS, CHAT),
        (
            "openai-completions",
            "/v1/",
            "/v1/completions",
            EVENTS,
            [b'data: {"choices":[{"index":0,"text":"hi","finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n"],
        ),
        (
            "llamacpp",
            "",
            "/completion",
            EVENTS,
            [b'data: {"content":"hi","stop":false}\n\n', b'data: {"content":"","stop":true}\n\n'],
        ),
        (
            "ollama",
            "",
            "/api/chat",
            b"application/x-ndjson",
            [b'{"message":{"content":"hi"},"done":false}\n', b'{"message":{"content":""},"done":true}\n'],
        ),
        (
            "gemini",
            "/v1beta",
            "/v1beta/models/m:streamGenerateContent?alt=sse",
            EVENTS,
            [b"data: " + GEMINI + b"\r\n\r\n"],
        ),
        ("gemini", "/v1beta", "/v1beta/models/m:streamGenerateContent?alt=sse", JSON, [b"[", GEMINI, b"]"]),
    ],
)
def test_a_call(dialect, base, path, kind, pieces):
    first, headers, body, timeline, answer = asyncio.run(call(dialect, base, kind, pieces))
    assert first == f"POST {path} HTTP/1.1"
    key = ("x-goog-api-key", "secret") if dialect == "gemini" else ("Authorization", "Bearer secret")
    assert [pair for pair in headers.items() if "secret" in pair[1]] == [key]
    assert body
    assert (timeline.error, timeline.status, timeline.body) == (None, 200, None)
    assert (answer.text, answer.error, len(answer.high_ns)) == ("hi", None, 1)
    assert timeline.sent_ns < answer.high_ns[0] <= timeline.done_ns
