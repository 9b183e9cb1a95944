"""What a Locust process with users does for a run: it has an engine, and waits for it on its users' behalf.

The owner of the run (`merge.py`) is in the same process, or reached by Locust's own messages; here it is
only somebody to `tell`.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from gevent import GreenletExit
from gevent.event import AsyncResult, Event
from gevent.lock import RLock
from locust.env import Environment

from harness.bridge.child import EngineProcess
from harness.bridge.users import AgentUser
from harness.link import (
    Began,
    Begin,
    Call,
    Done,
    Drain,
    Drained,
    Go,
    Gone,
    Leave,
    Message,
    Ready,
    Refused,
    Start,
    Stop,
    plain,
)

log = logging.getLogger(__name__)

TO_WORKER, TO_OWNER = "harness_to_worker", "harness_to_owner"
"""The two kinds of Locust messages that carry ours."""


class CallFailedError(Exception):
    """What Locust's tables show of a call that failed: its kind, and what was said."""


class Work:
    """One process's part in a run. `tell` brings plain values to the owner."""

    def __init__(self, environment: Environment, tell: Callable[[dict[str, Any]], None]) -> None:
        self._environment = environment
        self._tell = tell
        self._engine: EngineProcess | None = None
        self._lock = RLock()  # starting a process lets other greenlets run
        self._numbers = count()
        self._number_of: dict[AgentUser, int] = {}
        self._user_of: dict[int, AgentUser] = {}
        self._waiting: dict[int, AsyncResult] = {}
        self._drained = Event()
        self._going = Event()

    def begin(self, begin: Begin, *, own_folder: str | None = None) -> None:
        """Start an engine for a run. own_folder: where events go if DIR cannot be seen from here."""
        with self._lock:
            self.end()
            self._drained.clear()
            self._going.clear()
            self._engine = EngineProcess(self._hear)
            self._engine.send(replace(begin, own_folder=own_folder))

    def go(self, go: Go) -> None:
        """Start the run; users may come now."""
        self._send(go)
        self._going.set()

    def drain(self, *, cut: bool = False) -> None:
        """Let the engine come to its end; returns when it has told its account, or is gone."""
        if self._engine is None:
            return
        self._send(Drain(cut))
        self._drained.wait()

    def end(self) -> None:
        """End the engine."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
        self._release()

    def task_of(self, user: AgentUser) -> bool:
        """Wait while a user's next task is done; tell whether there was one for it."""
        self._going.wait()
        if self._engine is None:
            return False
        number = self._number_of.setdefault(user, next(self._numbers))
        self._user_of[number] = user
        self._waiting[number] = answer = AsyncResult()
        self._send(Start(number, user.table))
        try:
            return bool(answer.get())
        except GreenletExit:
            self._send(Stop(number))
            raise
        finally:
            self._waiting.pop(number, None)

    def leave(self, user: AgentUser) -> None:
        """Say that a user has gone."""
        number = self._number_of.pop(user, None)
        if number is not None:
            self._user_of.pop(number, None)
            self._send(Leave(number))

    def _send(self, message: Message) -> None:
        if self._engine is not None:
            self._engine.send(message)

    def _hear(self, message: Message | None) -> None:
        """Take what the engine says; what concerns the run goes on to its owner."""
        match message:
            case None:
                self._gone()
                return
            case Done(user=user, more=more):
                if answer := self._waiting.get(user):
                    answer.set(more)
                return
            case Began(user=number) if number in self._user_of:
                self._user_of[number].under_way()
            case Call(line=line):
                self._show(line)
            case Drained() | Refused():
                self._drained.set()
            case Ready(here=here, host=host, pid=pid):
                log.info("engine %s on %s is ready%s", pid, host, "" if here else "; it does not see DIR")
        self._tell(plain(message))

    def _gone(self) -> None:
        """Tell the owner that the engine has ended, if nobody asked it to."""
        if self._engine is not None and not self._drained.is_set():
            self._tell(plain(Gone()))
        self._release()

    def _release(self) -> None:
        self._drained.set()
        self._going.set()
        for answer in list(self._waiting.values()):
            answer.set(False)

    def _show(self, call: Mapping[str, Any]) -> None:
        """Put a call into Locust's own tables, when its stream has ended: never what was cut short."""
        if call["outcome"] not in ("ok", "failed"):
            return
        error = call.get("error")
        first = call.get("first_output_ns")
        self._environment.events.request.fire(
            request_type=call["backend"],
            name=call["workload"],
            response_time=(call["done_ns"] - call["sent_ns"]) / 1e6,
            response_length=call.get("received_bytes", 0),
            exception=CallFailedError(f"{error['kind']}: {error['message']}") if error else None,
            context={
                "call_id": call["call_id"],
                "ttft_ms": None if first is None else (first - call["sent_ns"]) / 1e6,
            },
        )
