"""The official SDKs of OpenAI and Anthropic talk to a simulator without complaint."""

import json
import operator

import anthropic
import openai
import pytest

from harness.behaviour import Behaviour
from harness.simulator.process import simulators
from tests.integration.asking import B200, PATIENCE_S, ULTRAFAST, Server, eventually

KEY = "sesame"
MODEL = "gpt-oss-120b"
GO = [{"role": "user", "content": "go on then"}]
PLAN = {
    "output_tokens": 40,
    "reasoning_tokens": 10,
    "tool_calls": [
        {"name": "look", "tokens": 6},
        {"name": "find", "tokens": 1},
        {"name": "run", "tokens": 5},
    ],
}
FUNCTION = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
HERE = Behaviour(rtt_ms=0)


@pytest.fixture(scope="module")
def served():
    """URLs: that shows reasoning, that hides it, that is limited."""
    limited = Behaviour(rtt_ms=0, tokens_per_min=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_SIMULATOR_KEY", KEY)
        behaviours = [HERE, HERE, limited, Behaviour(fail_share=1, fail_status=529)]
        with simulators([B200, ULTRAFAST, B200, B200], behaviours=behaviours) as process:
            yield dict(zip(("shown", "hidden", "limited", "failing"), process.urls(), strict=True))


def openai_at(url, key=KEY):
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=PATIENCE_S)


def anthropic_at(url, key=KEY):
    base = url.removesuffix("/v1")
    return anthropic.Anthropic(base_url=base, api_key=key, max_retries=0, timeout=PATIENCE_S)


@pytest.fixture
def shown(served):
    with openai_at(served["shown"]) as client:
        yield client


@pytest.fixture
def hidden(served):
    with openai_at(served["hidden"]) as client:
        yield client


@pytest.fixture
def claude(served):
    with anthropic_at(served["shown"]) as client:
        yield client


def plan(**changes):
    return {"x_plan": PLAN | changes}


def inputs(arguments):
    return [len(one.get("input", "").split()) for one in map(json.loads, arguments)]


