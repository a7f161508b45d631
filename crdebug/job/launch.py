"""Start a job in its container."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from crdebug.acquire.binaries import is_static_mpi
from crdebug.base import signal_names
from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, NotAvailable, Refused
from crdebug.base.settings import Settings
from crdebug.job import clocks, native_parts, over_hosts, standard_input
from crdebug.job.directory import JobDirectory, JobRecord, is_alive, sweep_ended_jobs, unused
from crdebug.job.given import Given
from crdebug.job.launch_environment import IN_SCRATCH, added_to
from crdebug.job.output_labels import asking
from crdebug.job.over_hosts import WHY_NO_CONTAINER, Spread
from crdebug.native.build import build
from crdebug.native.recorder.build import build_layer, mpicc_of, mpicc_of_program
from crdebug.native.shim import layout
from crdebug.node import bare, container, proc, programs
from crdebug.node.launchers import NAMES
from crdebug.node.probes import mpi_family


async def launch(
    argv: Sequence[str],
    *,
    name: str | None,
    hold: bool,
    settings: Settings,
    given: Given | None = None,
    spread: Spread | None = None,
) -> tuple[JobDirectory, JobRecord]:
    """Start a launcher in a new job container. Returns as soon as it runs.

    hold: every rank waits before main until its gate is opened.
    spread: the job runs over hosts, and has no container.
    Raises Refused if a job of that name is alive or has checkpoints; BadInput; NotAvailable, also
    for srun, and for a program that is linked statically.
    """
    given = given or Given()
    if not argv:
        raise BadInput("there is no command to run", hint="crdebug run -- mpirun -n 4 PROGRAM")
    signal = settings.signal or layout.DEFAULT_SIGNAL
    signal_names.require_usable(signal)
    if Path(argv[0]).name == "srun" and spread is None:
        raise NotAvailable(
            "srun has Slurm's daemon start the ranks, where crdebug cannot hold them",
            hint="name the hosts, with --hosts, or be in an allocation; "
            "or start srun, and 'crdebug attach' to its PID",
        )
    _require_tracing(contained=spread is None)
    environment = {**os.environ, **given.environment}
    if bare.MARK in environment:  # we are a process of a job ourselves
        for name in bare.VARIABLES:
            environment.pop(name, None)
    place = (given.directory or Path.cwd()).resolve()
    if not place.is_dir():
        raise BadInput(f"there is no directory {place} to run the job in")
    _refuse_static(argv, place)
    sweep_ended_jobs()
    deadline = Deadline(settings.launch)
    native = await build(settings.compiler, deadline)
    layer = await layer_for(argv, place, settings.record, deadline)
    if spread is not None:
        no_container = WHY_NO_CONTAINER
    else:
        no_container = await bare.why_no_container(native.starter, deadline)
    _require_tracing(contained=not no_container)
    labelled = settings.label_output
    launched = await _asking_for_labels(argv, deadline) if labelled else argv
    recorded = layer is not None
    added = added_to(
        environment,
        debugged=hold,
        recorded=recorded,
        labelled=labelled,
        over_hosts=spread is not None,
    )
    with contextlib.ExitStack() as stack:
        source = None
        if given.stdin is not None:
            source = stack.enter_context(standard_input.open_source(given.stdin))
        directory = stack.enter_context(_locked(name, tuple(argv)))
        _refuse_in_use(directory)
        try:
            run = directory.new_run(1)
            used = [native.starter, native.shim, native.stepper, *([layer] if layer else [])]
            kept = native_parts.keep(directory, used)
            await standard_input.begin_with(run, source, more=given.more)
            if layer is not None and spread is None:
                clocks.make_room(run)
            form: tuple[str, ...] = ()
            if spread is not None:
                place_here = over_hosts.begin(spread.mark, hold=hold, records=recorded)
                form, added, launched = _over_hosts(
                    spread, run, place_here, added, launched, hold=hold
                )
            elif no_container:
                form, added = _bare(environment, run, added)
            record = JobRecord(
                name=directory.name,
                argv=tuple(argv),
                directory=str(place),
                created=time.time(),
                signal=signal,
                starter=str(native.starter),
                shim=str(native.shim),
                layer=str(layer or ""),
                added=added,
                environment=dict(given.environment),
                stdin=given.input_text,
                parts=kept,
                incarnation=1,
                pid=0,
                start=0,
                boot=proc.boot_id(),
                container="none" if no_container else "own",
                no_container=no_container,
                labelled=labelled,
                hosts=spread.hosts if spread is not None else (),
            )

            def register(keeper: int, pid: int) -> None:
                nonlocal record
                record = replace(record, keeper=keeper, pid=pid, start=_started(pid))
                directory.write(record)

            await container.start(
                native.starter,
                [native.shim, *([layer] if layer else [])],
                launched,
                job=directory.name,
                directory=run,
                hold=hold,
                signal=signal,
                environment={**environment, **added},
                working_directory=place,
                deadline=deadline,
                register=register,
                form=form,
            )
        except BaseException:
            if mark := added.get(bare.MARK):
                bare.end_remains(mark)
            directory.forget_while_locked()
            raise
    return directory, record


def _bare(
    environment: Mapping[str, str], run: Path, added: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Options for the starter, and the variables for the launcher, of a job without a container."""
    mark = bare.new_mark()
    scratch = bare.make_scratch(mark)
    for_files = {name: str(scratch) for name in IN_SCRATCH if name not in environment}
    own = {bare.MARK: mark, bare.DIRECTORY: str(run), bare.LOGS: str(clocks.logs(run))}
    if bare.yama_scope() == 1:
        own[bare.TRACER] = str(os.getpid())
    return ("--bare", str(scratch)), {**added, **for_files, **own}


