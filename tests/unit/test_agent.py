"""Plans of agent tasks follow from the seed; histories follow the plan or the model, as asked."""

import asyncio
import itertools
import json

import numpy as np
import pytest

from harness.clock import HandClock
from harness.errors import ScenarioError
from harness.records import Phase, TaskOutcome
from harness.results import FindingName
from harness.scenario import Kind, parse_scenario
from harness.values import Block, Role, ToolCall
from harness.workloads import presets
from harness.workloads.agent import TOOL_NAMES, caveats, estimate, run
from harness.workloads.agent_plan import AgentParameters, AgentPlanner
from harness.workloads.step import Step, TaskSetting
from tests.playing import Kept, Played, S, a_backend


def planner(preset="coding", *, seed=7, sequence="", **changed):
    parameters = AgentParameters.model_validate({**presets("agent")[preset], **changed})
    return AgentPlanner(parameters, seed=seed, name="w", sequence=sequence)


def plans(n=200, **said):
    one = planner(**said)
    return [one.task(k) for k in range(n)]


# --- plans ---------------------------------------------------------------------------------------


def test_same_seed_same_plans_and_in_any_order():
    forwards = plans()
    other = planner()
    assert [other.task(k) for k in reversed(range(200))] == list(reversed(forwards))


def test_another_seed_makes_other_plans():
    differing = sum(a.steps != b.steps for a, b in zip(plans(), plans(seed=8), strict=True))
    assert differing > 190


def test_warm_up_is_another_row_of_tasks_with_the_same_shared_prefix():
    measured, warm = plans(), plans(sequence="warm-up")
    assert all(a.steps != b.steps for a, b in zip(measured, warm, strict=True))
    assert {a.place for a in measured}.isdisjoint(b.place for b in warm)
    assert {a.system_tokens for a in measured} == {b.system_tokens for b in warm}


def test_sessions_are_laid_over_k_without_gap_or_overlap():
    one = planner()
    sessions = [one.session(i) for i in range(100)]
    assert sessions[0].first_k == 0
    for before, after in itertools.pairwise(sessions):
        assert before.first_k + before.length == after.first_k
    assert max(session.length for session in sessions) <= one.parameters.session_tasks_max
    assert {one.task(k).session for k in range(sessions[3].first_k, sessions[4].first_k)} == {3}


def test_context_grows_through_a_session_until_it_is_compacted():
    one = planner()
    compactions = 0
    for k in range(400):
        plan = one.task(k)
        for before, after in zip(plan.steps, plan.steps[1:], strict=False):
            if before.summary_tokens:
                compactions += 1
                assert after.input_tokens == plan.system_tokens + before.summary_tokens
                assert after.input_tokens < before.input_tokens
            else:
                assert after.input_tokens >= before.input_tokens
        if k and one.task(k - 1).session == plan.session:
            assert plan.steps[0].input_tokens == one.task(k - 1).context_tokens + plan.user_tokens
    assert compactions > 0


def test_the_last_call_has_no_tools_and_all_others_have():
    for plan in plans():
        working = [step for step in plan.steps if not step.summary_tokens]
        assert working[-1].tools == ()
        assert all(step.tools for step in working[:-1])


def test_tool_times_keep_their_tail_up_to_the_cap_and_what_it_cut_is_told():
    one = planner(tool_s_max=10.0)
    tools = [tool for k in range(300) for step in one.task(k).steps for tool in step.tools]
    assert max(tool.duration_s for tool in tools) == 10.0
    assert sum(tool.cut_s for tool in tools) > 0
    told = dict(caveats(one, range(300)))[FindingName.TOOL_TAIL_CUT]
    cut = sum(tool.cut_s for tool in tools)
    share = cut / (cut + sum(tool.duration_s for tool in tools))
    assert f"{share:.0%} of the planned tool time" in told


def test_an_uncapped_full_size_preset_has_no_caveats():
    assert caveats(planner(tool_s_max=1e6), range(50)) == []


def test_output_holds_reasoning_and_tool_calls():
    for plan in plans(preset="demo"):
        for step in plan.steps:
            assert step.output_tokens >= step.reasoning_tokens + sum(t.call_tokens for t in step.tools)


def test_demo_is_shorter_with_one_task_a_session_and_says_so():
    one = planner("demo")
    assert all(one.session(i).length == 1 for i in range(50))
    assert all(one.task(k).think_s == 0 for k in range(50))
    assert FindingName.SHORTENED in dict(caveats(one, range(50)))


