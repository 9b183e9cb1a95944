"""A closed loop in arithmetic: users do one lognormal task after the other until the clock cuts them.

What a task costs is proportional to its tokens, and a side that is `faster` decodes the same tokens in
less time. So the true ratio of money per finished task is the ratio of prices, whatever the speeds.
"""

import numpy as np

from harness.records import CallOutcome, TaskOutcome
from tests.making import S, a_call, a_task

TOKENS_PER_S = 100
MU, SIGMA = 2.5, 0.8  # log seconds at speed 1: median 12.2 s, p95 45.4 s


def closed_loop(*, seed, users, cut_s, faster=1.0, told=True, sigma=SIGMA, backend="b"):
    """Tasks in order of start, one call each. told = False: calls that were cut tell no usage."""
    begun = []
    for user in range(users):
        generator = np.random.default_rng([seed, user])  # a user's n-th task is the same at any speed
        start_s = 0.0
        while start_s < cut_s:
            work_s = float(np.exp(MU + sigma * generator.standard_normal()))
            begun.append((start_s, work_s / faster))
            start_s += work_s / faster
    tasks, calls = [], []
    for k, (start_s, need_s) in enumerate(
        sorted(begun, key=lambda one: one[0])
    ):  # users who start together stay shuffled
        task, call = _one(k, start_s, min(start_s + need_s, cut_s), cut=start_s + need_s > cut_s)
        tokens = round((call["done_ns"] - call["sent_ns"]) / S * TOKENS_PER_S * faster)
        known = tokens if told or call["outcome"] is CallOutcome.OK else None
        tasks.append(a_task(backend=backend, **task))
        calls.append(
            a_call(
                backend=backend,
                **call,
                input_tokens=0 if known is not None else None,
                input_planned=0,
                output_tokens=known,
                streamed_events=tokens // 2,
            )
        )
    return tasks, calls


def _one(k, start_s, end_s, *, cut):
    start_ns, end_ns = round(start_s * S), round(end_s * S)
    task = {
        "task_id": f"b/w/{k}",
        "k": k,
        "session": k,
        "scheduled_ns": start_ns,
        "started_ns": start_ns,
        "ended_ns": end_ns,
        "outcome": TaskOutcome.CUT if cut else TaskOutcome.COMPLETED,
    }
    call = {
        "call_id": f"b/w/{k}/1",
        "task_id": f"b/w/{k}",
        "k": k,
        "scheduled_ns": start_ns,
        "sent_ns": start_ns,
        "done_ns": end_ns,
        "outcome": CallOutcome.CUT if cut else CallOutcome.OK,
    }
    return task, call
