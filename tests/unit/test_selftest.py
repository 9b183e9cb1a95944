"""What the selftest makes of answers whose true send times are known: of right meters and of wrong ones."""

from array import array
from dataclasses import replace

import numpy as np
import orjson
import pytest

from harness.measure.load import Load
from harness.screen import Screen
from harness.selftest.answer import Moment, Outcome, print_outcome
from harness.selftest.figures import Seen, figures, quantile_us
from harness.selftest.grid import GRID, RATES, STREAMS, Cell
from harness.selftest.proof import Measured, Result, bars, envelope
from harness.selftest.truth import Truth, told
from harness.values import Answer, StampClock

US, MS = 1_000, 1_000_000
ERROR_NS = 7 * US
QUIET = Moment("2026-12-01T12:00:00+00:00", 40.0, (0.1, 0.1, 0.1), (0.9, 0.1, 0.1), 0.0, {"cores": 2})


def a_truth(events=200, *, at_ns=0, every_ns=MS):
    """Events sent each ms from 100 ms on, each send over within 20 us; asked for at 90 ms."""
    sent = 100 * MS + at_ns + np.arange(events) * every_ns
    return Truth(sent, sent + 20 * US, np.zeros(events, dtype=bool), 90 * MS + at_ns)


def an_answer(truth, *, high=ERROR_NS, low=ERROR_NS, **said):
    """Stamps that lie `high` and `low` ns behind the true sends, for each event or for all."""
    values = {
        "answer": Answer(
            high_ns=array("q", (truth.sent + high).tolist()), low_ns=array("q", (truth.sent + low).tolist())
        ),
        "sent_ns": truth.asked_ns - MS,
        "clock": StampClock.KERNEL,
        "reused": True,
        "body": b"",
    }
    return Seen(**{**values, **said})


def of_one(truth, **said):
    return figures([an_answer(truth, **said)], [truth])


def a_cell(found=None, *, cell=None, **said):
    """A cell of a right meter, of 200 exact events, unless said."""
    return Measured(cell or Cell(750, 1), found or of_one(a_truth(), **said), 30.0)


def counts(found):
    return found.events, found.exact, found.inside, found.held_up, found.late, found.early


def test_a_right_meter():
    found = of_one(a_truth())
    assert counts(found) == (200, 200, 200, 0, 0, 0)
    assert found.bounded
    assert set(found.error_ns.tolist()) == {ERROR_NS}
    assert found.first_ns.tolist() == [ERROR_NS]
    assert found.ttft_ns.tolist() == [MS + ERROR_NS]
    assert (found.shared, found.failures) == (0, ())
    assert (found.load.streams, found.load.events_per_s) == (1, pytest.approx(1000))


@pytest.mark.parametrize(
    ("high_us", "low_us", "what"),
    [
        pytest.param(201, -500, "inside", id="wide bounds around it"),
        pytest.param(0, 0, "inside", id="no time on the way"),
        pytest.param(-1, -1, "inside", id="records are rounded"),
        pytest.param(-2, -2, "early", id="stamped before it was sent"),
        pytest.param(200, 200, "inside", id="as long on the way as it may be"),
        pytest.param(201, 201, "late", id="too long on the way"),
        pytest.param(900, 201, "late", id="too long by its lower bound"),
    ],
)
def test_an_event_lies_inside_its_bounds_or_not(high_us, low_us, what):
    found = of_one(a_truth(1), high=high_us * US, low=low_us * US)
    assert {name: getattr(found, name) for name in ("inside", "late", "early")} == {
        **dict.fromkeys(("inside", "late", "early"), 0),
        what: 1,
    }


def test_a_server_that_was_stopped_before_its_write_is_no_fault_of_the_meters():
    true = a_truth(1)
    stopped = replace(true, written=true.sent + 400 * US)
    assert counts(of_one(stopped, high=300 * US, low=300 * US)) == (1, 1, 0, 1, 0, 0)
    assert counts(of_one(stopped, high=401 * US, low=401 * US)) == (1, 1, 0, 0, 1, 0)


def test_what_the_servers_kernel_held_back_is_no_fault_of_the_meters():
    kept = replace(a_truth(1), held=np.array([True]))
    found = of_one(kept, high=5 * MS, low=5 * MS)
    assert counts(found) == (1, 1, 0, 1, 0, 0)
    assert found.error_ns.tolist() == []  # when it was sent nobody knows
    assert counts(of_one(kept, high=-2 * US, low=-2 * US)) == (1, 1, 0, 0, 0, 1)


def test_events_of_one_read_are_shared_and_only_the_last_is_exact():
    true = a_truth(4)
    stamp = int(true.sent[-1]) + ERROR_NS
    answer = Answer(high_ns=array("q", [stamp] * 4), low_ns=array("q", [0, 0, 0, stamp]))
    found = figures([replace(an_answer(true), answer=answer)], [true])
    assert counts(found) == (4, 1, 4, 0, 0, 0)
    assert found.shared == 4
    assert found.error_ns.tolist() == [ERROR_NS]


