"""The words of the command line; what they do is elsewhere."""

import sys
import traceback
from pathlib import Path
from typing import Annotated

import orjson
import typer

from harness.errors import HarnessError, StoppedError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(epilog="Example: harness run scenarios/demo.toml")
def harness() -> None:
    """Measure whole agent tasks on fast and standard inference backends."""


@app.command(epilog="Example: harness run scenarios/demo.toml --tasks 20 --out runs/first")
def run(
    scenario: Annotated[Path, typer.Argument(help="The scenario, a TOML file.")],
    *,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results [default: runs/<UTC time>-<scenario>].")
    ] = None,
    duration: Annotated[float | None, typer.Option(metavar="S", help="Measure for S seconds.")] = None,
    tasks: Annotated[int | None, typer.Option(metavar="N", help="Measure N tasks a backend.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Another seed: other tasks.")] = None,
    backend: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this backend; may be given again.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Start although calls cost money.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress; only the answer.")] = False,
    repeat: Annotated[
        int, typer.Option(metavar="N", min=1, help="Repeat the run; from 5 on intervals are between runs.")
    ] = 1,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Run in N processes, under Locust: for more load than one core."
        ),
    ] = None,
    allow_lost_workers: Annotated[
        bool, typer.Option("--allow-lost-workers", help="A run that lost workers may be valid.")
    ] = False,
    prometheus_port: Annotated[
        int | None,
        typer.Option(metavar="P", help="Serve live numbers on this port of 127.0.0.1; 0: a free one."),
    ] = None,
    allow_inconclusive: Annotated[
        bool, typer.Option("--allow-inconclusive", help="Exit 0 where the verdict is INCONCLUSIVE.")
    ] = False,
) -> None:
    """Run a scenario: every task on every backend, records and answer into a folder."""
    simulators = None
    try:
        from harness.preparation import Options, prepare

        options = Options(
            scenario=scenario,
            out=out,
            measure_s=duration,
            tasks=tasks,
            seed=seed,
            backends=backend or [],
            yes=yes,
            quiet=quiet,
            repeat=repeat,
            prometheus_port=prometheus_port,
            allow_inconclusive=allow_inconclusive,
        )
        if workers is not None:
            from harness.bridge.command import run_with_workers

            run_with_workers(options, workers=workers, lost_allowed=allow_lost_workers)
        prepared = prepare(options)
        simulators = prepared.simulators
        from harness.run import run as run_prepared  # heavy: imported while the simulators start

        raise typer.Exit(run_prepared(prepared))
    except KeyboardInterrupt:
        raise StoppedError("interrupted before the first call") from None
    finally:
        if simulators is not None:
            simulators.stop()


@app.command(epilog="Example: harness report runs/first")
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders that runs left.")],
) -> None:
    """Make summary, verdict and answer again from a run's records alone."""
    from harness.report import report as make_again

    raise typer.Exit(make_again(folders))


@app.command(epilog="Example: harness gate runs/first --allow-inconclusive")
def gate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that a run left.")],
    *,
    baseline: Annotated[
        Path | None, typer.Option(metavar="DIR", help="An earlier run that this one must not fall behind.")
    ] = None,
    allow_inconclusive: Annotated[
        bool, typer.Option("--allow-inconclusive", help="Exit 0 where the verdict is INCONCLUSIVE.")
    ] = False,
) -> None:
    """Decide a run's objectives again from its records; the exit code is the answer."""
    from harness.gate import gate as decide

    raise typer.Exit(decide(folder, baseline=baseline, allow_inconclusive=allow_inconclusive))


@app.command(epilog="Example: harness compare runs/monday runs/tuesday")
def compare(
    first: Annotated[Path, typer.Argument(metavar="DIR_A", help="The run that is held against.")],
    second: Annotated[Path, typer.Argument(metavar="DIR_B", help="The run that is held against it.")],
) -> None:
    """Compare two runs of the same tasks, backend by backend."""
    from harness.gate import compare_runs

    raise typer.Exit(compare_runs(first, second))


@app.command(epilog="Example: harness selftest --json")
def selftest(
    *,
    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of a table.")
    ] = False,
) -> None:
    """Measure the meter on this machine, in a minute, and keep what that proves as its certificate."""
    from harness.selftest.command import selftest as measure

    raise typer.Exit(measure(as_json=json_))


@app.command(epilog="Example: harness simulate --profile gpt-5.6-sol-ultrafast --port 8000")
def simulate(
    *,
    profile: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Serve this profile; may be given again.")
    ] = None,
    port: Annotated[int, typer.Option(metavar="N", help="First port; 0 takes free ones.")] = 8000,
    log: Annotated[Path | None, typer.Option(metavar="FILE", help="Log true send times here.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the profiles and end.")] = False,
) -> None:
    """Serve simulated backends on loopback, one port a profile, until Ctrl-C."""
    from harness.simulator.profiles import profiles

    if list_ or not profile:
        for name, one in profiles().items():
            typer.echo(f"{name:32} {one.route:12} {one.source}")
        return
    from harness.simulator.server import main as serve

    names = [word for name in profile for word in ("--profile", name)]
    raise typer.Exit(serve([*names, "--port", str(port), *(["--log", str(log)] if log else [])]))


@app.command(epilog="Example: harness decode recording.json --dialect openai-chat")
def decode(
    file: Annotated[Path, typer.Argument(help="Recorded streams: cases or a recording (JSON).")],
    *,
    dialect: Annotated[str | None, typer.Option(metavar="D", help="Read it as this dialect.")] = None,
) -> None:
    """Decode recorded streams and print their facts, a JSON line each."""
    from harness.decode import decode_file

    for facts in decode_file(file, dialect=dialect):
        sys.stdout.buffer.write(orjson.dumps(facts, option=orjson.OPT_APPEND_NEWLINE))


def main() -> None:
    """Run the command line; a fault that a person can mend is one sentence on standard error."""
    try:
        app()
    except SystemExit as ended:
        # typer makes an interrupt into an exit without a word
        if ended.__context__ and isinstance(ended.__context__.__cause__, KeyboardInterrupt):
            typer.echo("interrupted", err=True)
        raise
    except HarnessError as problem:
        typer.echo(str(problem), err=True)
        sys.exit(problem.exit_code)
    except Exception:  # noqa: BLE001 - Python would end with 1, and 1 says FAIL: this is no answer
        traceback.print_exc()
        sys.exit(4)


if __name__ == "__main__":
    main()
