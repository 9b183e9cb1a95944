"""Where Locust puts its users."""

from collections.abc import Sequence
from itertools import chain
from math import gcd

from locust import User
from locust.dispatch import UsersDispatcher
from locust.runners import WorkerNode

ALL_AT_ONCE = 1e9
"""Users a second."""


def lacking(nodes: Sequence[str], classes: Sequence[type[User]], users: int) -> list[tuple[str, type[User]]]:
    """Tell which workers would have no user for which table of backends, and so nobody for that share."""
    dispatcher = EvenDispatcher([WorkerNode(node) for node in nodes], classes)
    dispatcher.new_dispatch(users, ALL_AT_ONCE)
    *_, spread = dispatcher
    first = {_table(one): one for one in reversed(classes)}
    return [
        (node, one)
        for node in nodes
        for table, one in first.items()
        if not any(spread[node][other.__name__] for other in classes if _table(other) == table)
    ]


def _table(one: type[User]) -> int:
    return int(getattr(one, "table", 0))


class EvenDispatcher(UsersDispatcher):
    """Spreads every class over all workers.

    Locust 2.47 deals classes and workers in turn, both in fixed order: with two backends and two workers
    all users of one backend come to one worker and all of the other to the other (tried). Then no worker
    would have both sides of its share of the plan, and the two sides would be measured by different
    processes. So each time the two orders would meet again, the workers' is moved on by one.
    """

    def __init__(self, worker_nodes: list[WorkerNode], user_classes: Sequence[type[User]]) -> None:
        self._kinds = len({_table(one) for one in user_classes})
        self._known = {node.id for node in worker_nodes}
        super().__init__(worker_nodes, list(user_classes))

    def add_worker(self, worker_node: WorkerNode) -> None:
        """Take a worker back that was silent; one that comes late has no engine, and waits."""
        if worker_node.id in self._known:
            super().add_worker(worker_node)

    def _prepare_rebalance(self) -> None:
        self._sort_workers()  # a worker has gone, and the orders meet elsewhere
        super()._prepare_rebalance()

    def _sort_workers(self) -> None:
        self._worker_nodes = list({node.id: node for node in self._worker_nodes}.values())
        super()._sort_workers()
        nodes = self._worker_nodes
        meets = gcd(len(nodes), self._kinds)
        orders = (nodes[by:] + nodes[:by] for by in range(meets))
        self._worker_nodes = list(chain.from_iterable(order * (self._kinds // meets) for order in orders))
