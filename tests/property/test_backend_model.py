"""What holds of the queueing models for any load: time may be cut anywhere, nothing is lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.simulator.backend_model import build_model
from harness.simulator.jobs import Job
from harness.simulator.prefix_cache import Prefix
from harness.simulator.profiles import profiles

MS = 1_000_000
FOREVER = 10**15
JOBS = st.lists(
    st.tuples(st.integers(0, 400), st.integers(1, 30_000), st.integers(1, 60)), min_size=1, max_size=40
)
CUTS = st.lists(st.integers(0, 3000), max_size=20)


def play(name, jobs, cuts):
    """Submit in order of time, advancing to each cut on the way and to the end."""
    model = build_model(profiles()[name], np.random.default_rng(3))
    deeds = [(at * MS, 1, job_id) for job_id, (at, _, _) in enumerate(jobs)]
    deeds += [(at * MS, 0, -1) for at in cuts]
    emissions = []
    for at_ns, _, job_id in sorted(deeds):
        if job_id < 0:
            emissions += model.advance(at_ns)
        else:
            _, prompt, output = jobs[job_id]
            model.submit(Job(job_id, (Prefix(job_id % 3, prompt),), output), at_ns)
    emissions += model.advance(FOREVER)
    assert model.next_at_ns() is None
    return emissions


@pytest.mark.parametrize("name", ["gpt-5.6-sol-standard", "gpt-5.6-sol-ultrafast", "cerebras-gpt-oss-120b"])
@given(jobs=JOBS, cuts=CUTS)
@settings(max_examples=25, deadline=None)
def test_big_jumps_and_small_ones_give_the_same_emissions(name, jobs, cuts):
    assert play(name, jobs, cuts) == play(name, jobs, [])


@pytest.mark.parametrize("name", ["gpt-5.6-sol-standard", "gpt-5.6-sol-ultrafast"])
@given(jobs=JOBS)
@settings(max_examples=25, deadline=None)
def test_every_token_is_emitted_once_in_order_of_time(name, jobs):
    emissions = play(name, jobs, [])
    assert [e.at_ns for e in emissions] == sorted(e.at_ns for e in emissions)
    for job_id, (_, _, output) in enumerate(jobs):
        mine = [e for e in emissions if e.job_id == job_id]
        assert sum(e.tokens for e in mine) == output
        assert [e.last for e in mine] == [False] * (len(mine) - 1) + [True]