def test_ttft_is_of_connections_that_were_open():
    assert of_one(a_truth(), reused=False).ttft_ns.tolist() == []


def test_one_loop_stamp_makes_the_clock_the_loops():
    true = a_truth()
    seen = [an_answer(true), an_answer(true, clock=StampClock.LOOP)]
    assert figures(seen, [true, true]).clock is StampClock.LOOP


def test_streams_that_failed_or_lost_events_are_told_and_not_counted():
    true = a_truth()
    short = replace(an_answer(true), answer=an_answer(a_truth(199)).answer)
    found = figures([an_answer(true), an_answer(true, failure="reset"), short], [true] * 3)
    assert found.failures == ("reset", "200 events were sent, 199 were understood")
    assert found.events == 200
    assert a_cell(found).result is Result.FAILED


def test_a_quantile_is_a_time_that_was_seen():
    assert quantile_us(np.array([1000, 2000, 3000, 4000]), 0.5) == 2.0
    assert quantile_us(np.empty(0, dtype=np.int64), 0.5) is None


def test_truth_is_read_out_of_the_events_each_of_which_tells_of_the_one_before():
    events = [
        {"choices": [{"delta": {"content": "a"}}], "asked_ns": 5, "last_ns": [1, 2], "unsent": 0},
        {"choices": [{"delta": {"content": "b"}}], "asked_ns": 5, "last_ns": [10, 11], "unsent": 0},
        {"choices": [{"delta": {}}], "asked_ns": 5, "last_ns": [20, 21], "unsent": 300},
    ]
    body = b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in events) + b"data: [DONE]\n\n"
    whole = told(body)
    assert (whole.sent.tolist(), whole.written.tolist(), whole.asked_ns) == ([10, 20], [11, 21], 5)
    assert whole.held.tolist() == [False, True]
    assert told(body[:-40]).sent.tolist() == [10]  # torn inside the end: what it told of is not known
    assert told(b"").sent.tolist() == []


def exactly(share, events):
    """Bounds of which a share is exact."""
    wide = np.arange(events) >= share * events
    return np.where(wide, -MS, ERROR_NS)


@pytest.mark.parametrize(
    ("cell", "result"),
    [
        pytest.param(a_cell(), Result.PROVED, id="right"),
        pytest.param(a_cell(high=61 * US, low=61 * US), Result.FAILED, id="error above 60 us"),
        pytest.param(
            a_cell(high=61 * US, low=61 * US, cell=Cell(54, 1)), Result.PROVED, id="1 % of a gap of 18.5 ms"
        ),
        pytest.param(a_cell(high=186 * US, low=186 * US, cell=Cell(54, 1)), Result.FAILED, id="above that"),
        pytest.param(
            a_cell(high=99 * US, low=99 * US, cell=Cell(750, 1, held=True)), Result.PROVED, id="loop held"
        ),
        pytest.param(a_cell(high=-2 * US, low=-2 * US), Result.FAILED, id="stamped early"),
        pytest.param(a_cell(of_one(a_truth(99))), Result.FEW, id="too few to tell"),
        pytest.param(a_cell(of_one(a_truth(5000), low=exactly(0, 5000))), Result.FAILED, id="none exact"),
        pytest.param(a_cell(of_one(a_truth(5000), low=exactly(0.01, 5000))), Result.FAILED, id="50 exact"),
        pytest.param(a_cell(of_one(a_truth(5000), low=exactly(0.1, 5000))), Result.PROVED, id="500 exact"),
        pytest.param(a_cell(figures([], [])), Result.FAILED, id="nothing came"),
    ],
)
def test_what_becomes_of_a_cell(cell, result):
    assert cell.result is result


def loaded(streams, events_per_s, **said):
    one = a_cell(**said)
    return replace(one, figures=replace(one.figures, load=Load(streams, events_per_s)))


WRONG = {"high": 61 * US, "low": 61 * US}


@pytest.mark.parametrize(
    ("cells", "proved"),
    [
        pytest.param([loaded(1, 750), loaded(32, 24_000)], Load(32, 24_000), id="all"),
        pytest.param([loaded(128, 6900), loaded(32, 24_000)], Load(128, 24_000), id="each by itself"),
        pytest.param([loaded(8, 6000), loaded(32, 24_000, **WRONG)], Load(8, 6000), id="up to what failed"),
        pytest.param([loaded(8, 6000, **WRONG), loaded(32, 24_000)], None, id="nothing above what failed"),
        pytest.param([loaded(8, 6000, **WRONG), loaded(8, 6000)], None, id="nor beside it"),
        pytest.param([], None, id="nothing measured"),
    ],
)
def test_the_envelope_ends_below_the_smallest_load_that_failed(cells, proved):
    assert envelope(cells) == proved


