"""Our decoder and the official SDK, fed the same recorded bytes, understand the same."""

import base64
import json
import socket
import threading
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from harness.decode import decode_file

ALL = sorted((Path(__file__).parents[1] / "data" / "recordings").glob("*.json"))
CUT_BY_THE_SERVER = "llmock_chat_disconnect"
ERROR_AMID = "llamacpp_agent_error_midstream"


def status_of(file):
    return json.loads(file.read_text())["response"]["status"]


def path_of(file):
    return json.loads(file.read_text())["request"]["path"]


RECORDINGS = [file for file in ALL if path_of(file).endswith("/chat/completions")]
LEGACY = [file for file in ALL if path_of(file).endswith("/v1/completions")]
STREAMS = [
    f
    for f in RECORDINGS
    if status_of(f) == 200 and f.stem not in (CUT_BY_THE_SERVER, ERROR_AMID, "llamacpp_chat_nostream")
]
REFUSALS = [f for f in RECORDINGS if status_of(f) >= 400]


@contextmanager
def replaying(file):
    """A loopback server that answers one request with the recorded bytes, and then closes."""
    raw = b"".join(base64.b64decode(data) for _, data in json.loads(file.read_text())["wire"])

    def serve():
        connection, _ = server.accept()
        with connection:
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(65536)
            head, _, body = request.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            while len(body) < length:
                body += connection.recv(65536)
            connection.sendall(raw)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        finally:
            thread.join()


def understood_by_sdk(file):
    """Text, reasoning, tool arguments by index, finish reason and usage, joined from the SDK's chunks."""
    told = {"text": "", "reasoning": "", "arguments": {}, "finish_reason": None, "usage": None}
    with (
        replaying(file) as url,
        openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=10) as client,
    ):
        messages = [{"role": "user", "content": "hi"}]
        with client.chat.completions.create(model="m", messages=messages, stream=True) as stream:
            for chunk in stream:
                if chunk.usage:
                    told["usage"] = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
                for choice in chunk.choices:
                    told["text"] += choice.delta.content or ""
                    told["reasoning"] += getattr(choice.delta, "reasoning_content", None) or ""
                    told["finish_reason"] = choice.finish_reason or told["finish_reason"]
                    for call in choice.delta.tool_calls or []:
                        before = told["arguments"].get(call.index, "")
                        told["arguments"][call.index] = before + (call.function.arguments or "")
    return told


@pytest.mark.parametrize("file", STREAMS, ids=lambda file: file.stem)
def test_streams_are_understood_as_by_the_sdk(file):
    (ours,) = decode_file(file)
    sdk = understood_by_sdk(file)
    usage = ours["usage"] and (ours["usage"]["input_tokens"], ours["usage"]["output_tokens"])
    assert {
        "text": ours["text"],
        "reasoning": ours["reasoning"],
        "arguments": {i: call["arguments"] for i, call in enumerate(ours["tool_calls"])},
        "finish_reason": ours["finish_reason"],
        "usage": usage,
    } == sdk
    assert ours["ok"] is (sdk["finish_reason"] is not None)
    assert sdk["text"] or sdk["arguments"]


@pytest.mark.parametrize("file", LEGACY, ids=lambda file: file.stem)
def test_legacy_completions_are_understood_as_by_the_sdk(file):
    (ours,) = decode_file(file)
    text, reason, usage = "", None, None
    with (
        replaying(file) as url,
        openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=10) as client,
        client.completions.create(model="m", prompt="hi", stream=True) as stream,
    ):
        for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.text
                reason = choice.finish_reason or reason
    counts = usage and {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}
    assert text
    assert (ours["ok"], ours["text"], ours["finish_reason"]) == (True, text, reason)
    assert (ours["usage"] or {}).items() >= (counts or {}).items()


@pytest.mark.parametrize("file", REFUSALS, ids=lambda file: file.stem)
def test_refusals_are_status_errors_for_both(file):
    (ours,) = decode_file(file)
    with pytest.raises(openai.APIStatusError) as refused:
        understood_by_sdk(file)
    assert refused.value.status_code == ours["status"]
    assert ours["error"]["kind"] == "http_error"
    assert refused.value.body["message"] in ours["error"]["message"]


def test_a_connection_cut_by_the_server_fails_for_both():
    (file,) = (f for f in RECORDINGS if f.stem == CUT_BY_THE_SERVER)
    (ours,) = decode_file(file)
    with pytest.raises(openai.APIConnectionError):
        understood_by_sdk(file)
    assert (ours["error"]["kind"], ours["text"]) == ("truncated", "Hello! LLMock ")


def test_an_error_amid_the_stream_fails_for_both():
    (file,) = (f for f in RECORDINGS if f.stem == ERROR_AMID)
    (ours,) = decode_file(file)
    with pytest.raises(openai.APIError) as raised:
        understood_by_sdk(file)
    assert (ours["error"]["kind"], ours["text"]) == ("stream_error", "A:\n")
    assert raised.value.message in ours["error"]["message"]


def test_recordings_are_what_this_test_thinks():
    assert (len(STREAMS), len(REFUSALS), len(LEGACY)) == (16, 7, 4)
