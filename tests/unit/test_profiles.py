"""The profiles that are shipped."""

import pytest

from harness.simulator.profiles import GpuBatch, Pipeline, profiles


@pytest.mark.parametrize(
    ("name", "route", "machine", "model", "tier", "reasoning"),
    [
        ("gpt-5.6-sol-standard", "gpu-cluster", GpuBatch, "gpt-5.6-sol", "default", "hidden"),
        ("gpt-5.6-sol-ultrafast", "wafer-scale", Pipeline, "gpt-5.6-sol", "ultrafast", "hidden"),
        ("b200x8-gpt-oss-120b-trtllm", "gpu-cluster", GpuBatch, "gpt-oss-120b", "default", "streamed"),
        ("groq-gpt-oss-120b", "asic", Pipeline, "gpt-oss-120b", "on_demand", "streamed"),
        ("cerebras-gpt-oss-120b", "wafer-scale", Pipeline, "gpt-oss-120b", "default", "streamed"),
    ],
)
def test_identity(name, route, machine, model, tier, reasoning):
    profile = profiles()[name]
    assert (profile.route, type(profile.machine), profile.model) == (route, machine, model)
    assert (profile.service_tier, profile.reasoning) == (tier, reasoning)


@pytest.mark.parametrize("profile", profiles().values(), ids=profiles())
def test_every_number_has_a_source_with_its_mark(profile):
    assert profile.like
    assert {"M", "P", "A", "G"} & set(profile.source.replace(";", " ").replace(",", " ").split())