def test_what_ended_the_envelope_is_told(capsys):
    cells = [loaded(8, 6000), loaded(32, 24_000, cell=Cell(750, 32, tls=True), **WRONG)]
    print_outcome(Screen(width=80), Outcome(cells, QUIET), None, place="")
    assert (
        "proved up to 8 streams and 6,000 events/s at a time;"
        " at 32 x 750 tokens/s, 1 an event, TLS, keep-alive it failed\n"
    ) in capsys.readouterr().out


def test_a_cell_with_too_few_exact_events_proves_nothing_and_limits_nothing():
    few = a_cell(of_one(a_truth(10)))
    assert envelope([few]) is None
    assert envelope([few, loaded(8, 6000)]) == Load(8, 6000)


def held_bars(*cells):
    return {bar.what: bar.holds for bar in bars(cells)}


def test_bars_of_a_right_meter_hold():
    cells = [a_cell(cell=Cell(750, 1, tls=tls, held=held)) for tls in (False, True) for held in (False, True)]
    told_of = held_bars(*cells)
    assert len(told_of) == 8
    assert all(told_of.values())


ERRORS, BOUNDS = "stamp error of exact events", "true send time inside the bounds"


@pytest.mark.parametrize(
    ("said", "missed"),
    [
        pytest.param({"high": 11 * US, "low": 11 * US}, {ERRORS}, id="p50"),
        pytest.param({"high": 61 * US, "low": 61 * US}, {ERRORS}, id="p99"),
        pytest.param({"high": 300 * US, "low": 300 * US}, {ERRORS, BOUNDS}, id="stamps of later events"),
        pytest.param({"high": -5 * US, "low": -5 * US}, {BOUNDS}, id="stamps of earlier ones"),
        pytest.param({"low": -MS}, {ERRORS}, id="small, as nothing is exact"),
    ],
)
def test_bars_of_a_wrong_meter_do_not(said, missed):
    told_of = held_bars(a_cell(of_one(a_truth(2000), **said)))
    assert {what for what, holds in told_of.items() if not holds} == {
        f"{one}, plain, loop free" for one in missed
    }


def test_one_event_outside_its_bounds_is_one_too_many():
    wrong = np.full(100_000, ERROR_NS)
    wrong[777] = 201 * US
    [_, inside] = bars([a_cell(of_one(a_truth(100_000, every_ns=US), high=wrong, low=wrong))])
    assert not inside.holds
    assert inside.figure == "99.999% of 100,000 events, 1 arrived more than 0.2 ms after their send"


@pytest.mark.parametrize(
    ("moment", "clock", "words"),
    [
        pytest.param(
            {"others_cores": 0.7}, StampClock.KERNEL, "other programs kept 0.7 of 2 cores", id="busy"
        ),
        pytest.param({}, StampClock.KERNEL, "nothing else was busy", id="quiet"),
        pytest.param({}, StampClock.LOOP, "no kernel stamps", id="no kernel stamps"),
    ],
)
def test_what_is_to_be_done(moment, clock, words):
    cell = a_cell(high=-2 * US, low=-2 * US, clock=clock)
    outcome = Outcome([cell], replace(QUIET, **moment))
    assert words in outcome.advice()
    assert [line for line in outcome.missed() if "stamped before they were sent" in line]


def test_failed_streams_come_before_all_else():
    true = a_truth()
    lost = an_answer(true, failure="cannot connect", clock=StampClock.LOOP)
    outcome = Outcome([a_cell(figures([an_answer(true), lost], [true, true]))], QUIET)
    assert outcome.clock is StampClock.KERNEL
    assert outcome.missed()[0] == (
        "1 of 2 streams failed (1 x 750 tokens/s, 1 an event, plain, keep-alive): cannot connect"
    )
    assert outcome.advice().startswith("streams failed")


@pytest.mark.parametrize("width", [80, 135])
def test_the_table_fits_the_screen(width, capsys):
    cells = [replace(a_cell(), cell=cell) for cell in GRID]
    print_outcome(Screen(width=width), Outcome(cells, QUIET), None, place="")
    told_of = capsys.readouterr().out
    assert "\N{HORIZONTAL ELLIPSIS}" not in told_of
    assert told_of.count("proved") >= len(GRID)


def test_the_document_is_json_and_null_where_nothing_is_known():
    outcome = Outcome([a_cell(of_one(a_truth(5), low=-MS))], QUIET)
    document = orjson.loads(orjson.dumps(outcome.document(None, "")))
    assert document["cells"][0]["error_p50_us"] is None
    assert (document["cells"][0]["result"], document["envelope"], document["certificate"]) == (
        "few",
        None,
        None,
    )
    assert document["overall"]["exact_share"] == 0


def test_the_grid_has_every_load_once_and_the_crowd_and_the_held_loop():
    assert len(GRID) == len(set(GRID)) == 76
    for tls in (False, True):
        whole = {(c.tokens_per_s, c.streams, c.per_event, c.transport) for c in GRID if c.tls is tls}
        assert len(whole) == len(RATES) * len(STREAMS) * 2 * 3 + 1
        assert [cell for cell in GRID if cell.tls is tls and cell.held]
    assert all(cell.events >= 5 for cell in GRID)
