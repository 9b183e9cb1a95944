"""Ways to ask a simulator, apart from the code under test."""

import contextlib
import http.client
import json
import time
from urllib.parse import urlsplit

import openai

ULTRAFAST = "gpt-5.6-sol-ultrafast"
B200 = "b200x8-gpt-oss-120b-trtllm"
MODELS = {ULTRAFAST: "gpt-5.6-sol", B200: "gpt-oss-120b"}
PATIENCE_S = 20


class Server:
    """The URLs and the log of a running simulator."""

    def __init__(self, urls, log):
        self.urls = urls
        self._log = log

    def client(self, profile, key="none"):
        return openai.OpenAI(base_url=self.urls[profile], api_key=key, max_retries=0, timeout=PATIENCE_S)

    def stats(self, profile):
        connection, _ = connect(self.urls[profile])
        with contextlib.closing(connection):
            connection.request("GET", "/stats")
            return json.load(connection.getresponse())

    def logged(self, call_id):
        """Wait for the line of a call: it is written after the client has seen the end."""
        return eventually(lambda: next((line for line in self._lines() if line["call_id"] == call_id), None))

    def _lines(self):
        return [json.loads(line) for line in self._log.read_text().splitlines()]


def eventually(ask):
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := ask()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return answer


def connect(url, tls=None):
    parts = urlsplit(url)
    if tls:
        return http.client.HTTPSConnection(parts.netloc, context=tls, timeout=PATIENCE_S), parts.path
    return http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_S), parts.path


def body(profile=B200, *, prompt="say it", **fields):
    message = {"role": "user", "content": prompt}
    return {"model": MODELS[profile], "messages": [message], "stream": True, **fields}


def ask(connection, path, fields):
    """Return the status and the decoded events, or the error, of one request on an open connection."""
    connection.request("POST", f"{path}/chat/completions", json.dumps(fields))
    response = connection.getresponse()
    data = response.read()
    if response.status != 200:
        return response.status, json.loads(data)
    frames = data.decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    return 200, [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


def output_events(events):
    """(kind, text) of each event that carries output, read apart from the code under test."""
    found = []
    for event in events:
        for choice in event["choices"]:
            delta = choice["delta"]
            if delta.get("content"):
                found.append(("text", delta["content"]))
            if delta.get("reasoning"):
                found.append(("reasoning", delta["reasoning"]))
            functions = [call["function"] for call in delta.get("tool_calls", ())]
            found += [("tool", function.get("name", "") + function["arguments"]) for function in functions]
    return found
