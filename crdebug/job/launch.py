"""Starting a job in its container, and knowing when its ranks are there."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from crdebug.acquire.binaries import is_static_mpi
from crdebug.acquire.discovery import find_job
from crdebug.acquire.mpir import acquire
from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, CrdebugError, NotAvailable, Refused, StoreError
from crdebug.base.settings import Settings
from crdebug.job import clocks, native_parts, standard_input
from crdebug.job.directory import JobDirectory, JobRecord, has_ended, is_alive, unused
from crdebug.job.holds import find_holds
from crdebug.job.incarnation import Incarnation
from crdebug.job.told import told
from crdebug.native.build import build
from crdebug.native.recorder.build import build_layer, mpicc_of
from crdebug.native.shim import layout
from crdebug.node import broken_dump, container, file_watch, proc, process_tree, signals

_CARDS = "network cards that are reached past the kernel cannot be dumped"
_NETWORK = "the container has no other network, which spawned processes are reached by"
_SESSION = "its session directory belongs to this job alone, and into the image"
_BY_SLURM = "in Slurm's allocations MPICH would have it start the ranks, outside of the container"
_SIZE = "prterun tells its ranks how many they are, as mpirun does, only with it"
_ROOT = "mpirun refuses to run as root without it, and the container needs root"
# What a launcher or a transport needs so that the job can be dumped, and why. Other MPIs do not
# look at it. Only what the user has not set already.
NEEDED: Mapping[str, tuple[str, str]] = {
    "OMPI_MCA_orte_tmpdir_base": ("/dev/shm", _SESSION),
    "PRTE_MCA_prte_tmpdir_base": ("/dev/shm", _SESSION),
    "PMIX_SYSTEM_TMPDIR": ("/dev/shm", _SESSION),
    "OMPI_MCA_pml": ("ob1", _CARDS),
    "OMPI_MCA_btl": ("self,vader,tcp", _CARDS),
    "OMPI_MCA_btl_tcp_if_include": ("lo", _NETWORK),
    "UCX_TLS": ("self,sm,tcp", _CARDS),
    "HYDRA_LAUNCHER": ("fork", _BY_SLURM),
    "PRTE_MCA_schizo_proxy": ("ompi", _SIZE),
}
_AS_ROOT: Mapping[str, tuple[str, str]] = {
    "OMPI_ALLOW_RUN_AS_ROOT": ("1", _ROOT),
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": ("1", _ROOT),
    "PRTE_ALLOW_RUN_AS_ROOT": ("1", _ROOT),
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": ("1", _ROOT),
}


@dataclass(frozen=True, slots=True)
class Given:
    """What a job's launcher gets besides its command line.

    environment: variables that it has besides crdebug's own, or in their place.  directory: where
    it runs; None is where crdebug does.  stdin: a file or descriptor that is read to its end before
    the job starts; None is nothing.  more: more will be sent; else its standard input ends there.
    relayed: that is what crdebug itself reads.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    stdin: Path | int | None = None
    more: bool = False
    relayed: bool = False

    @property
    def input_text(self) -> str:
        """What the job reads from its standard input, for people."""
        if self.relayed or isinstance(self.stdin, int):
            return "crdebug's own"
        if self.stdin is not None:
            return str(self.stdin)
        return "what 'send' gives it" if self.more else "empty"


# Of programs that are built with a sanitizer; only where ranks wait for a debugger.
_DEBUGGED: Mapping[str, tuple[str, str]] = {
    "LSAN_OPTIONS": ("detect_leaks=0", "LeakSanitizer ends a program that a debugger holds"),
}


_RECORDED: Mapping[str, tuple[str, str]] = {
    "PYTHONHASHSEED": ("0", "a replay repeats the order of Python's sets only with a fixed seed"),
}


def added_to(
    environment: Mapping[str, str], *, debugged: bool = False, recorded: bool = False
) -> dict[str, str]:
    """What is set besides the user's environment, so that the job can be dumped, debugged, and
    replayed."""
    needed = {
        **NEEDED,
        **(_AS_ROOT if os.geteuid() == 0 else {}),
        **(_DEBUGGED if debugged else {}),
        **(_RECORDED if recorded else {}),
    }
    if "OMPI_MCA_btl_tcp_if_exclude" in environment:  # Open MPI refuses to have both
        del needed["OMPI_MCA_btl_tcp_if_include"]
    return {name: value for name, (value, _) in needed.items() if name not in environment}


