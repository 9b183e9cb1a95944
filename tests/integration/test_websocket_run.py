"""A run over WebSocket against @copilotkit/aimock: one connection a task, later calls send what is new."""

import pytest

from tests.integration.running import only_late, run_once, scenario
from tests.integration.test_aimock import LOAD, TASK, journal, usage
from tests.servers.starting import aimock

pytestmark = pytest.mark.needs("aimock")

CALLS, TASKS = 3, 2
SAID = {"content": "Reading.", "usage": usage(100, 20)}
TOOLS = [{"id": f"call_{i}", "name": "read_file", "arguments": {"input": "x"}} for i in range(2)]
FIXTURES = [
    {"match": {"model": "caller"}, "response": SAID | {"toolCalls": TOOLS[:1]}},
    {"match": {"model": "other"}, "response": SAID | {"toolCalls": TOOLS}},
]


@pytest.fixture(scope="module", params=["scripted", "live"])
def ran(request, tmp_path_factory):
    """(history, records, what the server got): one model calls a tool a step, as planned, the other two."""
    folder = tmp_path_factory.mktemp("run")
    with aimock(folder, FIXTURES) as url:
        backends = {
            model: {
                "url": f"{url}/v1",
                "model": model,
                "dialect": "openai-responses",
                "transport": "websocket",
            }
            for model in ("caller", "other")
        }
        workload = TASK.format(calls=CALLS, tools=1) + f'history = "{request.param}"\n'
        path = scenario(folder, backends, load=LOAD.format(tasks=TASKS, users=1), workload=workload)
        ended, out = run_once(folder / "out", path)
        assert ended.code == 0 or only_late(out), ended.err
        return request.param, out, journal(url)


def test_calls_of_a_task_share_a_connection_that_its_first_call_opened(ran):
    _, out, _ = ran
    calls = out.lines("calls")
    assert len(calls) == 2 * TASKS * CALLS
    for call in calls:
        first = call["call_id"].endswith("/1")
        assert (call["outcome"], call["error"], call["clock"]) == ("ok", None, "kernel")
        assert call["connection"] == ("new" if first else "reused")
        assert (call.get("upgrade_ns", 0) > 0) is (call.get("connect_ns", 0) > 0) is first
        assert (call["transport"], call["streamed_events"] > 0) == ("websocket", True)
        assert (call["input_tokens"], call["output_tokens"]) == (100, 20)
        assert call["network_ns"] > 0
        assert call.get("reconnects", 0) == 0


def roles(entry):
    return [message["role"] for message in entry["body"]["messages"]]


def test_later_calls_send_only_what_is_new_if_the_model_did_as_planned(ran):
    history, _, entries = ran
    assert {entry["method"] for entry in entries} == {"WS"}
    for model in ("caller", "other"):
        sent = [entry for entry in entries if entry["body"]["model"] == model]
        connections = {entry["headers"]["sec-websocket-key"] for entry in sent}
        assert len(connections) == TASKS
        follows = [entry for entry in sent if "system" not in roles(entry)]
        assert len(sent) == TASKS * CALLS
        # scripted: the plan's one result does not answer a model that made two calls, so all is sent again
        as_planned = history == "live" or model == "caller"
        assert len(follows) == (TASKS * (CALLS - 1) if as_planned else 0)
        for entry in follows:
            results = [one for one in entry["body"]["messages"] if one["role"] == "tool"]
            made = TOOLS[:1] if model == "caller" else TOOLS
            assert [one["tool_call_id"] for one in results] == [call["id"] for call in made]