def test_plans_have_the_published_shape():
    # TraceLab: calls p50 2, p90 20; WEKA: output p50 216, p90 899 (presets.toml names both)
    many = plans(1500)
    calls = [sum(not step.summary_tokens for step in plan.steps) for plan in many]
    output = [step.output_tokens for plan in many for step in plan.steps if not step.summary_tokens]
    assert np.quantile(calls, 0.5) == 2
    assert np.quantile(calls, 0.9) == pytest.approx(20, rel=0.2)
    assert np.quantile(output, 0.5) == pytest.approx(216, rel=0.1)
    assert np.quantile(output, 0.9) == pytest.approx(899, rel=0.1)


HUGE = {"lognormal": {"median": 1e300, "sigma": 100.0}}


def test_draws_without_an_end_are_cut_to_what_can_be_planned():
    lengths = dict.fromkeys(("first_input_tokens", "user_tokens", "output_tokens", "result_tokens"), HUGE)
    waits = {"think_s": HUGE, "agent_s": HUGE, "tool_s": dict.fromkeys(TOOL_NAMES, HUGE)}
    counts = {"calls": HUGE, "calls_max": 40, "tools_per_step": HUGE, "session_tasks": HUGE}
    many = [plan for k in range(3) for plan in plans(3, **lengths, **waits, **counts, tool_s_max=9.0)[k:]]
    steps = [step for plan in many for step in plan.steps]
    assert max(plan.user_tokens for plan in many) == 10_000_000
    assert max(len(step.tools) for step in steps) == 64
    assert max(tool.duration_s for step in steps for tool in step.tools) == 9.0
    assert max(plan.think_s for plan in many) == max(step.agent_s for step in steps) == 31_536_000
    assert max(sum(not step.summary_tokens for step in plan.steps) for plan in many) == 40
    assert planner(session_tasks=HUGE).session(0).length == 20


def refused(**said):
    text = "\n".join(
        [
            'name = "n"\n[backends.b]\nsimulate = "p"\n[[workloads]]\nkind = "agent"\npreset = "demo"',
            *(f"{key} = {value}" for key, value in said.items()),
            '[load]\nkind = "closed"\nusers = 1\ntasks = 1',
        ]
    )
    kinds = {"agent": Kind(AgentParameters, presets("agent"))}
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, source="x", kinds=kinds, profiles={"p": "m"})
    return caught.value.problems


COUNTS_AND_TIMES = [
    *("session_tasks", "calls", "system_tokens", "first_input_tokens", "user_tokens", "output_tokens"),
    *("tool_call_share", "result_tokens", "tools_per_step", "agent_s", "think_s"),
]
SHELL_ONLY = "{ shell = { value = 0.1 } }"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        pytest.param(
            {"tool_s": SHELL_ONLY},
            "tool_s: no time for edit, read, plan, web; want one for each tool in tool_category",
            id="a2 some tools have no time",
        ),
        pytest.param(
            {"tool_category": "{ weights = { shel = 1 } }"},
            'tool_category: no tool "shel"; did you mean "shell"? tools: shell, edit, read, plan, web',
            id="a2 a tool that the agent does not have",
        ),
        pytest.param(
            {"tool_s": "{ shel = { value = 0.1 } }"},
            'tool_s: no tool "shel"; did you mean "shell"? tools: shell, edit, read, plan, web',
            id="a time for a tool that the agent does not have",
        ),
        pytest.param(
            {"tool_s": "{ shell = { value = -1 } }"},
            "tool_s.shell: want no value below 0; this one gives -1",
            id="b4 tool time",
        ),
        *(
            pytest.param(
                {key: "{ value = -5 }"}, f"{key}: want no value below 0; this one gives -5", id=f"b4 {key}"
            )
            for key in COUNTS_AND_TIMES
        ),
        pytest.param(
            {
                "compaction": "{ trigger_tokens = { value = -1 },"
                " keep_share = 0.5, output_tokens = { value = 1 } }"
            },
            "compaction.trigger_tokens: want no value below 0; this one gives -1",
            id="b4 compaction",
        ),
        pytest.param(
            {"calls_max": "1000000000"},
            "calls_max: want a whole number >= 1 and <= 10000, got 1000000000",
            id="calls_max",
        ),
        pytest.param(
            {"session_tasks_max": "10001"},
            "session_tasks_max: want a whole number >= 1 and <= 10000, got 10001",
            id="session_tasks_max",
        ),
        pytest.param(
            {"tools_per_step": "{ value = 65 }"},
            "tools_per_step: want no value above 64; this one gives 65",
            id="tools_per_step",
        ),
        pytest.param(
            {"output_tokens": "{ value = 1e9 }"},
            "output_tokens: want no value above 10,000,000; this one gives 1e+09",
            id="tokens",
        ),
        pytest.param(
            {"agent_s": "{ value = 1e9 }"},
            "agent_s: want no value above 31,536,000; this one gives 1e+09",
            id="a wait",
        ),
    ],
)
def test_parameters_that_no_task_can_have(said, told):
    assert refused(**said) == [f"x: workloads[0].{told}"]


