"""Locust's master, or its only process: turns Locust's events into a run, and the run's end into Locust's."""

import logging
import signal
import sys
from pathlib import Path
from typing import Any

import flask
import gevent
from locust.runners import (
    STATE_INIT,
    STATE_MISSING,
    STATE_RUNNING,
    STATE_SPAWNING,
    LocalRunner,
    MasterRunner,
)
from locust.util.timespan import parse_timespan
from locust.web import WebUI

from harness.bridge.ledger import open_folder
from harness.bridge.merge import INTERRUPTED, Run
from harness.bridge.options import (
    EXPECT_S,
    check_users,
    options_of,
    set_defaults,
    shaped,
    with_run_time,
)
from harness.bridge.spread import EvenDispatcher, lacking
from harness.bridge.users import backend_classes
from harness.bridge.work import TO_OWNER, TO_WORKER, Work
from harness.errors import HarnessError, UsageError
from harness.link import Begin, Drain, Go, Settled, message_of, plain
from harness.preparation import Prepared, prepare, read_scenario
from harness.scenario import ClosedLoad

log = logging.getLogger(__name__)

LOCAL = "local"
INVALID = 4


class OwnerSide:
    """Owns runs: one after the other under the web interface, one when headless."""

    def __init__(self, environment: Any, scenario: Path, web_ui: WebUI | None) -> None:  # noqa: ANN401 - users find `harness` on it
        self._environment = environment
        self._runner: Any = environment.runner
        self._web_ui = web_ui
        self._default = scenario
        self._classes = list(environment.user_classes)
        self._main = gevent.getcurrent()
        self._run: Run | None = None
        self._begins: gevent.Greenlet | None = None
        self._shown: Run | None = None
        self._waits = False
        self._prepared: Prepared = self._prepare()
        set_defaults(environment, self._prepared.scenario)
        said = environment.parsed_options
        if (said.headless or said.autostart) and not shaped(environment):
            environment.parsed_options.run_time = (
                None  # engines end by it themselves, from when they are ready
            )
        environment.dispatcher_class = EvenDispatcher
        if isinstance(self._runner, MasterRunner):
            self._runner.register_message(TO_OWNER, self._hear)
            self._expect_workers()
        else:
            self._environment.harness = self._work = Work(
                environment, lambda values: self._heard(LOCAL, values)
            )
        for hook, listener in (
            ("test_start", self._start),
            ("test_stopping", self._drain),
            ("test_stop", self._conclude),
            ("quitting", self._quit),
        ):
            getattr(environment.events, hook).add_listener(listener)
        gevent.signal_handler(signal.SIGINT, self._interrupted)
        if web_ui is not None and web_ui.app is not None:
            web_ui.app.before_request(self._before_start)

    # --- before a run --------------------------------------------------------------------------

    def _prepare(self) -> Prepared:
        """Read the scenario that is asked for now, and start its simulators; raises HarnessError."""
        said = self._environment.parsed_options
        if said.class_picker:
            raise UsageError(
                "--class-picker would undo what makes users of backends; name classes at the end"
            )
        options = options_of(said, scenario=self._default, shaped=shaped(self._environment))
        if said.run_time and not shaped(self._environment):
            options = with_run_time(options, read_scenario(options), float(said.run_time))
        prepared = prepare(options)
        self._environment.user_classes[:] = backend_classes(self._classes, prepared.scenario)
        return prepared

    def _before_start(self) -> flask.Response | None:
        """Take what the start form says before Locust starts; faults stand in the form."""
        starts = flask.request.path.endswith("/swarm") and flask.request.method == "POST"
        if not starts or self._runner.state in (STATE_RUNNING, STATE_SPAWNING):
            return None
        if self._run is not None:
            told = "the last run has not come to its end yet; try again when it has"
            return flask.jsonify({"success": False, "message": told, "host": self._environment.host})
        said, form = self._environment.parsed_options, flask.request.form
        said.scenario, said.out = form.get("scenario", said.scenario), form.get("out", said.out)
        try:
            said.run_time = parse_timespan(form["run_time"]) if form.get("run_time") else None
            self._forget()
            self._prepared = self._prepare()
            check_users(self._environment, self._prepared.scenario, int(form.get("user_count", 0)))
        except (HarnessError, ValueError) as problem:
            log.error("%s", problem)  # noqa: TRY400 - a sentence, not a fault of ours
            return flask.jsonify({"success": False, "message": str(problem), "host": self._environment.host})
        return None

    def _forget(self) -> None:
        if self._prepared.simulators is not None:
            self._prepared.simulators.stop()

    def _expect_workers(self) -> None:
        """Give up on workers that do not come; Locust itself waits without end, and then says 1."""
        said = self._environment.parsed_options
        limit_s, said.expect_workers_max_wait = said.expect_workers_max_wait or EXPECT_S, 0
        if not (said.headless or said.autostart):
            return

        def look() -> None:
            gevent.sleep(limit_s)
            here = [client.id for client in self._runner.clients.all]
            missing = said.expect_workers - len(here)
            if self._run is not None or missing <= 0:
                return
            names = f": {', '.join(here)}" if here else ""
            print(  # noqa: T201 - a sentence for a person
                f"{missing} of {said.expect_workers} expected workers did not come within {limit_s:g} s;"
                f" {len(here)} came{names}; start the others, or lower --expect-workers",
                file=sys.stderr,
            )
            self._runner.quit()
            gevent.kill(self._main, SystemExit(INVALID))

        gevent.spawn(look)

    # --- a run ---------------------------------------------------------------------------------

    def _start(self, **_: Any) -> None:  # noqa: ANN401 - what Locust's hooks are given
        """Begin a run before the first user is spawned; a run that cannot begin spawns none.

        Locust may kill this greenlet meanwhile and start again (a load shape's next step): the run begins
        in a greenlet of its own, and a state that is no longer "ready" keeps Locust from asking for another.
        """
        self._runner.update_state(STATE_SPAWNING)
        self._begins = gevent.spawn(self._begin)
        self._begins.join()
        if self._run is None:
            self._runner.update_state(STATE_INIT)
            raise gevent.GreenletExit

    def _begin(self) -> None:
        environment, prepared = self._environment, self._prepared
        self._take_down()
        try:
            self._check_classes(prepared)
            run = Run(
                prepared,
                open_folder(prepared),
                send=self._send,
                finished=self._finish,
                drain_s=environment.stop_timeout,
                lost_allowed=environment.parsed_options.allow_lost_workers,
            )
            self._run = run
            run.begin(self._nodes())
            if self._web_ui is not None:
                self._web_ui._cancel_run_time_timer()  # noqa: SLF001 - there is no other way to it
        except HarnessError as problem:
            self._abandon()
            print(problem, file=sys.stderr)  # noqa: T201 - one sentence, as `harness run` gives it
            environment.process_exit_code = problem.exit_code
            if environment.parsed_options.headless:
                gevent.spawn(self._runner.quit)
            return
        gevent.spawn(self._watch, run)

    def _check_classes(self, prepared: Prepared) -> None:
        """Refuse users with which a part of the plan would have nobody to do it."""
        users, classes = self._runner.target_user_count, self._environment.user_classes
        check_users(self._environment, prepared.scenario, users)
        idle = [one.__name__ for one in classes if not one.tasks]
        if idle:
            raise UsageError(f"--tags and --exclude-tags leave no task to {', '.join(idle)}")
        if isinstance(prepared.scenario.load, ClosedLoad) and not shaped(self._environment):
            for node, one in lacking(self._nodes(), classes, users):
                raise UsageError(
                    f"of {users} users none like {one.__name__} would be on worker {node}: its share of the"
                    " plan would never be done; give more users, or fewer classes"
                )

    def _abandon(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.abandon()

    def _take_down(self, *, wait: bool = False) -> None:
        """End the last run's page of live numbers, which is there to be looked at until the next run."""
        shown, self._shown = self._shown, None
        if shown is not None:
            self._waits = wait
            shown.take_down(wait=wait)
            self._waits = False

    def _nodes(self) -> list[str]:
        if isinstance(self._runner, LocalRunner):
            return [LOCAL]
        if not self._runner.clients.ready:
            raise UsageError("no worker is connected; start one with --worker")
        return sorted((client.id for client in self._runner.clients.ready), key=self._runner.get_worker_index)

    def _send(self, node: str, values: dict[str, Any]) -> None:
        if node != LOCAL:
            self._runner.send_message(TO_WORKER, values, client_id=node)
            return
        match message_of(values):
            case Begin() as begin:
                self._work.begin(begin)
            case Go() as go:
                self._work.go(go)
            case Drain(cut=cut):
                gevent.spawn(self._drain_here, cut=cut)

    def _drain_here(self, *, cut: bool) -> None:
        self._work.drain(cut=cut)
        self._heard(LOCAL, plain(Settled()))

    def _hear(self, msg: Any, **_: Any) -> None:  # noqa: ANN401 - Locust's message, and more
        self._heard(msg.node_id, msg.data)

    def _heard(self, node: str, values: dict[str, Any]) -> None:
        if self._run is None:
            return
        try:
            self._run.hear(node, values)
        except HarnessError as problem:  # such as a full disk: what it would say from here on is no answer
            self._run.fail(problem)

    def _watch(self, run: Run) -> None:
        """Look once a second who is there."""
        while True:
            gevent.sleep(1.0)
            if run.ending:
                return
            for node, worker in run.workers.items() if isinstance(self._runner, MasterRunner) else ():
                client = self._runner.clients.get(node)
                if client is None or client.state == STATE_MISSING:
                    run.lose(worker, "Locust does not hear from it any more")
            run.watch_users(wanted=self._runner.target_user_count, have=self._runner.user_count)

    # --- the end -------------------------------------------------------------------------------

    def _finish(self, why: str) -> None:
        """End the run because its work is done, or cannot be done."""
        log.info("the run ends: %s", why)
        if self._environment.parsed_options.headless:
            self._runner.quit()
        else:
            self._runner.stop()

    def _drain(self, **_: Any) -> None:  # noqa: ANN401 - what Locust's hooks are given
        if self._run is not None:
            self._run.drain()

    def _conclude(self, **_: Any) -> None:  # noqa: ANN401 - what Locust's hooks are given
        """Judge the run; its verdict is the exit code, whatever Locust counts as failures."""
        run = self._run
        if run is not None and not run.origin_ns:
            self._abandon()
        elif run is not None:
            self._shown = run
            self._environment.process_exit_code = run.conclude()
            self._run = None
            if isinstance(self._runner, LocalRunner):
                self._work.end()
            if self._environment.parsed_options.headless:  # Locust stays when its last worker has died
                gevent.spawn(self._runner.quit)

    def _interrupted(self) -> None:
        """Drain at Ctrl-C, cut at the second one; before a run, end."""
        run = self._run
        if self._waits:
            gevent.kill(self._main, KeyboardInterrupt())
        elif run is None or not run.origin_ns:
            self._environment.process_exit_code = INTERRUPTED
            gevent.kill(self._main, KeyboardInterrupt())
        elif run.interrupted or run.ending:
            run.cut()
        else:
            run.interrupted = True
            gevent.spawn(self._quit_all)

    def _quit_all(self) -> None:
        self._runner.quit()
        if self._web_ui is not None:
            self._web_ui.stop()

    def _quit(self, **_: Any) -> None:  # noqa: ANN401 - what Locust's hooks are given
        """Before Locust ends: whatever ended it, a run that is open is drained and judged."""
        if self._begins is not None:
            self._begins.kill()
        run = self._run
        if run is not None and run.origin_ns:
            run.interrupted = True
            self._runner.quit()
        self._abandon()
        self._forget()
        self._take_down(wait=self._environment.parsed_options.headless)
