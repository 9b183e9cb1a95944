"""Whatever the plan and however its tokens are grouped, the events add up to it."""

import json

from hypothesis import given
from hypothesis import strategies as st

from harness.simulator.asked import Place
from harness.simulator.dialects.chat import ChatEncoder, parse
from harness.simulator.jobs import Job
from harness.simulator.output import Facts, Output

PLANS = st.fixed_dictionaries(
    {
        "reasoning": st.integers(0, 8),
        "text": st.integers(0, 8),
        "tools": st.lists(st.integers(1, 8), max_size=3),
        "shown": st.booleans(),
    }
).filter(lambda plan: plan["reasoning"] + plan["text"] + sum(plan["tools"]))


def encoder_of(plan):
    tools = [{"name": "look", "tokens": tokens} for tokens in plan["tools"]]
    total = plan["reasoning"] + plan["text"] + sum(plan["tools"])
    asked = {"output_tokens": total, "reasoning_tokens": plan["reasoning"], "tool_calls": tools}
    request = parse(
        {"model": "m", "messages": [{"role": "user", "content": "go"}], "x_plan": asked}, Place({}, {}.get)
    )
    facts = Facts(id="1", created=0, model="m", tier="default", show_reasoning=plan["shown"], rtt_ms=0)
    return ChatEncoder(Output(request, Job(1, request.prefixes, total), facts=facts)), total


@given(plan=PLANS, group=st.integers(1, 12))
def test_events_add_up_to_the_plan(plan, group):
    encoder, total = encoder_of(plan)
    sent = {"text": 0, "reasoning": 0, "tool": 0}
    arguments = {}
    for start in range(0, total, group):
        for kind, tokens, event in encoder.events(min(group, total - start)):
            sent[kind] += tokens
            delta = json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"]
            words = (delta.get("content", "") + delta.get("reasoning", "")).split()
            assert kind == "tool" or len(words) == tokens
            for call in delta.get("tool_calls", ()):
                arguments.setdefault(call["index"], []).append(call["function"]["arguments"])
    shown = plan["reasoning"] if plan["shown"] else 0
    assert sent == {"text": plan["text"], "reasoning": shown, "tool": sum(plan["tools"])}
    assert all(isinstance(json.loads("".join(pieces)), dict) for pieces in arguments.values())
    assert len(arguments) == len(plan["tools"])
