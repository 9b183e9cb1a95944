"""Caps on requests and tokens: the rate in the long run, the order of callers, every wait told."""

import asyncio
from dataclasses import replace

import pytest

from harness.client.limits import Cap, Capped, Quota, admission, charge
from harness.clock import MachineClock, monotonic_ns
from harness.errors import Interrupted
from harness.job import Share
from harness.preparation import Options, quota_guard, read_scenario
from harness.values import Block, Progress, Request, Role, Timeline

REQUEST = Request("m", (Block("a", 60, Role.USER), Block("b", 30, Role.USER)), 10, body=b"{}")


SCENARIO = """
schema = 1
name = "x"
[backends.b]
url = "http://127.0.0.1:1/v1"
model = "m"
quota = {{ {quota} }}
[[workloads]]
kind = "agent"
preset = "demo"
[load]
kind = "closed"
users = 1
tasks = 2
"""


def silent(*_):
    return Progress.SILENT


def timed(amounts, per_period, period_s):
    """Take amounts one after the other; returns when each was let through, in seconds."""

    async def main():
        cap = Cap(per_period, period_s=period_s)
        began, through = monotonic_ns(), []
        for amount in amounts:
            await cap.take(amount)
            through.append((monotonic_ns() - began) / 1e9)
        return through

    return asyncio.run(main())


def test_a_requests_charge_is_its_prompt_and_all_that_it_may_answer():
    assert charge(REQUEST) == 100


def test_a_whole_periods_amount_goes_at_once_and_then_nothing_until_it_has_passed():
    through = timed([1] * 6, 5, 0.3)
    assert through[5] >= 0.3
    assert through[4] < through[5] - 0.15  # a busy machine, and still a burst


def test_never_more_than_the_amount_in_any_period():
    through = timed([1] * 12, 3, 0.2)
    assert all(later - earlier >= 0.2 for earlier, later in zip(through, through[3:], strict=False))


@pytest.mark.parametrize("amount", [1, 7, 333, 4999, 12_345])
def test_amounts_are_rounded_without_drift_so_that_the_rate_in_the_long_run_is_right(amount):
    async def main():
        cap = Cap(10_000_000, period_s=60)  # a slot is 10,000; nobody has to wait
        for n in range(1, 301):
            await cap.take(amount)
            taken = 10_000 * len(cap._throttler._task_logs)
            assert -1e-6 <= taken - n * amount < 10_000

    asyncio.run(main())


def test_the_rate_of_tokens_in_the_long_run():
    # 50 takes of 100 at 1000 a 0.2 s: the first 1000 at once, the other 4000 no faster than 0.2 s a 1000
    through = timed([100] * 50, 1000, 0.2)
    assert 0.8 <= through[-1] < 2.5


def test_more_than_a_whole_periods_amount_takes_longer_than_a_period():
    assert timed([25], 10, 0.2)[0] >= 0.4


def test_a_taker_that_gives_up_gives_nothing_back_and_blocks_nobody():
    async def main():
        cap = Cap(10, period_s=0.2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await cap.take(15)
        began = monotonic_ns()
        await cap.take(1)
        return (monotonic_ns() - began) / 1e9

    assert 0.05 <= asyncio.run(main()) < 2


class Server:
    """An exchange that answers at once and keeps when and in which order it was asked."""

    def __init__(self):
        self.asked = []

    async def __call__(self, request, on_read):
        now = monotonic_ns()
        self.asked.append((request.path, now))
        return Timeline(now, now + 1, status=200)


def test_waits_are_told_callers_go_in_order_and_sent_is_after_the_wait():
    async def main():
        server = Server()
        capped = Capped(server, admission(Quota(requests=2, period_s=0.3)), MachineClock())
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(capped(replace(REQUEST, path=str(i)), silent)) for i in range(5)]
            came = monotonic_ns()
        return came, server, [call.result() for call in calls]

    came, server, timelines = asyncio.run(main())
    assert [path for path, _ in server.asked] == ["0", "1", "2", "3", "4"]
    waits = [one.limit_wait_ns / 1e9 for one in timelines]
    assert waits[0] < waits[2]
    assert waits[2] >= 0.25
    assert waits[4] >= 0.55
    for one in timelines:
        assert one.sent_ns - one.limit_wait_ns == pytest.approx(came, abs=0.25e9)


def test_tokens_are_charged_by_the_request():
    async def main():
        server = Server()
        capped = Capped(server, admission(Quota(tokens=250, period_s=0.3)), MachineClock())
        return [await capped(REQUEST, silent) for _ in range(3)]  # 100 each: the third does not fit

    waits = [one.limit_wait_ns / 1e9 for one in asyncio.run(main())]
    assert waits[2] >= 0.2
    assert waits[2] > waits[1]


def test_a_call_cut_while_it_waits_was_never_sent_and_its_wait_is_told():
    async def main():
        server = Server()
        capped = Capped(server, admission(Quota(requests=1, period_s=30)), MachineClock())
        await capped(REQUEST, silent)
        with pytest.raises(Interrupted) as stop:
            async with asyncio.timeout(0.05):
                await capped(REQUEST, silent)
        return server, stop.value.timeline

    server, timeline = asyncio.run(main())
    assert len(server.asked) == 1
    assert timeline.sent_ns == timeline.done_ns
    assert timeline.limit_wait_ns >= 0.04e9


@pytest.mark.parametrize(("amount", "count"), [(500_000, 3), (10, 4), (7, 7)])
def test_the_shares_of_a_quota_add_up_to_it(amount, count):
    parts = [Share(index, count).of(amount) for index in range(count)]
    assert sum(parts) == amount
    assert max(parts) - min(parts) <= 1


@pytest.mark.parametrize(
    ("quota", "warned"),
    [("tokens_per_min = 10", True), ("tokens_per_min = 1_000_000", False), ("requests_per_min = 1", False)],
)
def test_a_quota_smaller_than_a_call_is_told_before_the_run(tmp_path, quota, warned):
    file = tmp_path / "scenario.toml"
    file.write_text(SCENARIO.format(quota=quota))
    lines = quota_guard(read_scenario(Options(file)))
    assert [line.startswith("b: a call takes ") and " minutes or more" in line for line in lines] == [
        True
    ] * warned
