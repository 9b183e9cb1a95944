"""Known faults of other tools' transports, as far as records show them; the rest: test_http_exchange.py."""

import resource

import pytest

from harness.client.http import raise_file_limit
from harness.preparation import Options, port_guard, read_scenario
from harness.records import CallOutcome
from harness.results import FindingName, Reason, Verdict
from harness.values import CallError, ErrorKind
from tests.making import MS, S, a_call, a_task
from tests.unit.test_conclude import concluded, names
from tests.unit.test_faults_metrics import concluded as concluded_with_events
from tests.unit.test_faults_metrics import streamed, workload

SHORT = CallError(
    ErrorKind.CLIENT_RESOURCE, "this machine ran out of sockets: Cannot assign requested address"
)


def test_t05_t06_running_out_of_ports_or_files_is_this_machines_fault_and_makes_the_run_invalid():
    failed = a_call(call_id="1", outcome=CallOutcome.FAILED, error=SHORT, status=None)
    summary, verdict = concluded([a_task()], [a_call(call_id="0"), failed])
    assert verdict.verdict is Verdict.INVALID
    assert "b/w: this machine ran out of sockets, files or memory in 1 of 2 calls" in verdict.reasons
    assert FindingName.CLIENT_RESOURCE in names(summary)


SCENARIO = """
schema = 1
name = "x"
[backends.b]
url = "http://127.0.0.1:1/v1"
model = "m"
transport = "{transport}"
[[workloads]]
kind = "agent"
preset = "demo"
[load]
{load}
tasks = 2
"""
OPEN = 'kind = "open"\narrivals = "constant"\ntasks_per_s = 100'


@pytest.mark.parametrize(
    ("transport", "load", "there_are", "warned"),
    [
        pytest.param("new-connection", OPEN, 2000, True, id="700 connections a second"),
        pytest.param("new-connection", OPEN, 1_000_000, False, id="ports enough"),
        pytest.param("new-connection", OPEN, None, False, id="nobody knows"),
        pytest.param("keep-alive", OPEN, 2000, False, id="connections are used again"),
        pytest.param("keep-alive", 'kind = "closed"\nusers = 2500', 2000, True, id="too many users"),
        pytest.param("keep-alive", 'kind = "closed"\nusers = 25', 2000, False, id="few users"),
    ],
)
def test_t05_too_few_ports_are_told_before_the_run(tmp_path, transport, load, there_are, warned):
    file = tmp_path / "scenario.toml"
    file.write_text(SCENARIO.format(transport=transport, load=load))
    lines = port_guard(read_scenario(Options(file)), there_are)
    assert [line.startswith("b: ") and "this machine has 2,000" in line for line in lines] == [True] * warned


def test_t06_the_soft_limit_on_files_is_raised_to_the_hard_one():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        assert raise_file_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def clumps(size, every_ns, count):
    """When events of a stream came that something let through `size` at a time."""
    return [size * every_ns * (1 + i // size) + i % size * 10_000 for i in range(count)]


def test_t08_events_that_come_in_clumps_have_their_ttft_and_no_quoted_gaps():
    call, events = streamed(clumps(64, 250 * MS, 256))
    summary, _ = concluded_with_events((call, events), times=6)
    assert call.first_output_ns == 16 * S
    result = workload(summary)
    assert result.ttft_s.p50.value == 16
    assert (result.gap_ms.p50.value, result.gap_ms.p50.reason) == (None, Reason.UNKNOWN)
    [found] = [one for one in summary.findings if one.name is FindingName.COALESCED]
    assert found.detail.startswith("99% of gaps are shorter than 1 ms")


@pytest.mark.parametrize(
    "stamps",
    [
        pytest.param([i * 250 * MS for i in range(1, 100)], id="slow and even"),
        pytest.param([i * S // 2000 for i in range(1, 400)], id="2000 tokens a second"),
        pytest.param(clumps(2, 700_000, 400), id="750 a second, two in a read"),
        pytest.param(clumps(2, 20 * MS, 400)[::2], id="each alone"),
    ],
)
def test_t08_a_stream_that_is_fast_is_not_called_clumped(stamps):
    summary, _ = concluded_with_events(streamed(stamps), times=6)
    assert FindingName.COALESCED not in names(summary)
    assert workload(summary).gap_ms.p50.value is not None
