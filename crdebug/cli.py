"""The command line: argv to a session or a job; the only place that exits.

Imports are where they are needed, so that `crdebug --help` does not wait for what it does not use.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from crdebug import __version__
from crdebug.base.settings import Settings
from crdebug.ui.doctor import doctor
from crdebug.ui.installing import completion, man, setup
from crdebug.ui.linking import app
from crdebug.ui.options import (
    REPORT,
    STAGE,
    SignalNumber,
    batch_options,
    hosts_options,
    job_names,
    keep_options,
    refuse_batch_options,
    start_options,
)
from crdebug.ui.printable import echo, for_stream
from crdebug.ui.waiting import wait as _wait

if TYPE_CHECKING:
    from crdebug.base.events import Event
    from crdebug.commands.context import Context
    from crdebug.commands.preferences import Preference
    from crdebug.commands.registry import Registry
    from crdebug.detached.values import Keep, Upkeep
    from crdebug.session import Session
    from crdebug.ui.conversation import Begin, LineSource
    from crdebug.ui.screen import Screen

T = TypeVar("T")
Subscriber = Callable[["Event"], None]

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class Program(click.Group):
    """Turns exceptions into one sentence and an exit status."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            click.echo("crdebug: interrupted", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # click ends quietly when nobody reads any more
            ctx.exit(_report(error))
        finally:
            _drop_unread()


def _drop_unread() -> None:
    """Python would write what is left at its end, and change the exit status if nobody reads it any
    more, as on a terminal that has gone (Python's library reference, signal, "Note on SIGPIPE")."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _report(error: Exception) -> int:
    from crdebug.ui.failures import describe

    text, status = describe(error)
    plain = os.environ.get("TERM") == "dumb" or "NO_COLOR" in os.environ  # no-color.org
    click.secho(f"crdebug: {for_stream(text, sys.stderr)}", fg=None if plain else "red", err=True)
    return status


_SCRIPTS = click.option(
    "-x", "scripts", metavar="SCRIPT", multiple=True, help="Play a file of commands first."
)
_BATCH = click.option(
    "--batch",
    is_flag=True,
    help="No console; the first error of a script ends it, status 1; see `set on-script-error`.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="For programs.")
_SIGNAL = click.option(
    "--signal",
    "signal_number",
    type=SignalNumber(),
    metavar="N|NAME",
    help="The waitpoint signal; by default SIGRTMAX-2.",
)


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Debug an MPI job with one GDB per rank, take checkpoints, and go back to them."""
    from crdebug.node import owners

    owners.require_own_homes()


# ---- under the debugger -----------------------------------------------------------------------