def test_completions_streamed(shown):
    chunks = list(
        shown.completions.create(
            model=MODEL,
            prompt="def add(a, b):",
            suffix="\n\nprint(add(1, 2))",
            max_tokens=12,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    words = [chunk.choices[0].text for chunk in chunks if chunk.choices]
    assert [len(word.split()) for word in words] == [1] * 12 + [0]
    assert chunks[-2].choices[0].finish_reason == "length"
    usage = chunks[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (3 + 2, 12)
    assert {chunk.object for chunk in chunks} == {"text_completion"}


def test_completions_whole(shown):
    whole = shown.completions.create(model=MODEL, prompt="a b", extra_body=plan(tool_calls=[]))
    assert len(whole.choices[0].text.split()) == 40
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage.completion_tokens == 40


@pytest.mark.parametrize("which", ["shown", "hidden"])
def test_responses_streamed(served, which):
    with openai_at(served[which]) as client:
        model = MODEL if which == "shown" else "gpt-5.6-sol"
        tools = [{"type": "function", "strict": False, **FUNCTION}]
        with client.responses.stream(model=model, input=GO, tools=tools, extra_body=plan()) as stream:
            events = list(stream)
            final = stream.get_final_response()
    check_responses(events, final, shown=which == "shown")


def check_responses(events, final, *, shown):
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type == "response.completed"
    assert events[-1].response.status == "completed"
    kinds = [item.type for item in final.output]
    assert kinds == ["reasoning", "message"] + ["function_call"] * 3
    reasoning, message, *calls = final.output
    assert len(reasoning.content or ()) == shown
    if shown:
        assert len(reasoning.content[0].text.split()) == 10
    assert len(message.content[0].text.split()) == 40 - 10 - 12
    assert [call.name for call in calls] == ["look", "find", "run"]
    assert inputs(call.arguments for call in calls) == [5, 0, 4]
    deltas = [event for event in events if event.type.endswith(".delta")]
    by_item = {}
    for event in deltas:
        by_item[event.output_index] = by_item.get(event.output_index, "") + event.delta
    assert by_item[1] == message.content[0].text
    assert [by_item[index] for index in (2, 3, 4)] == [call.arguments for call in calls]
    assert ("response.reasoning_text.delta" in {event.type for event in events}) == shown
    added = [event for event in events if event.type == "response.output_item.added"]
    assert [event.output_index for event in added] == [0, 1, 2, 3, 4]
    assert final.usage.output_tokens == 40
    assert final.usage.output_tokens_details.reasoning_tokens == 10
    assert final.service_tier == ("default" if shown else "ultrafast")


def test_responses_whole_cut_and_continued(shown):
    first = shown.responses.create(
        model=MODEL, instructions="be kind", input="one two", max_output_tokens=20, extra_body=plan()
    )
    assert (first.status, first.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert first.usage.output_tokens == 20
    assert first.usage.input_tokens == 4
    output = {"type": "function_call_output", "call_id": "c", "output": "it is so"}
    second = shown.responses.create(
        model=MODEL,
        input=[output],
        previous_response_id=first.id,
        extra_body={"x_plan": {"output_tokens": 2}},
    )
    assert second.usage.input_tokens == 4 + 10 + 3  # what was reasoned is not kept
    assert (second.previous_response_id, len(second.output_text.split())) == (first.id, 2)


def test_what_was_not_stored_is_not_found(shown):
    first = shown.responses.create(
        model=MODEL, input="go", store=False, extra_body={"x_plan": {"output_tokens": 1}}
    )
    with pytest.raises(openai.BadRequestError) as error:
        shown.responses.create(model=MODEL, input="on", previous_response_id=first.id)
    assert error.value.code == "previous_response_not_found"


def until_end(connection):
    events = []
    for event in connection:
        events.append(event)
        if event.type in ("response.completed", "response.incomplete", "error"):
            return events
    return events


@pytest.mark.filterwarnings("ignore:connect.. must be used:DeprecationWarning")  # the SDK
def test_responses_over_a_websocket(hidden):
    with hidden.responses.connect() as connection:
        create(connection, input=GO, **plan())
        events = until_end(connection)
        final = events[-1].response
        check_responses(events, final, shown=False)
        result = {"type": "function_call_output", "call_id": final.output[-1].call_id, "output": "done"}
        create(connection, input=[result], previous_response_id=final.id, x_plan={"output_tokens": 3})
        second = until_end(connection)[-1].response
        assert second.usage.input_tokens == 3 + 30 + 1
        connection.response.create(model="gpt-5.6-sol", input="x", previous_response_id="resp_none")
        [error] = until_end(connection)
        assert error.type == "error"
        connection.response.create(model="gpt-5.6-sol", input="go", max_output_tokens=1)
        assert until_end(connection)[-1].type == "response.incomplete"


@pytest.mark.filterwarnings("ignore:connect.. must be used:DeprecationWarning")  # the SDK
def test_a_client_that_leaves_its_websocket_frees_its_places(served, hidden):
    with hidden.responses.connect() as connection:
        for lane in ("one", "two"):
            create(connection, input="go", stream_id=lane, max_output_tokens=100_000)
        while json.loads(connection.recv_bytes())["type"] != "response.output_text.delta":
            pass
        ours = Server({ULTRAFAST: served["hidden"]}, None)
        assert ours.stats(ULTRAFAST)["active"] == 2
    assert eventually(lambda: ours.stats(ULTRAFAST)["active"] == 0)


@pytest.mark.filterwarnings("ignore:connect.. must be used:DeprecationWarning")  # the SDK
def test_in_a_lane_requests_wait_for_each_other_and_lanes_do_not(hidden):
    lanes = ["one", "one", "two"]
    with hidden.responses.connect() as connection:
        for number, lane in enumerate(lanes):
            create(connection, input=f"number {number}", stream_id=lane, max_output_tokens=400)
        seen = []
        while len([kind for _, kind in seen if kind == "response.incomplete"]) < 3:
            event = json.loads(connection.recv_bytes())
            seen.append((event["stream_id"], event["type"]))
    marks = [mark for mark in seen if mark[1] in ("response.created", "response.incomplete")]
    assert marks[:2] == [("one", "response.created"), ("two", "response.created")]
    in_one = [kind for lane, kind in marks if lane == "one"]
    assert in_one == ["response.created", "response.incomplete"] * 2


def create(connection, **fields):
    """Send the event with our own field, which the SDK's method has no place for."""
    connection.send({"type": "response.create", "model": "gpt-5.6-sol", "store": False, **fields})


def test_messages_streamed(claude):
    tools = [{"name": "look", "description": "Look.", "input_schema": {"type": "object"}}]
    with claude.messages.stream(
        model=MODEL, max_tokens=100, system="be kind", messages=GO, tools=tools, extra_body=plan()
    ) as stream:
        names = [event.type for event in stream]
        final = stream.get_final_message()
    check_message(final)
    assert names[0] == "message_start"
    assert names[-1] == "message_stop"


def test_messages_whole(claude):
    check_message(
        claude.messages.create(model=MODEL, max_tokens=100, system="be kind", messages=GO, extra_body=plan())
    )


def check_message(final):
    thinking, text, *calls = final.content
    assert (thinking.type, len(thinking.thinking.split())) == ("thinking", 10)
    assert (text.type, len(text.text.split())) == ("text", 18)
    assert list(map(operator.attrgetter("name"), calls)) == ["look", "find", "run"]
    assert [len(call.input.get("input", "").split()) for call in calls] == [5, 0, 4]
    assert final.stop_reason == "tool_use"
    assert (final.usage.input_tokens, final.usage.output_tokens) == (5, 40)
    assert (final.usage.service_tier, final.model) == ("standard", MODEL)


def test_messages_cut_and_the_answer_goes_back(claude):
    first = claude.messages.create(
        model=MODEL, max_tokens=30, messages=GO, extra_body=plan(reasoning_tokens=0)
    )
    assert first.stop_reason == "max_tokens"
    answered = [
        *GO,
        {"role": "assistant", "content": [block.model_dump() for block in first.content]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": call.id, "content": "so it is"}
                for call in first.content
                if call.type == "tool_use"
            ],
        },
    ]
    second = claude.messages.create(model=MODEL, max_tokens=1, messages=answered)
    assert second.usage.input_tokens > 30


def ask_openai(kind):
    def ask(client, model=MODEL, **fields):
        if kind == "chat":
            return client.chat.completions.create(model=model, messages=GO, **fields)
        if kind == "completions":
            return client.completions.create(model=model, prompt="go", **fields)
        return client.responses.create(model=model, input="go", **fields)

    return ask


def ask_anthropic(client, model=MODEL, **fields):
    return client.messages.create(model=model, messages=GO, **({"max_tokens": 5} | fields))


WAYS = [
    pytest.param(openai_at, ask_openai("chat"), openai, id="chat"),
    pytest.param(openai_at, ask_openai("completions"), openai, id="completions"),
    pytest.param(openai_at, ask_openai("responses"), openai, id="responses"),
    pytest.param(anthropic_at, ask_anthropic, anthropic, id="messages"),
]


@pytest.mark.parametrize(("client_at", "ask", "sdk"), WAYS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_errors_are_the_sdks_own(served, client_at, ask, sdk, stream):
    with client_at(served["shown"], "wrong") as client, pytest.raises(sdk.AuthenticationError):
        ask(client, stream=stream)
    with client_at(served["shown"]) as client:
        with pytest.raises(sdk.NotFoundError) as error:
            ask(client, "nobody", stream=stream)
        assert "nobody" in str(error.value)
        with pytest.raises(sdk.BadRequestError) as error:
            ask(client, stream=stream, extra_body={"x_plan": []})
        assert "x_plan" in error.value.message
    with client_at(served["limited"]) as client:
        with pytest.raises(sdk.RateLimitError) as error:
            ask(client, stream=stream)
        told = error.value.response.headers
        limits = [name for name in told if "ratelimit" in name]
        assert sorted("anthropic" in name for name in limits) == [sdk is anthropic] * 3
        assert told["x-should-retry"] == "false"
    with client_at(served["failing"]) as client:
        with pytest.raises(sdk.InternalServerError) as error:
            ask(client, stream=stream)
        assert error.value.status_code == 529
        if sdk is anthropic:
            assert error.value.body["error"]["type"] == "overloaded_error"


@pytest.mark.parametrize(("client_at", "ask", "sdk"), WAYS)
def test_answers_bear_a_request_id(served, client_at, ask, sdk):
    with client_at(served["shown"]) as client:
        fields = {"extra_body": {"x_plan": {"output_tokens": 1}}}
        first, second = ask(client, **fields), ask(client, **fields)
    assert first._request_id.startswith("req_sim")
    assert first._request_id != second._request_id
    assert first.id != second.id