def _over_hosts(
    spread: Spread,
    run: Path,
    place: Path,
    added: Mapping[str, str],
    argv: Sequence[str],
    *,
    hold: bool,
) -> tuple[tuple[str, ...], dict[str, str], Sequence[str]]:
    """The same for a job over hosts, whose MPI has its files where it wants; and the launcher's
    command line. place: its scratch directory here."""
    added = {**added, **over_hosts.variables(spread.mark, hold=hold)}
    argv = over_hosts.command(argv, spread, added)
    return ("--bare", str(place)), {**added, bare.DIRECTORY: str(run)}, argv


@contextlib.contextmanager
def _locked(name: str | None, argv: tuple[str, ...]) -> Iterator[JobDirectory]:
    if name is None:
        with unused(argv, "start it") as directory:
            yield directory
        return
    directory = JobDirectory(name)
    with directory.lock("start it"):
        yield directory


def _require_tracing(*, contained: bool) -> None:
    """Who made a user namespace has every capability in it, as root has everywhere, and that is all
    that Yama asks for (security/yama/yama_lsm.c). Raises NotAvailable."""
    if why := bare.why_no_tracing(bare.yama_scope(), root=contained or os.geteuid() == 0):
        raise NotAvailable(why, hint="only the machine's administrator can change that")


def _refuse_static(argv: Sequence[str], place: Path) -> None:
    for word in argv[1:]:
        path = str(place / word) if "/" in word else shutil.which(word)
        if path is not None and is_static_mpi(path):
            raise NotAvailable(
                f"{word} is linked statically: the library that holds its ranks cannot be loaded",
                hint="start it without crdebug, and 'crdebug attach' to the PID of the launcher",
            )


async def mpicc_for(argv: Sequence[str], place: Path, deadline: Deadline) -> str | None:
    """The compiler of the MPI of a launcher's ranks; None if there is none."""
    if Path(argv[0]).name == "srun":
        return await mpicc_of_program(argv, place, deadline)
    return mpicc_of(argv[0])


async def layer_for(
    argv: Sequence[str], place: Path, wanted: bool | None, deadline: Deadline
) -> Path | None:
    """The library that records MPI calls, for a launcher's MPI; None if it is not wanted.

    Raises NotAvailable if recording was requested (wanted is True) but is impossible.
    """
    if wanted is False:
        return None
    compiler = await mpicc_for(argv, place, deadline)
    if compiler is not None:
        return await build_layer(compiler, deadline)
    if wanted is None:
        return None
    raise NotAvailable(
        f"MPI calls cannot be recorded: there is no mpicc that belongs to '{argv[0]}'",
        hint="install the MPI's development package, or run with --no-record",
    )


async def _asking_for_labels(argv: Sequence[str], deadline: Deadline) -> Sequence[str]:
    """The command line with which the launcher says which rank wrote a line, if it can."""
    if Path(argv[0]).name not in NAMES:  # a script would start the job
        return argv
    try:
        ran = await programs.run([argv[0], "--version"], deadline, "the launcher's version")
    except NotAvailable:
        return argv  # starting it will say why
    return asking(argv, *mpi_family(ran.out + ran.err))


def _started(pid: int) -> int:
    try:
        return proc.started(pid)
    except ProcessLookupError:
        return 0  # it has ended already; its events say why


def _refuse_in_use(directory: JobDirectory) -> None:
    if not directory.exists():
        return
    if is_alive(directory.read()):
        raise Refused(
            f"job '{directory.name}' is running",
            hint=f"choose another --name, or 'crdebug kill {directory.name}'",
        )
    numbers = directory.store.numbers()
    if numbers:
        count = f"{len(numbers)} checkpoint{'s' if len(numbers) > 1 else ''}"
        handles = ", ".join(f"{directory.name}:{number}" for number in numbers)
        raise Refused(
            f"job '{directory.name}' has {count}: {handles}",
            hint="choose another --name, or remove them with 'crdebug delete'",
        )
