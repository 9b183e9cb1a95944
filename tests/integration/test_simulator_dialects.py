"""Our own decoders read back what a simulator sent, in every dialect, streamed and whole."""

import asyncio
import http.client
import itertools
import json
import time
from urllib.parse import urlsplit

import pytest

from harness.behaviour import Behaviour
from harness.client.session import Endpoint
from harness.client.watchdog import CallLimits
from harness.client.websocket import WebSocketExchange
from harness.clock import MachineClock
from harness.simulator.process import simulators
from harness.values import Block, ErrorKind, EventKind, Request, Role
from harness.wire import DIALECTS
from tests.integration.asking import B200, MODELS, PATIENCE_S, ULTRAFAST, Server
from tests.integration.running import run_once, scenario, simulated

KINDS = tuple(EventKind)
HERE = Behaviour(rtt_ms=0)
ALL_TEXT = ("openai-completions", "mistral-fim", "llamacpp")  # they know no reasoning and no tools
WHOLE_CALLS = ("gemini", "ollama")
TOLD_PER_EVENT = ("llamacpp", "gemini")
PLAN = {
    "output_tokens": 60,
    "reasoning_tokens": 12,
    "tool_calls": [{"name": "look", "tokens": 9}, {"name": "find", "tokens": 1}],
}
BLOCKS = (
    Block("s", 5, Role.SYSTEM),
    Block("u", 7, Role.USER),
    Block("a", 3, Role.ASSISTANT, text="so it is"),
    Block("v", 4, Role.USER),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    log = tmp_path_factory.mktemp("simulator") / "sends.jsonl"
    with simulators([B200, ULTRAFAST], log=log, behaviours=[HERE, HERE]) as process:
        yield Server(dict(zip((B200, ULTRAFAST), process.urls(), strict=True)), log)


def request_for(dialect, profile, call_id, **changes):
    tools = () if dialect in ALL_TEXT else ("look", "find")
    fields = {"max_tokens": 60, "x_plan": PLAN | {"call_id": call_id}, "tools": tools} | changes
    return DIALECTS[dialect].encode(Request(model=MODELS[profile], blocks=BLOCKS, **fields))


def post(url, request, body=None):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_S)
    path = f"{parts.path}{request.path}"
    connection.request("POST", path, body or request.body, {"anthropic-version": "2023-06-01"})
    return connection, connection.getresponse()


def streamed(dialect, url, request):
    """Decode an answer as it comes."""
    connection, response = post(url, request)
    assert response.status == 200
    assert response.headers["content-type"].split(";")[0] in DIALECTS[dialect].stream_types
    decoder = DIALECTS[dialect].decoder()
    while data := response.read1(65536):
        decoder.feed(data, time.monotonic_ns())
    connection.close()
    return decoder.answer(ended=True)


def check(answer, dialect, *, shown, line):
    sends = [(kind, tokens) for _, tokens, kind in line["sends"]]
    assert answer.error is None
    assert answer.warnings == ()
    assert [KINDS[kind].value for kind in answer.kinds] == [kind for kind, _ in sends]
    visible = 60 if dialect in ALL_TEXT or shown else 48
    assert sum(tokens for _, tokens in sends) == visible
    if dialect in TOLD_PER_EVENT:
        assert list(answer.tokens)[1:] == [tokens for _, tokens in sends[1:]]
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (19, 60)
    assert answer.usage.reasoning_tokens in (None, 0 if dialect in ALL_TEXT else 12)
    check_said(answer, dialect, shown=shown)


def check_said(answer, dialect, *, shown):
    if dialect in ALL_TEXT:
        assert (len(answer.text.split()), answer.reasoning, answer.tool_calls) == (60, "", ())
        return
    assert len(answer.text.split()) == 60 - 12 - 10
    assert len(answer.reasoning.split()) == (12 if shown else 0)
    assert [call.name for call in answer.tool_calls] == ["look", "find"]
    arguments = [json.loads(call.arguments or "{}") for call in answer.tool_calls]
    assert [len(one.get("input", "").split()) for one in arguments] == [8, 0]


