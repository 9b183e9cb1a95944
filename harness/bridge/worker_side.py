"""A Locust worker: does what its master's messages say, and ends when the master is gone."""

import ctypes
import logging
import os
import signal
import socket
from pathlib import Path
from typing import Any

import gevent
from locust.runners import WorkerRunner

from harness.bridge.users import backend_classes
from harness.bridge.work import TO_OWNER, TO_WORKER, Work
from harness.clock import wall_time
from harness.link import Begin, Drain, Go, Settled, message_of, plain
from harness.preparation import Options, read_scenario

log = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
SILENT_S = 2.0
"""A master that has not answered heartbeats (one a second) for so long may be dead: its port tells."""
LOOK_S = 0.5


class WorkerSide:
    """What a worker process has: an engine of its own while a run goes on."""

    def __init__(self, environment: Any, runner: WorkerRunner) -> None:  # noqa: ANN401 - users find `harness` on it
        self._environment = environment
        self._runner = runner
        self._classes = list(environment.user_classes)
        self._environment.harness = self._work = Work(environment, self._tell)
        runner.register_message(TO_WORKER, self._hear, concurrent=True)
        environment.events.quitting.add_listener(lambda **_: self._work.end())
        if self._environment.parsed_options.processes:
            _die_with_parent()
            gevent.signal_handler(signal.SIGINT, self._interrupted)
        gevent.spawn(self._watch_master)

    def _tell(self, values: dict[str, Any]) -> None:
        self._runner.send_message(TO_OWNER, values)

    def _hear(self, msg: Any, **_: Any) -> None:  # noqa: ANN401 - Locust's message, and more
        message = message_of(msg.data)
        if isinstance(message, Begin):
            options = Options(scenario=Path(message.scenario), **message.overrides)
            read = read_scenario(options, message.text)
            self._environment.user_classes[:] = backend_classes(self._classes, read)
            self._work.begin(message, own_folder=self._environment.parsed_options.out or None)
        elif isinstance(message, Go):
            self._work.go(message)
        elif isinstance(message, Drain):
            self._drain(cut=message.cut)

    def _drain(self, *, cut: bool) -> None:
        """Let the engine, then Locust's users come to their end; then send the last of both."""
        self._work.drain(cut=cut)
        if cut:
            return
        self._runner.stop()
        self._runner._send_stats()  # noqa: SLF001 - else Locust's own figures of the last seconds are lost
        self._environment.stop_timeout = 0.0  # Locust would sleep for it before the next run may start
        self._tell(plain(Settled()))

    def _interrupted(self) -> None:
        """Leave Ctrl-C on the terminal, which reaches all processes, to the master: it drains."""
        log.debug("interrupted; the master decides")

    def _watch_master(self) -> None:
        """End this process when the master has died: Locust itself waits a minute for it."""
        while True:
            gevent.sleep(LOOK_S)
            heard_s = self._runner.last_heartbeat_timestamp
            if heard_s and wall_time() - heard_s > SILENT_S and not self._master_listens():
                log.error("the master is gone; this worker ends")
                self._work.end()
                self._environment.stop_timeout = 0.0  # nothing is under way any more
                self._runner.quit()
                return

    def _master_listens(self) -> bool:
        """Tell whether anybody listens on the master's port; a busy master does."""
        place = (self._runner.master_host, self._runner.master_port)
        try:
            socket.create_connection(place, SILENT_S).close()
        except OSError:
            return False
        return True


def _die_with_parent() -> None:
    """Have the kernel end this forked worker when the master dies, however it dies (Linux)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        log.debug("no death signal here: %s", os.strerror(ctypes.get_errno()))
