"""Where Locust puts its users."""

from collections.abc import Sequence
from itertools import chain
from math import gcd

from locust import User
from locust.dispatch import UsersDispatcher
from locust.runners import WorkerNode


class EvenDispatcher(UsersDispatcher):
    """Spreads every class over all workers.

    Locust 2.47 deals classes and workers in turn, both in fixed order: with two backends and two workers
    all users of one backend come to one worker and all of the other to the other (tried). Then no worker
    would have both sides of its share of the plan, and the two sides would be measured by different
    processes. So each time the two orders would meet again, the workers' is moved on by one.
    """

    def __init__(self, worker_nodes: list[WorkerNode], user_classes: Sequence[type[User]]) -> None:
        self._kinds = len(user_classes)
        super().__init__(worker_nodes, list(user_classes))

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
