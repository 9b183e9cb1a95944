"""Locust's end of the pipe pair: starts the engine process, sends to it and hears from it.

The child is started after Locust's fork, and ends by itself when this process does, however it dies: its
stdin comes to its end.
"""

import logging
import subprocess
import sys
from collections.abc import Callable

import gevent
import orjson

from harness.link import Message, message_of, to_line

log = logging.getLogger(__name__)

END_S = 5.0


class EngineProcess:
    """A running `python -m harness.worker`. `hear` gets its messages one by one, None when it has ended."""

    def __init__(self, hear: Callable[[Message | None], None]) -> None:
        self._hear = hear
        # In a process group of its own: Ctrl-C on the terminal is for Locust, which then lets it drain.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        self._reader = gevent.spawn(self._read)

    def send(self, message: Message) -> None:
        """Send a message; an engine that is gone says so by its end of file, not here."""
        pipe = self._process.stdin
        if pipe is None:
            return
        try:
            pipe.write(to_line(message))
            pipe.flush()
        except (OSError, ValueError) as fault:
            log.debug("the engine does not take messages any more: %s", fault)

    def close(self) -> None:
        """Let the engine end, and wait for it."""
        for pipe in (self._process.stdin,):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except OSError as fault:
                    log.debug("the engine was gone already: %s", fault)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(END_S)

    def _read(self) -> None:
        pipe = self._process.stdout
        while pipe is not None and (line := pipe.readline()).endswith(b"\n"):
            self._hear(message_of(orjson.loads(line)))
        self._hear(None)