def test_one_tool_alone_is_enough_where_no_other_is_drawn():
    one = planner(tool_category={"weights": {"shell": 1}}, tool_s={"shell": {"value": 0.1}})
    tools = {tool.category for k in range(50) for step in one.task(k).steps for tool in step.tools}
    assert tools == {"shell"}


def test_the_estimate_counts_calls_and_tokens():
    one = planner("demo")
    steps = [step for k in range(30) for step in one.task(k).steps]
    assert estimate(one, range(30)) == (
        len(steps),
        sum(step.input_tokens for step in steps),
        sum(step.output_tokens for step in steps),
    )


# --- a task at work ------------------------------------------------------------------------------


def work(one, ks, *, salt="run", name="b", seconds=lambda _: 1.0, output_control="x_plan", change=None):
    """Run tasks of one session after another; returns (requests, task records)."""

    async def go():
        clock, kept = HandClock(), Kept()
        exchange = Played(clock, seconds=seconds)
        if change is not None:
            change(exchange)
        records, history = [], ()

        async def tasks():
            nonlocal history
            for k in ks:
                plan = one.task(k)
                setting = TaskSetting(f"{name}/w/{k}", k, plan.session, "w", None, 7, clock.now_ns(), 0, salt)
                recorder = type(
                    "R", (), {"phase": lambda _: Phase.MEASURE, "call": lambda _, *a: kept.call(*a)}
                )()
                backend = a_backend(exchange, name=name, output_control=output_control)
                step = Step(setting, backend, clock=clock, recorder=recorder)
                history = await run(step, plan, history, one.parameters)
                records.append(step.finish(TaskOutcome.COMPLETED, phase=Phase.MEASURE))

        async with asyncio.TaskGroup() as group:
            working = group.create_task(tasks())
            while not working.done():
                await clock.advance(clock.now_ns() + 100 * S)
        return exchange.requests, records, kept

    return asyncio.run(go())


def with_tools(one, n=1):
    return next(k for k in range(1000) if sum(bool(s.tools) for s in one.task(k).steps) >= n)


def test_every_backend_gets_the_same_task_but_for_the_salt():
    one = planner("demo", history="scripted")
    k = with_tools(one)
    ours, _, _ = work(one, [k], name="standard")
    theirs, _, _ = work(one, [k], name="ultrafast")

    def without_salt(requests):
        return [[b for b in r.blocks if not b.id.startswith("salt/")] for r in requests]

    assert without_salt(ours) == without_salt(theirs)
    assert ours[0].blocks[0].id != theirs[0].blocks[0].id
    assert ours[0].blocks[0].tokens == theirs[0].blocks[0].tokens


def test_each_prompt_begins_with_the_whole_prompt_before_it():
    one = planner("demo")
    requests, _, _ = work(one, [with_tools(one, 2)])
    for before, after in itertools.pairwise(requests):
        assert after.blocks[: len(before.blocks)] == before.blocks


def test_without_salt_there_is_none():
    one = planner("demo")
    requests, _, _ = work(one, [0], salt=None)
    assert not [block for block in requests[0].blocks if block.id.startswith("salt/")]


def test_a_sessions_next_task_goes_on_from_its_history():
    one = planner("coding", tool_s_max=1.0)
    first = next(one.session(i) for i in range(200) if one.session(i).length > 1).first_k
    requests, _records, _ = work(one, [first, first + 1])
    second = next(r for r in requests if r.x_plan["call_id"] == f"b/w/{first + 1}/1")
    assert second.blocks[: len(requests[0].blocks)] == requests[0].blocks
    assert second.blocks[-1].id.endswith(f"/{first + 1}/user")


def test_live_results_answer_the_calls_that_came():
    one = planner("demo")
    k = with_tools(one)
    requests, records, _ = work(one, [k])
    index = next(i for i, step in enumerate(one.task(k).steps) if step.tools)
    added = requests[index + 1].blocks[len(requests[index].blocks) :]
    assert added[0].role is Role.ASSISTANT
    assert added[0].text == "said"
    assert [block.answers for block in added[1:]] == [call.id for call in added[0].tool_calls]
    assert [b.tokens for b in added[1:]] == [t.result_tokens for t in one.task(k).steps[index].tools]
    assert records[0].plan_mismatch == 0


def test_a_planned_result_without_a_call_is_told_as_a_user_message_and_counted():
    one = planner("demo")
    k = with_tools(one)
    requests, records, _ = work(one, [k], output_control="max_tokens")  # no plan travels: no tool calls
    planned = sum(len(step.tools) for step in one.task(k).steps)
    assert records[0].plan_mismatch == planned
    told = [block for block in requests[-1].blocks if "/told" in block.id]
    assert {block.role for block in told} == {Role.USER}