@main.command(context_settings={"allow_interspersed_args": False})
@_SCRIPTS
@_BATCH
@click.option(
    "--stop-at",
    type=click.Choice(["main", "none"]),
    default="main",
    show_default=True,
    help="Where the ranks stop first: at main, or before it.",
)
@click.option(
    "--no-debugger", is_flag=True, help="Run it without a debugger, ready for checkpoints."
)
@click.option(
    "--resume",
    is_flag=True,
    help="If the job has a complete checkpoint, restart it from the newest (with --no-debugger).",
)
@REPORT
@batch_options
@click.option("--front", type=int, hidden=True, help="The starter's socket, see front.c.")
@click.option("--gated", is_flag=True, hidden=True, help="It also says when ranks may begin.")
@click.option(
    "--record/--no-record",
    default=None,
    help="Record MPI calls, to go back in time; by default if the MPI's mpicc is there.",
)
@click.option("--name", metavar="JOB", help="The job's name; by default the program's.")
@hosts_options
@start_options
@_SIGNAL
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- mpirun ...")
@click.pass_context
def run(
    ctx: click.Context,
    scripts: tuple[str, ...],
    batch: bool,
    stop_at: str,
    no_debugger: bool,
    resume: bool,
    report: Path | None,
    front: int | None,
    gated: bool,
    record: bool | None,
    name: str | None,
    signal_number: int | None,
    argv: tuple[str, ...],
    care: Upkeep,
    env: dict[str, str],
    cwd: Path | None,
    stdin: Path | int | None,
    label_output: bool | None,
    hosts: str,
    hostfile: Path | None,
) -> None:
    """Start a job: `crdebug run -- mpirun -n 4 ./heat`.

    With --no-debugger it runs at full speed; see docs/batch.md.
    """
    preferences, settings = _preferences(Settings(record=None))
    if signal_number is not None:
        settings.signal = signal_number
    if record is not None or (no_debugger and settings.record is None):
        settings.record = bool(record)
    if label_output is None:
        label_output = settings.label_output and sys.stdout.isatty()
    settings.label_output = label_output
    if report is not None and (scripts or batch or no_debugger):
        raise click.UsageError("--report is for a run by itself: leave -x and --no-debugger out")
    if no_debugger:
        if scripts or batch:
            raise click.UsageError("-x and --batch are for the debugger; leave --no-debugger out")
        if (hosts or hostfile) and front is not None:
            raise click.UsageError("--hosts and --hostfile are not for a job that a tool starts")
        if resume and name is None:
            raise click.UsageError("--resume needs the job's name: --name JOB")
        if resume and front is not None:
            raise click.UsageError("--resume is not for a job that a tool starts")
        from crdebug.detached.mpir_frontend import Front
        from crdebug.detached.values import Named, from_a_shell
        from crdebug.ui.detached import run_detached

        shown = None if front is None else Front(front, gated)
        named = Named(hosts, hostfile)
        given = from_a_shell(env, cwd, stdin, ours=front is None, hosts=named)
        ctx.exit(_wait(run_detached(argv, name, resume, care, settings, _screen(), shown, given)))
    if stdin == 0 and not batch and report is None:
        raise click.UsageError("'--stdin -' is the console's: give a file, or --batch")
    refuse_batch_options(ctx, "--no-debugger", stage=True)
    if resume:
        raise click.UsageError("--resume is for --no-debugger; else use 'crdebug restart'")

    async def begin(subscriber: Subscriber) -> Session:
        from crdebug.session import Named, Session

        return await Session.run(
            argv,
            name=name,
            stop_at_main=stop_at == "main",
            env=env,
            cwd=cwd,
            stdin=stdin,
            hosts=Named(hosts, hostfile),
            settings=settings,
            subscriber=subscriber,
        )

    if report is not None:
        from crdebug.ui.reporting import reported

        told: list[int] = []
        ctx.exit(_wait(reported(begin, report, argv, told), told))
    options = {"signal": signal_number, "record": record, "label-output": label_output}
    chosen = [name for name, value in options.items() if value is not None]
    _debug(begin, scripts, batch, preferences, given=chosen)


@main.command()
@_SCRIPTS
@_BATCH
@click.option("--ranks", default="", metavar="0,3-5", help="Only these; by default all.")
@click.argument("job", metavar="JOB|PID", shell_complete=job_names)
def attach(job: str, ranks: str, scripts: tuple[str, ...], batch: bool) -> None:
    """Attach to a running job.

    JOB is its name; PID is that of its launcher or of one of its ranks. The job may have been
    started without crdebug. It runs on when the session ends.
    """

    async def begin(subscriber: Subscriber) -> Session:
        from crdebug.session import Session

        return await Session.attach(job, ranks, settings=settings, subscriber=subscriber)

    preferences, settings = _preferences()
    _debug(begin, scripts, batch, preferences, owns_job=False)


@main.command()
@_SCRIPTS
@_BATCH
@click.option(
    "--program",
    "programs",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="The executable, by default the one that the core files name; one option for each.",
)
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR|FILE..."
)
def core(
    paths: tuple[Path, ...], programs: tuple[Path, ...], scripts: tuple[str, ...], batch: bool
) -> None:
    """Open the core files of a job as its ranks.

    Of a directory, all core files are taken. They can be looked at, but not run.
    """

    async def begin(subscriber: Subscriber) -> Session:
        from crdebug.session import Session

        return await Session.of_core_files(
            paths, programs=programs, settings=settings, subscriber=subscriber
        )

    preferences, settings = _preferences()
    _debug(begin, scripts, batch, preferences, owns_job=False)


