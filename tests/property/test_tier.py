"""Load alone contradicts no tier: calls of a queueing model whose users come and stay, all of one tier."""

import heapq

import numpy as np
import pytest

from harness.measure.calls import calls_of
from harness.measure.tier import Serving, tier_findings
from harness.results import FindingName
from harness.simulator.backend_model import build_model
from harness.simulator.jobs import Job
from harness.simulator.prefix_cache import Prefix
from harness.simulator.profiles import profiles
from tests.making import S, a_call


def played(profile, *, users, calls_each, seed, apart_s):
    """Calls of a closed loop in virtual time: users begin one after the other, and rest between calls."""
    dice = np.random.default_rng(seed)
    model = build_model(profiles()[profile], dice)
    due = [(round(user * apart_s * S), user, calls_each) for user in range(users)]
    users_of, marks = {}, {}
    while due or model.next_at_ns() is not None:
        at_ns = model.next_at_ns()
        if due and (at_ns is None or due[0][0] <= at_ns):
            now, user, left = heapq.heappop(due)
            job = Job(
                len(marks),
                (Prefix(len(marks), int(dice.lognormal(7, 1.2)) + 1),),
                int(dice.lognormal(5, 1.2)) + 1,
            )
            users_of[job.id], marks[job.id] = (user, left - 1), []
            model.submit(job, now)
            continue
        for emission in model.advance(at_ns):
            marks[emission.job_id].append((emission.at_ns, emission.tokens))
            user, left = users_of[emission.job_id]
            if emission.last and left:
                heapq.heappush(due, (emission.at_ns + round(dice.exponential(2) * S), user, left))
    return [_call(events) for events in marks.values()]


def _call(events):
    first, last = events[0][0], events[-1][0]
    return a_call(
        sent_ns=first - 1,
        first_output_ns=first,
        last_output_ns=last,
        done_ns=last,
        streamed_events=len(events),
        output_tokens=sum(tokens for _, tokens in events),
        first_event_tokens=events[0][1],
        tier_served="ultrafast",
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("profile", "users", "calls_each", "apart_s"),
    [
        pytest.param("b200x8-gpt-oss-120b-trtllm", 40, 8, 1, id="a ramp on a GPU"),
        pytest.param("b200x8-gpt-oss-120b-trtllm", 100, 1, 0.01, id="a burst on a GPU"),
        pytest.param("gpt-5.6-sol-ultrafast", 24, 8, 1, id="a queue on a wafer"),
        pytest.param("gpt-5.6-sol-standard", 6, 8, 1, id="many others on a GPU"),
    ],
)
def test_load_alone_contradicts_no_tier(profile, users, calls_each, apart_s, seed):
    calls = calls_of(played(profile, users=users, calls_each=calls_each, seed=seed, apart_s=apart_s))
    found = tier_findings(Serving("b", "w", "m", "openai-chat", "ultrafast", calls), ())
    assert FindingName.TIER_CONTRADICTED not in {one.name for one in found}
