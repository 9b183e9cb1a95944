"""The queueing models against hand-made values; jitter is off unless a test is about it."""

import dataclasses

import numpy as np
import pytest

from harness.simulator.backend_model import build_model
from harness.simulator.jobs import Job
from harness.simulator.prefix_cache import Prefix
from harness.simulator.profiles import GpuBatch, Pipeline, Profile, Reasoning, Route, profiles

MS = 1_000_000
FOREVER = 10**15


def profile(machine, **changes):
    fields = {
        "name": "hand-made",
        "like": "",
        "route": Route.ASIC,
        "model": "m",
        "service_tier": "default",
        "reasoning": Reasoning.HIDDEN,
        "rtt_ms": 0,
        "base_ttft_ms": 10,
        "source": "by hand",
    }
    return Profile(machine=machine, **{**fields, **changes})


def gpu(**changes):
    """Steps of 2 ms for one sequence and 1 ms more for each further one; 1 ms per 10 prompt tokens."""
    fields = {"a_ms": 1, "b_ms": 1, "p": 1, "prefill_tps": 10_000, "background_batch": 0, "max_seqs": 8}
    return profile(GpuBatch(**{**fields, "max_batched_tokens": 1000, **changes}))


def pipe(slots=2, **changes):
    """A token each ms, 1 ms of prefill per 10 prompt tokens."""
    machine = Pipeline(user_tps=1000, slots=slots, stages=1, prefill_tps=10_000)
    return profile(machine, **changes)


def model_of(a_profile, seed=0):
    return build_model(a_profile, np.random.default_rng(seed))


def job(job_id, *, prompt=10, output=3, key=None):
    return Job(job_id, (Prefix(job_id if key is None else key, prompt),), output)


def times_ms(emissions, job_id):
    return [emission.at_ns / MS for emission in emissions if emission.job_id == job_id]


def lone_user(name, tokens=4000):
    emissions = _alone(profiles()[name], tokens)
    seconds = (emissions[-1].at_ns - emissions[0].at_ns) / 1e9
    return (tokens - emissions[0].tokens) / seconds


def _alone(a_profile, tokens):
    model = model_of(a_profile)
    model.submit(job(1, prompt=1000, output=tokens), 0)
    return model.advance(FOREVER)


@pytest.mark.parametrize(
    ("name", "tokens_per_s"),
    [
        ("gpt-5.6-sol-standard", 53.9),
        ("gpt-5.6-sol-ultrafast", 750),
        ("b200x8-gpt-oss-120b-trtllm", 490),
        ("groq-gpt-oss-120b", 500),
        ("cerebras-gpt-oss-120b", 1750),
    ],
)
def test_a_lone_user_gets_the_published_speed(name, tokens_per_s):
    assert lone_user(name) == pytest.approx(tokens_per_s, rel=0.01)


@pytest.mark.parametrize("name", list(profiles()))
def test_events_stay_in_their_range_and_add_up(name):
    low, high = profiles()[name].tokens_per_event
    sizes = [emission.tokens for emission in _alone(profiles()[name], 500)]
    assert sum(sizes) == 500
    assert {min(sizes[:-1]), max(sizes[:-1])} == {low, high}


def test_jitter_keeps_the_mean_and_has_the_asked_spread():
    jittery = dataclasses.replace(gpu(), itl_jitter_cv=0.15)
    gaps = np.diff(times_ms(_alone(jittery, 4000), 1))
    assert gaps.mean() == pytest.approx(2, rel=0.01)
    assert gaps.std() / gaps.mean() == pytest.approx(0.15, rel=0.1)


def test_gpu_lone_job():
    model = model_of(gpu())
    model.submit(job(1), 0)
    # 10 ms base, then a step with nobody decoding and 10 prompt tokens: 1 + 1 ms; then 2 ms a token.
    assert times_ms(model.advance(FOREVER), 1) == [12, 14, 16]


def test_gpu_everybody_slows_down_with_the_batch():
    model = model_of(gpu())
    model.submit(job(1, output=6), 0)
    model.submit(job(2, output=2), 3 * MS)
    emissions = model.advance(FOREVER)
    # Job 2 is ready at 13, enters at 14 and prefills in that step (2 + 1 ms); both decode in the next (3 ms).
    assert times_ms(emissions, 1) == [12, 14, 17, 20, 22, 24]
    assert times_ms(emissions, 2) == [17, 20]


def test_gpu_background_tenants_slow_the_step():
    model = model_of(gpu(background_batch=4))
    model.submit(job(1), 0)
    assert times_ms(model.advance(FOREVER), 1) == [16, 22, 28]