@main.command()
@_SCRIPTS
@_BATCH
@click.option("--no-debugger", is_flag=True, help="Let it run at full speed, without a debugger.")
@click.option("--held", is_flag=True, help="For other debuggers: the ranks wait for them.")
@batch_options
@click.argument("handle", metavar="JOB[:N]", shell_complete=job_names)
@click.pass_context
def restart(
    ctx: click.Context,
    handle: str,
    no_debugger: bool,
    held: bool,
    scripts: tuple[str, ...],
    batch: bool,
    care: Upkeep,
) -> None:
    """Bring a job back from a checkpoint.

    Without N, from its newest complete checkpoint.

    With --held or --batch, each rank that is back is announced as `MPIR_debug_info) HOST:PID`.
    """
    if held:
        from crdebug.detached import jobs

        _wait(jobs.restart(handle, _screen(announce=True).event, _preferences()[1], held=True))
        return
    if no_debugger:
        if scripts or batch:
            raise click.UsageError("-x and --batch are for the debugger; leave --no-debugger out")
        from crdebug.ui.detached import restart_detached

        ctx.exit(_wait(restart_detached(handle, care, _preferences()[1], _screen())))
    refuse_batch_options(ctx, "--no-debugger", stage=False)

    async def begin(subscriber: Subscriber) -> Session:
        from crdebug.detached.batch import handle_of
        from crdebug.session import Session

        whole = await handle_of(handle, care.stage, subscriber)
        return await Session.restart_from(whole, settings=settings, subscriber=subscriber)

    preferences, settings = _preferences()
    _debug(begin, scripts, batch, preferences, announce=batch)


def _preferences(settings: Settings | None = None) -> tuple[Sequence[Preference], Settings]:
    from crdebug.commands.preferences import read_own

    return read_own(settings)


def _debug(
    begin: Begin,
    scripts: Sequence[str],
    batch: bool,
    preferences: Sequence[Preference],
    *,
    given: Sequence[str] = (),
    owns_job: bool = True,
    announce: bool = False,
) -> None:
    """Hold a conversation with the session that `begin` makes, and exit with its status."""
    if batch and not scripts:
        raise click.UsageError("--batch needs a script: -x SCRIPT")
    from crdebug.ui.conversation import Plan, converse

    plan = Plan(scripts, batch, owns_job, preferences, given)
    screen = _screen(batch=batch, announce=announce)
    told: list[int] = []
    status = _wait(converse(begin, plan, screen, _source, told), told)
    click.get_current_context().exit(status)


def _source(registry: Registry, context: Context) -> LineSource:
    from crdebug.ui.console import open_source

    return open_source(registry, context)


def _screen(*, batch: bool = False, announce: bool = False) -> Screen:
    from crdebug.ui.screen import Screen

    streams = sys.stdout.isatty() and sys.stderr.isatty()
    terminal = streams and not batch and os.environ.get("TERM") != "dumb"
    return Screen(terminal=terminal, announce=announce)


# ---- jobs without the debugger ----------------------------------------------------------------


@main.command()
@click.option("--note", default="", metavar="TEXT", help="A note to recognise it by.")
@click.option("--kill", is_flag=True, help="End the job when its checkpoint is complete.")
@click.option("--held", is_flag=True, help="For debuggers: ranks that they hold stay held.")
@click.option("--stop", is_flag=True, help="Leave the job stopped, until `crdebug release JOB`.")
@STAGE
@keep_options
@_JSON
@click.argument("job", shell_complete=job_names)
def checkpoint(
    job: str,
    note: str,
    kill: bool,
    stop: bool,
    held: bool,
    stage: Path | None,
    as_json: bool,
    care: Keep,
) -> None:
    """Take a checkpoint of a job, with or without a debugger."""
    from crdebug.detached import batch
    from crdebug.ui.listing import checkpoint_json, checkpoint_taken

    screen = _screen()
    with screen.busy():
        chosen = _preferences()[1]
        work = batch.take_checkpoint(
            job, note, kill, screen.event, chosen, stop=stop, held=held, place=stage
        )
        taken = _wait(work)
        _wait(batch.prune(taken.job, care))
    # The line that MPIR debuggers look for: the argument of MPIR_restart_command.
    click.echo(f"MPIR_checkpoint_handle) {taken.handle}", err=True)
    echo(checkpoint_json(taken) if as_json else checkpoint_taken(taken))


