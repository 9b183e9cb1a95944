"""The meter against a server that tells the truth: as it is, with its stamps bent, and as a command.

Nothing here asks for a figure: on a machine that is busy the kernel delivers late, and bars are missed.
What is asked holds anywhere: stamps are never before the send, and a bent meter never passes.
"""

import asyncio
import json
import sys

import pytest

from harness import certificate
from harness.client import stamped_socket
from harness.client.http import Endpoint, HttpExchange
from harness.client.stamped_socket import WallOffset
from harness.clock import MachineClock, monotonic_ns, realtime_ns
from harness.selftest.command import loopback, measured, selftest
from harness.selftest.figures import figures
from harness.selftest.grid import GRID, Cell
from harness.selftest.measuring import LIMITS, streams
from harness.selftest.proof import Measured, Result
from harness.selftest.truth import told
from harness.simulator.process import truth_server
from tests.certifying import a_certificate
from tests.integration.running import harness, run, scenario, simulated

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's stamps are Linux's")

SHORT = (
    Cell(750, 2),
    Cell(750, 2, tls=True),
    Cell(750, 2, per_event=4, transport="new-connection"),
    Cell(750, 2, tls=True, transport="new-connection"),
    Cell(750, 2, held=True),
)


def test_a_short_grid_as_it_is():
    outcome = measured(SHORT)
    assert [one.cell for one in outcome.cells] == list(SHORT)
    for one in outcome.cells:
        seen = one.figures
        assert seen.failures == ()
        assert seen.events == one.cell.streams * one.cell.events
        assert seen.early == 0
        assert seen.exact > 0
        assert (seen.error_ns >= 0).all()
        assert seen.inside + seen.held_up + seen.late == seen.events
        assert len(seen.ttft_ns) == (one.cell.streams if one.cell.transport == "keep-alive" else 0)
        assert (seen.ttft_ns > 0).all()
        assert (one.cpu_us_per_token is None) is one.cell.held
    held, free = outcome.cells[-1].figures, outcome.cells[0].figures
    assert held.shared > held.exact
    assert free.clock == "kernel"


@pytest.mark.parametrize(
    "shift_ns",
    [pytest.param(-300_000, id="0.3 ms too early"), pytest.param(300_000, id="later than now")],
)
def test_a_meter_whose_clocks_are_apart_fails(monkeypatch, shift_ns):
    bent = WallOffset(monotonic_ns, lambda: realtime_ns() - shift_ns)
    monkeypatch.setattr(stamped_socket, "_WALL", bent)
    outcome = measured(SHORT[:2])
    assert {one.result for one in outcome.cells} == {Result.FAILED}
    assert len(outcome.missed()) >= 2
    if shift_ns < 0:
        assert all(one.figures.early > 0 for one in outcome.cells)
    else:
        assert outcome.clock == "loop"


class Bent:
    """An exchange that tells its decoder other stamps than it had."""

    def __init__(self, exchange, bend):
        self._exchange, self._bend = exchange, bend

    async def __call__(self, request, on_read):
        return await self._exchange(request, lambda data, stamp: on_read(data, self._bend(stamp)))