def why_added(name: str) -> str:
    """The reason for a variable of `added_to`."""
    return {**NEEDED, **_AS_ROOT, **_DEBUGGED, **_RECORDED}.get(name, ("", ""))[1]


async def launch(
    argv: Sequence[str],
    *,
    name: str | None,
    hold: bool,
    settings: Settings,
    given: Given | None = None,
) -> tuple[JobDirectory, JobRecord]:
    """Start a launcher in a new job container. Returns as soon as it runs.

    hold: every rank waits before main until its gate is opened.
    Raises Refused when a job of that name is alive or has checkpoints, BadInput, NotAvailable, also
    for srun, and for a program that is linked statically.
    """
    given = given or Given()
    if not argv:
        raise BadInput("there is no command to run", hint="crdebug run -- mpirun -n 4 PROGRAM")
    signal = settings.signal or layout.DEFAULT_SIGNAL
    signals.require_usable(signal)
    if Path(argv[0]).name == "srun":
        raise NotAvailable(
            "srun has Slurm's daemon start the ranks, and crdebug cannot hold them",
            hint="in an allocation run mpirun; or start srun, and 'crdebug attach' to its PID",
        )
    if os.geteuid() != 0:
        raise NotAvailable(
            "a job container needs root", hint="run it as root; 'crdebug doctor' says more"
        )
    environment = {**os.environ, **given.environment}
    place = (given.directory or Path.cwd()).resolve()
    if not place.is_dir():
        raise BadInput(f"there is no directory {place} to run the job in")
    _refuse_static(argv, place)
    deadline = Deadline(settings.launch)
    native = await build(settings.compiler, deadline)
    layer = await _layer_for(argv, settings.record, deadline)
    added = added_to(environment, debugged=hold, recorded=layer is not None)
    with contextlib.ExitStack() as stack:
        source = None
        if given.stdin is not None:
            source = stack.enter_context(standard_input.open_source(given.stdin))
        directory = stack.enter_context(_locked(name, tuple(argv)))
        _refuse_in_use(directory)
        try:
            run = directory.new_run(1)
            used = [native.starter, native.shim, native.walker, *([layer] if layer else [])]
            kept = native_parts.keep(directory, used)
            await standard_input.begin_with(run, source, more=given.more)
            if layer is not None:
                clocks.make_room(run)
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
            )

            def register(pid: int) -> None:
                nonlocal record
                record = replace(record, pid=pid, start=_started(pid))
                directory.write(record)

            await container.start(
                native.starter,
                [native.shim, *([layer] if layer else [])],
                argv,
                job=directory.name,
                directory=run,
                hold=hold,
                signal=signal,
                environment={**environment, **added},
                working_directory=place,
                deadline=deadline,
                register=register,
            )
        except BaseException:
            directory.forget_while_locked()
            raise
    return directory, record


@contextlib.contextmanager
def _locked(name: str | None, argv: tuple[str, ...]) -> Iterator[JobDirectory]:
    if name is None:
        with unused(argv, "start it") as directory:
            yield directory
        return
    directory = JobDirectory(name)
    with directory.lock("start it"):
        yield directory


def _refuse_static(argv: Sequence[str], place: Path) -> None:
    for word in argv[1:]:
        path = str(place / word) if "/" in word else shutil.which(word)
        if path is not None and is_static_mpi(path):
            raise NotAvailable(
                f"{word} is linked statically: what holds its ranks cannot be loaded into it",
                hint="start it without crdebug, and 'crdebug attach' to the PID of the launcher",
            )


async def _layer_for(argv: Sequence[str], wanted: bool | None, deadline: Deadline) -> Path | None:
    """The library that records MPI calls, for the launcher's MPI; None if it is not wanted.

    Raises NotAvailable, unless it need not be (wanted is None).
    """
    if wanted is False:
        return None
    compiler = mpicc_of(argv[0])
    if compiler is not None:
        return await build_layer(compiler, deadline)
    if wanted is None:
        return None
    raise NotAvailable(
        f"MPI calls cannot be recorded: there is no mpicc that belongs to '{argv[0]}'",
        hint="install the MPI's development package, or run with --no-record",
    )


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