@main.command()
@_JSON
@click.option("--long", "long", is_flag=True, help="Also how long each stopped the job.")
@click.argument("job", required=False, shell_complete=job_names)
def checkpoints(job: str | None, as_json: bool, long: bool) -> None:
    """List the checkpoints of a job, or of all jobs."""
    from crdebug.detached import jobs
    from crdebug.ui.listing import checkpoint_table, checkpoints_json

    found = _wait(jobs.list_checkpoints(job))
    echo(checkpoints_json(found) if as_json else checkpoint_table(found, long=long))


@main.command("jobs")
@_JSON
def jobs_(as_json: bool) -> None:
    """List the jobs."""
    from crdebug.detached import jobs
    from crdebug.ui.listing import job_table, jobs_json

    found = _wait(jobs.list_jobs())
    echo(jobs_json(found) if as_json else job_table(found))


@main.command()
@click.argument("job", shell_complete=job_names)
def why(job: str) -> None:
    """Tell why a job's ranks wait.

    Who waits for whom, who can never go on, and who is waited for. No rank is stopped for it, and
    the job may be under a debugger.
    """
    from crdebug.detached.why import why

    for line in _wait(why(job, _preferences()[1])):
        echo(line)


@main.command()
@click.argument("job", shell_complete=job_names)
def check(job: str) -> None:
    """Tell what a job's MPI calls show to be wrong.

    Collectives that do not fit, messages and receives that nobody completed, calls that the MPI
    refused. No rank is stopped for it, and the job may be under a debugger.
    """
    from crdebug.detached.check import checked

    echo(_wait(checked(job, _preferences()[1])))


@main.command()
@click.argument("handle", metavar="JOB:N", shell_complete=job_names)
def delete(handle: str) -> None:
    """Delete a checkpoint."""
    from crdebug.detached import jobs

    _wait(jobs.delete(handle))
    click.echo(f"checkpoint {handle} deleted")


@main.command("keep")
@click.option("--no", "free", is_flag=True, help="Stop keeping it.")
@click.argument("handle", metavar="JOB:N", shell_complete=job_names)
def keep_(handle: str, free: bool) -> None:
    """Protect a checkpoint from limits.

    --keep, --keep-for and --keep-disk do not delete it.
    """
    from crdebug.detached import jobs

    jobs.set_kept(handle, not free)
    click.echo(f"checkpoint {handle} {'may go' if free else 'stays'}")


@main.command()
@click.argument("job", shell_complete=job_names)
def kill(job: str) -> None:
    """End a job. Its checkpoints stay."""
    from crdebug.detached import jobs
    from crdebug.ui.listing import killed

    _wait(jobs.kill(job, _preferences()[1]))
    click.echo(killed(job))


@main.command()
@click.argument("job", shell_complete=job_names)
def release(job: str) -> None:
    """Let a held job run on.

    After `checkpoint --stop`, or after its debugger died.
    """
    from crdebug.detached import jobs

    for line in _wait(jobs.release(job, _preferences()[1])):
        echo(line)


@main.command()
def starter() -> None:
    """Print the launcher for MPIR debuggers.

    They start it in place of mpirun; see docs/gdb.md.
    """
    from crdebug.detached.mpir_frontend import program

    click.echo(_wait(program(_preferences()[1])))


for _command in (app, completion, doctor, man, setup):
    main.add_command(_command)
