"""Every worker gets users of every backend. In a process of its own: importing Locust patches Python."""

import json
import subprocess
import sys

import pytest

CODE = """
import json, sys
from locust import User
from locust.runners import WorkerNode
from harness.bridge.spread import EvenDispatcher

workers, kinds, users, lost = map(int, sys.argv[1:])
nodes = [WorkerNode(f"host_{i}") for i in range(workers)]
classes = [type(f"Agent_{i}", (User,), {"abstract": False, "table": i}) for i in range(kinds)]
one = EvenDispatcher(nodes, classes)
spreads = []
for number in (users, users // 2, users):
    one.new_dispatch(number, 1000)
    for spread in one:
        pass
    spreads.append({node: counts for node, counts in spread.items()})
if lost:
    one.remove_worker(nodes[0])
    one.new_dispatch(users, 1000)
    for spread in one:
        pass
    spreads.append(spread)
print(json.dumps(spreads))
"""


def spreads(workers, kinds, users, *, lost=0):
    words = [sys.executable, "-c", CODE, *map(str, (workers, kinds, users, lost))]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(
    ("workers", "kinds"), [(1, 2), (2, 2), (3, 2), (4, 2), (2, 3), (3, 3), (4, 6), (6, 4)]
)
def test_every_worker_has_users_of_every_backend_also_after_ramps(workers, kinds):
    each = 4
    full, half, again = spreads(workers, kinds, workers * kinds * each)
    for spread, number in ((full, each), (again, each)):
        assert len(spread) == workers
        assert all(set(counts.values()) == {number} for counts in spread.values()), spread
    assert all(min(counts.values()) >= 1 for counts in half.values()), half


def test_a_lost_workers_users_go_to_the_others_evenly_if_locust_is_to_restore_them():
    spread = spreads(3, 2, 24, lost=1)[-1]
    assert "host_0" not in spread
    assert sum(sum(counts.values()) for counts in spread.values()) == 24
    assert all(min(counts.values()) >= 1 for counts in spread.values())
