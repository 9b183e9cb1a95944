"""Locust's users: each asks the engine for one task after the other, and waits.

A locustfile's own class says what Locust must know (weight, wait_time, tags); before a run it is taken
once for each backend, so that Locust's counts, ramps and shapes hold for each.
"""

from collections.abc import Iterable
from types import FunctionType
from typing import Any

import gevent
from locust import User, constant, task
from locust.user.task import LOCUST_STATE_RUNNING, LOCUST_STATE_WAITING

from harness.scenario import OpenLoad, Scenario


def _copied(one: Any) -> Any:  # noqa: ANN401 - a task function, or a TaskSet, which is left as it is
    if not isinstance(one, FunctionType):
        return one
    copy = FunctionType(one.__code__, one.__globals__, one.__name__, one.__defaults__, one.__closure__)
    copy.__dict__.update({name: set(v) if isinstance(v, set) else v for name, v in vars(one).items()})
    return copy


class AgentUser(User):
    """One virtual user of a closed load on one backend, or on all by turns (`pairing = "alternate"`).

    table: which of the engine's tables it sits at. `wait_time` is added to what the plan says.
    """

    abstract = True
    wait_time = constant(0)
    table = 0

    def __init_subclass__(cls, **said: Any) -> None:  # noqa: ANN401 - handed on
        """Give each class its own copy of `one_task`: tags are kept on the function, and would be shared.

        Locust also hands down the tasks of base classes beside those of the class itself, and picks one by
        chance: a class that has tasks of its own does these alone.
        """
        super().__init_subclass__(**said)
        own = [one for one in cls.tasks if one in vars(cls).values()]
        cls.tasks = own or [_copied(one) for one in cls.tasks]

    @task
    def one_task(self) -> None:
        """Do one task of the workload."""
        self.do_task()

    def do_task(self) -> None:
        """Do the next task of this user's session; idle where there is none."""
        self.waits()
        more = self.environment.harness.task_of(self)
        self.under_way()
        if not more:
            self.idle()

    def idle(self) -> None:
        """Wait until Locust ends this user."""
        self.waits()
        while self._state == LOCUST_STATE_WAITING:
            gevent.sleep(3600)

    def waits(self) -> None:
        """Tell Locust that it may end this user at once: nothing is under way while it thinks."""
        if self._state == LOCUST_STATE_RUNNING:
            self._state = LOCUST_STATE_WAITING

    def under_way(self) -> None:
        """Tell Locust that a task is open, which it lets end (`--stop-timeout`)."""
        if self._state == LOCUST_STATE_WAITING:
            self._state = LOCUST_STATE_RUNNING

    def on_stop(self) -> None:
        """Give up the place in the session."""
        self.environment.harness.leave(self)


class ArrivalUser(AgentUser):
    """Stands for an open load, whose tasks start by its own plan: Locust wants a user, so one idles."""

    abstract = True

    def do_task(self) -> None:
        """Idle."""
        self.idle()


def backend_classes(classes: Iterable[type[User]], scenario: Scenario) -> list[type[User]]:
    """Make the classes that run: of each class of the locustfile one for each of the engine's tables.

    Classes that are none of ours are left as they are.
    """
    made: list[type[User]] = []
    for one in classes:
        if not issubclass(one, AgentUser):
            made.append(one)
        elif isinstance(scenario.load, OpenLoad):
            made.append(_made(one, "arrivals", 0, ArrivalUser))
        else:
            made += [_made(one, name, i) for i, name in enumerate(table_names(scenario))]
    return made


def table_names(scenario: Scenario) -> list[str]:
    """Name the engine's tables: the backends, or all together where each user does all."""
    names = list(scenario.backends)
    return ["+".join(names)] if scenario.load.pairing == "alternate" else names


def _made(one: type[User], name: str, table: int, kind: type[User] | None = None) -> type[User]:
    parents = (one,) if kind is None else (kind,)
    about = {"abstract": False, "table": table, "weight": one.weight, "wait_time": one.wait_time}
    return type(f"{one.__name__}_{name}", parents, about)
