"""What a run wrote on disk against the times at which the simulator really sent.

The simulator is one thread; its log holds the clock as read just before each output event's write. So
the event left between that reading (`sent`) and the next reading of the same thread (`latest`), and on
loopback the kernel stamps its arrival inside that write. Hence

* upper bound >= sent, for every event: the arrival is never before the clock reading in front of the
  write. 1 us is allowed for the rounding of records and for the offset between the two clocks;
* lower bound <= sent + the path, since the clock stands *before* the write: an exact event's lower
  bound is its arrival. DESIGN allows 0.2 ms for the path, and a benchmark prints how often that holds. A
  busy machine may stop the server between clock and write, so here the limit is `latest`: it does
  not depend on speed, and a stamp of any later event that passed for this one's would lie behind it.
  (The kernel itself holds back what was written only behind ten segments that nobody acknowledged; it
  acknowledges within 40 ms, and these streams send slower than that.)
"""

import os
import sys
import threading

import numpy as np
import orjson
import pytest
import trustme

from harness.behaviour import Behaviour
from harness.measure.events import event_bounds
from harness.preparation import Options, Prepared, read_scenario
from harness.records import CallOutcome, CallRecord, EventsRecord
from harness.run import run
from harness.simulator.process import simulators
from harness.sinks.records import read_records
from harness.values import StampClock

US = 1000
PATH_NS = 200 * US
SCENARIO = """
schema = 1
name = "bounds"
seed = 3
[backends.standard]
simulate = "gpt-5.6-sol-standard"
[backends.ultrafast]
simulate = "gpt-5.6-sol-ultrafast"
service_tier = "ultrafast"
[[workloads]]
kind = "agent"
preset = "demo"
task_limit_s = 60
calls_max = 2
length_scale = 0.05
reasoning_share = 0
tool_s_max = 0.02
agent_s = { value = 0.01 }
[load]
kind = "closed"
users = 8
ramp_s = 0.1
tasks = 8
pairing = "parallel"
"""

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's stamps are Linux's")


@pytest.fixture
def certificate(tmp_path, monkeypatch):
    """(certificate, key) of a server that the run trusts, as it would a company's own authority."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    cert, key, trusted = (tmp_path / name for name in ("cert.pem", "key.pem", "trusted.pem"))
    issued.cert_chain_pems[0].write_to_path(str(cert))
    issued.private_key_pem.write_to_path(str(key))
    authority.cert_pem.write_to_path(str(trusted))
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    return cert, key


@pytest.fixture
def late_loop():
    """A thread that takes the interpreter 2 ms at a time: reads come late, and several events in one."""
    interval, stop = sys.getswitchinterval(), threading.Event()

    def spin():
        while not stop.is_set():
            pass

    thread = threading.Thread(target=spin)
    sys.setswitchinterval(0.002)
    thread.start()
    yield
    stop.set()
    thread.join()
    sys.setswitchinterval(interval)


def written_and_true(folder, *, tls=None):
    """Run; then (call, events, sends) of each call, and all clock readings of the server's thread."""
    file, log, out = folder / "scenario.toml", folder / "sends.jsonl", folder / "out"
    file.write_text(SCENARIO)
    options = Options(file, out=out, quiet=True)
    scenario = read_scenario(options)
    names = [backend.simulate for backend in scenario.backends.values()]
    here = [Behaviour(rtt_ms=0)] * len(names)  # at a distance the log's times are before the relay
    with simulators(names, log=log, seed=scenario.seed, tls=tls, behaviours=here) as process:
        # 4: where the loop is held up, the harness's own share of the tasks' time may pass its limit
        assert run(Prepared(options, scenario, {}, process)) in (os.EX_OK, 4)
    origin = orjson.loads((out / "run.json").read_bytes())["origin_monotonic_ns"]
    lines = [orjson.loads(line) for line in log.read_bytes().splitlines()]
    sends = {line["call_id"]: [(at - origin, kind) for at, _, kind in line["sends"]] for line in lines}
    readings = [
        at - origin
        for line in lines
        for at in (
            line["received_ns"],
            line["first_byte_ns"],
            line["ended_ns"],
            *(s[0] for s in line["sends"]),
        )
    ]
    events = {one.call_id: one for one in read_records(out, "events.jsonl", EventsRecord)}
    calls = [
        (call, events[call.call_id], sends[call.call_id])
        for call in read_records(out, "calls.jsonl", CallRecord)
    ]
    assert len(calls) == len(events) == len(lines) >= 16
    return calls, np.unique(readings)


def runs(events):
    """Spread the runs of `kinds` out: one kind an event."""
    return [kind for kind, count in events.kinds for _ in range(count)]


def check(calls, readings):
    """Hold every call to the truth; returns error in us of exact events, and of all by their upper bound."""
    exact_us, every_us, within_path = [], [], []
    for call, events, sends in calls:
        assert call.outcome is CallOutcome.OK
        assert call.clock is StampClock.KERNEL
        sent = np.array([at for at, _ in sends])
        assert runs(events) == [kind for _, kind in sends]
        latest = readings[np.searchsorted(readings, sent, side="right")]
        low, high = event_bounds(call, events)
        assert (sent <= high + US).all()
        assert (low <= latest + US).all()
        check_marks(call, events, low, high)
        within_path += (low <= sent + PATH_NS).tolist()
        every_us += ((high - sent) / US).tolist()
        exact_us += ((high - sent) / US)[high - low <= US].tolist()
    assert exact_us
    return exact_us, every_us, within_path


def check_marks(call, events, low, high):
    """First, first answer and last output in the call's record are those events; this run hides reasoning."""
    assert call.streamed_events == len(high)
    assert (call.first_answer_ns, call.first_answer_low_ns) == (
        call.first_output_ns,
        call.first_output_low_ns,
    )
    marks = [
        (0, call.first_output_low_ns, call.first_output_ns),
        (-1, call.last_output_low_ns, call.last_output_ns),
    ]
    for i, mark_low, mark_high in marks:
        assert low[i] <= mark_low <= mark_high <= high[i] <= mark_high + US
        assert (mark_low == mark_high) == (high[i] - low[i] <= US)
    assert call.sent_ns <= call.first_output_low_ns
    assert call.last_output_ns <= call.done_ns
    assert call.shared_read_events == sum(abs(size) for size in events.reads if abs(size) > 1)


def tell(name, exact_us, every_us, within_path):
    print(
        f"{name}: {len(every_us)} events, {len(exact_us)} exact: "
        f"error p50 {np.quantile(exact_us, 0.5):.0f} us, p99 {np.quantile(exact_us, 0.99):.0f} us; "
        f"all by their upper bound p99 {np.quantile(every_us, 0.99):.0f} us; "
        f"lower bound within {PATH_NS // US} us of the send: {np.mean(within_path):.2%}"
    )


@linux
def test_true_times_lie_inside_the_bounds_on_disk(tmp_path):
    tell("plain", *check(*written_and_true(tmp_path)))


@linux
def test_true_times_lie_inside_the_bounds_on_disk_over_tls(tmp_path, certificate):
    tell("TLS", *check(*written_and_true(tmp_path, tls=certificate)))


@linux
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_true_times_lie_inside_the_bounds_though_the_loop_comes_late(tmp_path, request, late_loop, secure):
    tls = request.getfixturevalue("certificate") if secure else None
    exact_us, every_us, within_path = check(*written_and_true(tmp_path, tls=tls))
    assert len(exact_us) < len(every_us)
    tell("late loop", exact_us, every_us, within_path)