@pytest.mark.parametrize(
    "bend",
    [
        pytest.param(lambda stamp: stamp + 5_000_000, id="5 ms late"),
        pytest.param(lambda stamp: stamp - 5_000_000, id="5 ms early"),
        pytest.param(lambda stamp: stamp // 4_000_000 * 4_000_000, id="of a clock that ticks every 4 ms"),
    ],
)
def test_a_decoder_that_is_fed_bent_stamps_fails(bend):

    async def bent(url):
        endpoint = Endpoint(url)
        async with HttpExchange(endpoint, limits=LIMITS, clock=MachineClock()) as http:
            return await streams(Bent(http, bend), "tokens=600&rate=750", 2, spread_s=0.1)

    with truth_server() as server:
        seen = asyncio.run(bent(server.urls()[0]))
    found = figures(seen, [told(one.body) for one in seen])
    assert found.failures == ()
    assert Measured(Cell(750, 2), found, None).result is Result.FAILED


def test_a_server_that_is_not_there_any_more_is_told():
    with truth_server() as server:
        [url] = server.urls()

    async def ask():
        async with HttpExchange(Endpoint(url), limits=LIMITS, clock=MachineClock()) as http:
            return await streams(http, "tokens=10", 2, spread_s=0.0)

    found = figures(seen := asyncio.run(ask()), [told(one.body) for one in seen])
    assert len(found.failures) == 2
    assert Measured(Cell(750, 2), found, None).result is Result.FAILED


def test_the_certificate_of_loopback_is_trusted_and_is_for_nothing_else():
    with loopback() as (pem, trust):
        assert pem.read_text().startswith("Certificate and key of the server that `harness selftest` starts")
        [only] = trust.get_ca_certs()
        assert only["subjectAltName"] == (("IP Address", "127.0.0.1"),)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_answer_for_people_and_its_exit_code(cache, capfd):
    code = selftest(as_json=False, grid=SHORT)
    told_of = capfd.readouterr()
    lines = told_of.out.splitlines()
    assert code == any(line.startswith("MISSED") for line in lines)
    assert sum(line.startswith(("HOLDS", "MISSED")) for line in lines) == 6
    assert sum(word in line for line in lines for word in ("proved", "failed", "few")) >= len(SHORT)
    assert "measuring 750 tokens/s over TLS, from cell 2 of 5" in told_of.err
    has = certificate.place().exists()
    assert any(line.startswith("certificate: " if has else "no certificate: ") for line in lines)


def test_a_meter_that_proves_nothing_leaves_no_certificate(cache, monkeypatch, capfd):
    certificate.write(a_certificate())
    monkeypatch.setattr(stamped_socket, "_WALL", WallOffset(monotonic_ns, lambda: realtime_ns() - 300_000))
    assert selftest(as_json=True, grid=SHORT[:1]) == 1
    assert json.loads(capfd.readouterr().out)["certificate"] is None
    assert not certificate.place().exists()


def test_the_whole_command(tmp_path):
    """The only time that the suite runs all of the grid: 45 s."""
    ended = harness("selftest", "--json", env={"XDG_CACHE_HOME": str(tmp_path)})
    document = json.loads(ended.out)
    assert ended.code == (1 if document["missed"] else 0), ended.err
    assert len(document["cells"]) == len(GRID)
    assert len(document["bars"]) == 8
    assert bool(document["missed"]) == any(not bar["holds"] for bar in document["bars"])
    for cell in document["cells"]:
        assert cell["failures"] == []
        assert cell["early"] == 0
        assert cell["exact"] > 0
    proved, kept = document["certificate"], tmp_path / "harness" / "certificate.json"
    assert (proved is None) is (document["envelope"] is None) is not kept.exists()
    if proved:
        assert proved.pop("file") == str(kept)
        assert proved == json.loads(kept.read_bytes())
    print(f"{document['seconds']:.0f} s, envelope {document['envelope']}, missed: {document['missed']}")


LOAD = 'kind = "closed"\nusers = 2\ntasks = 3'
ASKED = '[objectives.fast]\nttft = "p50 <= 100s"\ntask_time = "p50 <= 100s"'


@pytest.mark.parametrize(
    ("proved", "certified", "finding", "verdict"),
    [
        pytest.param(None, None, "uncertified", "PASS", id="none"),
        pytest.param({"key": {"python": "2.7"}}, None, "uncertified", "PASS", id="stale"),
        pytest.param({"events_per_s": 1e6}, True, None, "PASS", id="within"),
        pytest.param({"streams": 0}, False, "beyond_certificate", "INCONCLUSIVE", id="beyond"),
    ],
)
def test_a_run_goes_by_the_certificate_and_so_does_its_report_elsewhere(
    tmp_path, cache, proved, certified, finding, verdict
):
    if proved is not None:
        certificate.write(a_certificate(**proved))
    path = scenario(tmp_path, {"fast": simulated()}, load=LOAD, top=ASKED)
    _, folder = run(tmp_path, path)
    summary = folder.json("summary")
    assert summary["meter"]["certified"] is certified
    stands = folder.json("run")["certificate"]
    assert (stands is None) is (certified is None)
    named = {"uncertified", "beyond_certificate"} & set(folder.findings())
    assert named == ({finding} if finding else set())
    of = {row["objective"].split()[0]: row["verdict"] for row in folder.json("verdict")["objectives"]}
    assert of == {"ttft": verdict, "task_time": "PASS"}
    before = [(folder.path / name).read_bytes() for name in ("summary.json", "verdict.json")]
    harness("report", folder.path, env={"XDG_CACHE_HOME": str(tmp_path / "elsewhere")})
    assert [(folder.path / name).read_bytes() for name in ("summary.json", "verdict.json")] == before