@pytest.mark.parametrize("profile", [B200, ULTRAFAST], ids=["shown", "hidden"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_was_sent_is_read(server, dialect, profile):
    call_id = f"{dialect} {profile}"
    answer = streamed(dialect, server.urls[profile], request_for(dialect, profile, call_id))
    check(answer, dialect, shown=profile == B200 or dialect == "ollama", line=server.logged(call_id))
    assert answer.server_timing["rtt_s"] == 0
    assert answer.server_timing["queue_s"] >= 0


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic", "openai-responses"])
def test_hidden_reasoning_is_a_slow_first_byte_but_where_the_server_greets(server, dialect):
    plan = {"output_tokens": 610, "reasoning_tokens": 600, "call_id": f"hidden {dialect}"}
    request = request_for(dialect, ULTRAFAST, "", max_tokens=700, x_plan=plan)
    began = time.monotonic_ns()
    connection, response = post(server.urls[ULTRAFAST], request)
    headers_ns = time.monotonic_ns() - began
    response.read()
    connection.close()
    line = server.logged(plan["call_id"])
    waited_ns = line["sends"][0][0] - line["first_byte_ns"]
    if dialect == "openai-responses":
        assert waited_ns > 400_000_000
    else:
        assert waited_ns < 400_000_000 < headers_ns


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_at_once_is_kept_as_such(server, dialect):
    request = request_for(dialect, B200, f"at once {dialect}")
    body = json.loads(request.body) | {"stream": False}
    if dialect == "gemini":
        path = f"/models/{MODELS[B200]}:generateContent"
        connection, response = post(server.urls[B200] + path, Request("m", (), 1), json.dumps(body))
    else:
        connection, response = post(server.urls[B200], request, json.dumps(body))
    data = response.read()
    connection.close()
    answer = DIALECTS[dialect].unstreamed(
        status=response.status, content_type=response.headers["content-type"], body=data
    )
    assert answer.error.kind is ErrorKind.NOT_STREAMED
    check_said(answer, dialect, shown=True)
    assert answer.usage.output_tokens == 60


def test_gemini_as_an_array_says_the_same(server):
    request = request_for("gemini", B200, "array")
    url = f"{server.urls[B200].removesuffix('/v1')}/v1beta"
    connection, response = post(url, Request("m", (), 1, path=request.path.partition("?")[0]), request.body)
    decoder = DIALECTS["gemini"].decoder()
    whole = b""
    while data := response.read1(65536):
        whole += data
        decoder.feed(data, time.monotonic_ns())
    connection.close()
    check(decoder.answer(ended=True), "gemini", shown=True, line=server.logged("array"))
    assert len(json.loads(whole)) == len(server.logged("array")["sends"]) + 1


@pytest.mark.parametrize(
    ("dialect", "place"), [("ollama", ""), ("llamacpp", ""), ("gemini", "/v1beta"), ("openai-chat", "/v1")]
)
def test_each_is_at_its_native_place_too(server, dialect, place):
    url = server.urls[B200].removesuffix("/v1") + place
    answer = streamed(dialect, url, request_for(dialect, B200, f"native {dialect}"))
    check_said(answer, dialect, shown=True)


@pytest.mark.parametrize("dialect", ["openai-completions", "mistral-fim", "llamacpp", "ollama"])
def test_a_gap_is_filled(server, dialect):
    suffix = (Block("end", 6, Role.USER),)
    request = request_for(dialect, B200, f"gap {dialect}", suffix=suffix, tools=())
    answer = streamed(dialect, server.urls[B200], request)
    assert answer.error is None
    assert answer.usage.input_tokens == 25
    assert len(answer.text.split()) == 60


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_limit_cuts_and_says_so(server, dialect):
    request = request_for(dialect, B200, f"cut {dialect}", max_tokens=20)
    answer = streamed(dialect, server.urls[B200], request)
    cut = ("length", "limit", "max_tokens", "MAX_TOKENS", "incomplete")
    assert answer.finish_reason in cut
    assert answer.usage.output_tokens == 20
    assert sum(tokens for _, tokens, _ in server.logged(f"cut {dialect}")["sends"]) == 20


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("status", [404, 429, 503, 529])
def test_a_refusal_has_the_servers_words(dialect, status, refusing):
    model = "nobody" if status == 404 else MODELS[B200]
    request = request_for(dialect, B200, "refused", tools=())
    request = DIALECTS[dialect].encode(Request(model, BLOCKS, 9, x_plan=None)) if status == 404 else request
    connection, response = post(refusing[status], request)
    data = response.read()
    connection.close()
    answer = DIALECTS[dialect].unstreamed(
        status=response.status, content_type=response.headers["content-type"], body=data
    )
    words = {404: "nobody", 429: "Rate limit", 503: "overloaded", 529: "Overloaded"}[status]
    assert (response.status, answer.error.kind) == (status, ErrorKind.HTTP_ERROR)
    assert words in answer.error.message
    if status == 429:
        assert response.headers["retry-after"] == "2"
        assert response.headers["retry-after-ms"] == "1500"


@pytest.fixture(scope="module")
def refusing():
    failing = [
        Behaviour(rtt_ms=0, fail_share=1, fail_status=status, retry_after_s=1.5) for status in (429, 503, 529)
    ]
    with simulators([B200] * 4, behaviours=[HERE, *failing]) as process:
        yield dict(zip((404, 429, 503, 529), process.urls(), strict=True))


TIERS = {
    "openai-chat": "default",
    "openai-responses": "default",
    "anthropic": "standard",
    "gemini": "standard",
}


@pytest.mark.parametrize("dialect", TIERS)
def test_the_tier_is_told_in_the_dialects_field(server, dialect):
    fast = "fast" if dialect == "anthropic" else "ultrafast"
    told = []
    for asked in (None, fast, TIERS[dialect]):
        request = request_for(dialect, ULTRAFAST, "tier", service_tier=asked)
        told.append(streamed(dialect, server.urls[ULTRAFAST], request).tier_served)
    assert told == [fast, fast, TIERS[dialect]]


def over_websocket(url, *requests):
    """Send requests on one connection, one after the other; their decoded answers and timelines."""
    dialect = DIALECTS["openai-responses"]
    endpoint = Endpoint(
        url=url,
        headers={},
        transport="websocket",
        stream_types=dialect.stream_types,
        as_message=dialect.as_message,
        lane_of=dialect.lane_of,
    )

    async def ask():
        patient = CallLimits(connect_s=10, first_output_s=10, stall_s=10, total_s=20)
        answers = []
        async with WebSocketExchange(endpoint, limits=patient, clock=MachineClock()) as exchange:

            async def one(request):
                decoder = dialect.decoder(messages=True)
                timeline = await exchange(request, decoder.feed)
                assert timeline.error is None
                return decoder.answer(ended=True), timeline

            for several in requests:
                before = answers[-1][0].request_id if answers else None
                made = [make(before) for make in several]
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(one(request)) for request in made]
                answers += [task.result() for task in tasks]
        return answers

    return asyncio.run(ask())


def in_conversation(call_id, *, blocks=BLOCKS, goes_on=False, **changes):
    def make(before):
        request = Request(
            model=MODELS[ULTRAFAST],
            blocks=blocks,
            max_tokens=60,
            x_plan=PLAN | {"call_id": call_id},
            conversation="one",
            previous_response_id=before if goes_on else None,
            **changes,
        )
        return DIALECTS["openai-responses"].encode(request)

    return make


def test_a_websocket_carries_the_same_and_remembers(server):
    more = (Block("w", 5, Role.USER),)
    first, second = over_websocket(
        server.urls[ULTRAFAST],
        [in_conversation("ws 1")],
        [in_conversation("ws 2", blocks=more, goes_on=True)],
    )
    check(first[0], "openai-responses", shown=False, line=server.logged("ws 1"))
    assert second[0].usage.input_tokens == 19 + 48 + 5
    assert (first[1].connection, second[1].connection) == ("new", "reused")


def test_lanes_run_side_by_side(server):
    answers = over_websocket(server.urls[ULTRAFAST], [in_conversation(f"lane {n}") for n in range(4)])
    assert [len(answer.text.split()) for answer, _ in answers] == [38] * 4
    lines = [server.logged(f"lane {n}") for n in range(4)]
    assert max(line["received_ns"] for line in lines) < min(line["ended_ns"] for line in lines)


def test_preparing_makes_nothing_and_can_be_gone_on_from(server):
    prepared, real = over_websocket(
        server.urls[ULTRAFAST],
        [in_conversation("warm", extra_body={"generate": False})],
        [in_conversation("go", blocks=BLOCKS[:1], goes_on=True)],
    )
    assert (prepared[0].text, prepared[0].usage.output_tokens) == ("", 0)
    assert server.logged("warm")["sends"] == []
    assert real[0].usage.input_tokens == 19 + 5


def test_an_unknown_answer_is_an_error_frame_and_the_connection_goes_on(server):
    def nowhere(_before):
        return in_conversation("lost", goes_on=True)("resp_none")

    lost, found = over_websocket(server.urls[ULTRAFAST], [nowhere], [in_conversation("found")])
    assert (lost[0].error.kind, found[0].error) == (ErrorKind.STREAM_ERROR, None)
    assert "resp_none" in lost[0].error.message
    assert found[1].connection == "reused"


def test_agents_do_the_same_work_in_every_dialect(tmp_path):
    backends = {dialect: simulated(B200, dialect=dialect) for dialect in DIALECTS}
    backends["websocket"] = simulated(B200, dialect="openai-responses", transport="websocket")
    path = scenario(tmp_path, backends, load='kind = "closed"\nusers = 1\ntasks = 2')
    _, folder = run_once(tmp_path / "out", path)
    calls = sorted(folder.lines("calls"), key=lambda call: (call["backend"], call["call_id"]))
    assert {call["outcome"] for call in calls} == {"ok"}
    work = {
        backend: [call["output_tokens"] for call in several]
        for backend, several in itertools.groupby(calls, key=lambda call: call["backend"])
    }
    assert set(work) == set(backends)
    assert len({tuple(tokens) for tokens in work.values()}) == 1
    assert {task["plan_mismatch"] for task in folder.tasks() if task["backend"] not in ALL_TEXT} == {0}