def test_gpu_prompts_are_cut_to_the_budget_that_decoding_leaves():
    model = model_of(gpu(max_batched_tokens=21))
    model.submit(job(1, output=20), 0)
    model.submit(job(2, prompt=50, output=1), 3 * MS)
    emissions = model.advance(FOREVER)
    # Job 2's 50 tokens take steps of 20, 20 and 10 tokens beside one decoding: 4, 4 and 3 ms from 14 on.
    assert times_ms(emissions, 2) == [25]
    assert times_ms(emissions, 1)[:5] == [12, 14, 18, 22, 25]


def test_gpu_full_batch_makes_jobs_wait():
    model = model_of(gpu(max_seqs=1))
    first, second = job(1), job(2)
    model.submit(first, 0)
    model.submit(second, 0)
    emissions = model.advance(FOREVER)
    assert times_ms(emissions, 1) == [12, 14, 16]
    assert times_ms(emissions, 2) == [18, 20, 22]
    assert (first.queued_ns, second.queued_ns) == (0, 6 * MS)


def test_pipeline_speed_does_not_depend_on_load_and_prompts_queue_at_the_head():
    model = model_of(pipe(slots=3))
    for job_id in (1, 2, 3):
        model.submit(job(job_id, prompt=50), 0)
    emissions = model.advance(FOREVER)
    assert times_ms(emissions, 1) == [16, 17, 18]
    assert times_ms(emissions, 2) == [21, 22, 23]
    assert times_ms(emissions, 3) == [26, 27, 28]


def test_pipeline_one_more_than_slots_waits_and_its_wait_is_known():
    model = model_of(pipe(slots=2))
    jobs = [job(job_id, output=20) for job_id in (1, 2, 3)]
    for one in jobs:
        model.submit(one, 0)
    assert [e for e in model.advance(15 * MS) if e.job_id == 3] == []
    assert model.queued() == 1
    emissions = model.advance(FOREVER)
    assert times_ms(emissions, 3)[0] == 33  # job 1 ends at 31; 1 ms of prefill, 1 ms to the first token
    assert [one.queued_ns / MS for one in jobs] == [0, 1, 21]


def test_an_event_is_due_when_its_last_token_is():
    model = model_of(pipe(tokens_per_event=(2, 2)))
    model.submit(job(1, output=5), 0)
    assert [(e.at_ns / MS, e.tokens, e.last) for e in model.advance(FOREVER)] == [
        (13, 2, False),
        (15, 2, False),
        (16, 1, True),
    ]


@pytest.mark.parametrize("machine", [gpu(), pipe()], ids=["gpu", "pipeline"])
def test_a_cached_prefix_shortens_the_first_token(machine):
    model = model_of(machine)
    first = Job(1, (Prefix(1, 1900), Prefix(2, 2000)), 1)
    second = Job(2, (Prefix(1, 1900), Prefix(3, 2000)), 1)
    model.submit(first, 0)
    [cold] = model.advance(1000 * MS)
    model.submit(second, 1000 * MS)
    [warm] = model.advance(FOREVER)
    assert (first.cached_tokens, second.cached_tokens) == (0, 1900)
    # 1900 prompt tokens less are 190 ms less, and on the GPU one step less for a chunk of 1000
    assert cold.at_ns - (warm.at_ns - 1000 * MS) == pytest.approx(190 * MS, abs=MS)


@pytest.mark.parametrize("machine", [gpu(max_seqs=1), pipe(slots=1)], ids=["gpu", "pipeline"])
@pytest.mark.parametrize("at_ms", [5, 10.5, 30], ids=["on its way", "in prefill", "decoding"])
def test_cancel_frees_the_place(machine, at_ms):
    model = model_of(machine)
    model.submit(job(1, output=10_000), 0)
    model.submit(job(2, output=1), 0)
    model.cancel(1, round(at_ms * MS))
    emissions = model.advance(FOREVER)
    assert {emission.job_id for emission in emissions} == {2}
    assert times_ms(emissions, 2)[0] <= at_ms + 10
    assert model.next_at_ns() is None


@pytest.mark.parametrize("machine", [gpu(), pipe()], ids=["gpu", "pipeline"])
def test_cancel_takes_back_what_was_due_and_ignores_strangers(machine):
    model = model_of(machine)
    model.submit(job(1), 0)
    model.cancel(99, 20 * MS)
    assert model.next_at_ns() == 12 * MS
    model.cancel(1, 20 * MS)
    assert model.advance(FOREVER) == []


def test_a_cancelled_job_in_the_queue_is_skipped():
    model = model_of(pipe(slots=1))
    for job_id in (1, 2, 3):
        model.submit(job(job_id), 0)
    model.cancel(2, 12 * MS)
    assert [emission.job_id for emission in model.advance(FOREVER)] == [1, 1, 1, 3, 3, 3]