def test_calls_beyond_the_plan_get_results_too_and_are_counted():
    one = planner("demo")
    k = with_tools(one)

    def two_more(exchange):
        honest = exchange._timeline

        def more(request, sent):
            timeline = honest(request, sent)
            extra = (ToolCall("x1", "f", "{}"), ToolCall("x2", "f", "{}"))
            object.__setattr__(timeline.answer, "tool_calls", (*timeline.answer.tool_calls, *extra))
            return timeline

        exchange._timeline = more

    requests, records, _ = work(one, [k], change=two_more)
    calls = len(one.task(k).steps)
    assert records[0].plan_mismatch == 2 * calls
    answered = {block.answers for block in requests[-1].blocks if block.answers}
    assert {"x1", "x2"} <= answered


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        pytest.param('{"input": "A.A.', {"input": '{"input": "A.A.'}, id="cut off by the limit"),
        pytest.param("", {"input": ""}, id="before it began"),
        pytest.param('["a"]', {"input": '["a"]'}, id="no object"),
        pytest.param('{"a": 1}', {"a": 1}, id="whole"),
    ],
)
def test_arguments_that_are_no_object_are_told_as_text_of_one(said, sent):
    """Servers refuse a history with broken arguments (recordings/llamacpp_agent_error_arguments.json)."""
    one = planner("demo")

    def cut_off(exchange):
        honest = exchange._timeline

        def broken(request, at):
            timeline = honest(request, at)
            object.__setattr__(timeline.answer, "tool_calls", (ToolCall("x1", "run_shell", said),))
            return timeline

        exchange._timeline = broken

    requests, _, _ = work(one, [with_tools(one)], change=cut_off)
    calls = [call for block in requests[-1].blocks for call in block.tool_calls]
    assert calls
    assert all(
        (call.id, call.name, json.loads(call.arguments)) == ("x1", "run_shell", sent) for call in calls
    )


def test_times_of_a_task_are_its_calls_its_tools_and_the_agents_own():
    one = planner("demo")
    k = with_tools(one, 2)
    _, records, kept = work(one, [k], seconds=lambda _: 2.0)
    record, plan = records[0], one.task(k)
    agent = sum(step.agent_s for step in plan.steps if step.tools)
    tools = 0.0
    for step in plan.steps:
        together = [t.duration_s for t in step.tools if t.category in ("read", "web")]
        apart = [t.duration_s for t in step.tools if t.category not in ("read", "web")]
        tools += max(together, default=0) + sum(apart)
    seconds = (record.ended_ns - record.scheduled_ns) / S
    assert seconds == pytest.approx(2.0 * len(plan.steps) + tools + agent, abs=1e-6)
    assert record.breakdown["tool"] * seconds == pytest.approx(tools, abs=1e-6)
    assert record.breakdown["agent"] * seconds == pytest.approx(agent, abs=1e-6)
    assert record.breakdown["client"] == pytest.approx(0, abs=1e-9)
    assert [tool.name for tool in record.tools] != []
    assert {tool.name for tool in record.tools} <= set(TOOL_NAMES.values())
    assert len(kept.calls) == len(plan.steps) == record.calls


def test_a_failed_call_ends_the_task_as_failed_with_its_reason():
    from harness.values import CallError, ErrorKind

    one = planner("demo")

    def broken(exchange):
        exchange.error = CallError(ErrorKind.HTTP_ERROR, "HTTP 500: no")

    requests, records, kept = work(one, [with_tools(one)], change=broken)
    assert len(requests) == 1
    assert records[0].outcome is TaskOutcome.FAILED
    assert records[0].reason == "http_error: HTTP 500: no"
    assert kept.calls[0].error is not None


def test_the_plan_travels_only_to_our_simulator():
    one = planner("demo")
    ours, _, _ = work(one, [0])
    theirs, _, _ = work(one, [0], output_control="ignore_eos")
    assert ours[0].x_plan["output_tokens"] == one.task(0).steps[0].output_tokens
    assert theirs[0].x_plan is None
    assert theirs[0].min_tokens == theirs[0].max_tokens == one.task(0).steps[0].output_tokens


def test_blocks_carry_roles():
    one = planner("demo")
    requests, _, _ = work(one, [0])
    roles = [block.role for block in requests[0].blocks]
    assert roles[:2] == [Role.SYSTEM, Role.SYSTEM]
    assert set(roles[2:]) == {Role.USER}
    assert all(isinstance(block, Block) and block.tokens > 0 for block in requests[0].blocks)