# What Open MPI's and MPICH's launchers say: why they could not start the ranks, in other words, and
# what to do; and that a rank has ended.
_WHY_NOT_STARTED = (
    (
        "not enough slots",
        "more of them than slots",
        "with Open MPI 'mpirun --oversubscribe' starts more ranks than there are processors",
    ),
    (
        r"execvp error|could not access\s+or execute an executable|find the specified executable"
        r"|permissions to execute an executable",
        "the program cannot be run",
        "is it there, and executable? a relative path is looked for where mpirun runs",
    ),
)
_RANK_ENDED = r"process rank \d+ .*exited on signal|non-zero (status|exit code)|BAD TERMINATION"


def why_ended(directory: JobDirectory, record: JobRecord) -> CrdebugError:
    """The error for a job that ended before it was of use: with its last words."""
    run = directory.run(record.incarnation)
    said = told(run / "events")
    # PRRTE's mpirun says on its standard output what is wrong with its options.
    words = _text(run / "stderr") or _text(run / "stdout")
    tail = "\n".join(line for line in words.strip().splitlines()[-30:])
    if said.failure:
        return NotAvailable(f"the job could not be started: {said.failure}")
    if said.status == 0:
        return CrdebugError(
            "the command has ended, and none of its processes was a rank of MPI",
            hint="name a launcher and an MPI program: crdebug run -- mpirun -n 4 PROGRAM",
        )
    status = "" if said.status is None else f" with status {said.status}"
    below = f":\n{tail}" if tail else ""
    for words_of_it, reason, hint in _WHY_NOT_STARTED:
        if re.search(words_of_it, words):
            what = f"the launcher could not start the ranks: {reason}"
            return CrdebugError(f"{what}; it ended{status} ({hint}){below}")
    what = "a rank ended, and so " if re.search(_RANK_ENDED, words) else ""
    return CrdebugError(f"{what}the launcher ended{status} before all ranks were there{below}")


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


async def await_ranks(
    directory: JobDirectory,
    record: JobRecord,
    deadline: Deadline,
    seen: Callable[[], None] = lambda: None,
) -> Incarnation:
    """Wait until all ranks have registered; returns the job, with those that have not ended.

    Raises CrdebugError with the launcher's last words if it ends before that, Refused if it ends
    then, DeadlineExpired.
    """
    events = directory.run(record.incarnation) / "events"

    async def registered() -> None:
        try:
            follower = file_watch.Follower({events: 0})
        except FileNotFoundError:
            raise StoreError(f"{events.parent} is missing") from None
        try:
            async for _ in follower.changes():
                said = told(events)
                if said.status is not None or said.failure:
                    raise why_ended(directory, record)
                if said.ranks is not None:
                    return
        finally:
            follower.close()

    await deadline.wait(registered(), "all ranks to start")
    seen()
    try:
        entries = find_job(record.pid).entries if record.adopted else acquire(record.pid)
        holds = find_holds(entries, record.shim, adopted=record.adopted)
        return Incarnation(directory, record, holds)
    except ProcessLookupError:
        raise has_ended(directory) from None


async def end(
    record: JobRecord,
    deadline: Deadline,
    note: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """End all processes of a job: by ending PID 1 of its container (pid_namespaces(7)), or each.

    note: has debuggers take note that what they hold was killed; it does not end before.
    """
    what = f"job '{record.name}' to end"
    members: tuple[int, ...] = ()
    with contextlib.ExitStack() as stack:
        if is_alive(record) and record.adopted:
            members = process_tree.of_job(record.pid)
            stack.enter_context(broken_dump.forgetting_connections(record.pid))
            for pid in members:
                signals.kill(pid, None)
        elif is_alive(record):
            members = (record.pid,)
            signals.kill(record.pid, record.start)
        if note is not None:
            await note()
        for pid in members:
            await signals.ended(pid, deadline, what)
