"""The job container: namespaces with a keeper as PID 1, and our starter below it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.errors import NotAvailable
from crdebug.node import owners, proc, programs, signals

SHARED_MEMORY = "/dev/shm"
JOB_DIRECTORY = f"{SHARED_MEMORY}/crdebug"  # CRDEBUG_DIR of crdebug.h
# A variable for the CRS's action script: the directory of the images.
SCRIPT_OF = "CRDEBUG_IMAGES"


@dataclass(frozen=True, slots=True)
class Container:
    """A job's container. Host PIDs.

    keeper: PID 1 in there, which holds the namespaces, and ends with the job's first process.
    """

    keeper: int

    @property
    def shared_memory(self) -> Path:
        """Its /dev/shm, as it is seen from here."""
        return proc.root(self.keeper) / SHARED_MEMORY[1:]

    def find_first(self) -> int:
        """The job's first process, as long as there is no other. Raises ProcessLookupError."""
        others = set(proc.processes_in_namespace_of(self.keeper)) - {self.keeper}
        if len(others) != 1:
            raise ProcessLookupError("the container has ended")
        return others.pop()

    def find(self, inner: int) -> int:
        """The process that has this PID in there. Raises ProcessLookupError."""
        for pid in proc.processes_in_namespace_of(self.keeper):
            with contextlib.suppress(ProcessLookupError):
                if proc.inner_pid(pid) == inner:
                    return pid
        raise ProcessLookupError(f"no process of the container has PID {inner}")


async def start(
    starter: Path,
    preload: Sequence[Path],
    launcher: Sequence[str],
    *,
    job: str,
    directory: Path,
    hold: bool,
    signal: int,
    environment: Mapping[str, str],
    working_directory: Path,
    deadline: Deadline,
    register: Callable[[int, int], None],
    form: Sequence[str] = (),
) -> None:
    """Start a job. register: called with the host PIDs of the container's keeper, and of the
    starter in there; the launcher starts only after it has returned, so no job runs unregistered,
    even if it raises or we die. form: options for the starter of a job that has no container: then
    there is no keeper, and its PID is 0.

    directory (on the host): becomes the job's own: stdout, stderr, events. preload: libraries that
    every process of the job loads first, in this order (ld.so(8)). On return the launcher runs; the
    ranks may not run yet. Raises NotAvailable with the starter's reason.
    """
    waits, lets = os.pipe()
    options = ["--job", job, "--dir", str(directory), "--signal", str(signal)]
    options += ["--shim", ":".join(map(str, preload))] if preload else []
    options += ["--hold"] if hold else []
    options += form
    try:
        pid = await _made(
            [str(starter), *options, "--wait", str(waits)],
            ["--", *launcher],
            deadline,
            pass_fds=(waits,),
            environment=environment,
            directory=working_directory,
        )
        try:
            if form:
                register(0, pid)
            else:
                register(pid, Container(pid).find_first())
        except ProcessLookupError:
            raise NotAvailable("the job container has ended at once") from None
        os.write(lets, b"!")
    finally:
        os.close(waits)
        os.close(lets)


@contextlib.asynccontextmanager
async def for_restore(
    starter: Path, first: int, host: str, directory: Path, deadline: Deadline
) -> AsyncIterator[tuple[Container, int]]:
    """A container for a job to be restored in, until its first process has ended.

    first: that process's PID in there.  host: the container's host name.  directory: the job's.
    If the process is not there when the block ends, the container ends too. Yields the container,
    and a descriptor: as long as another process has that open, the block has not ended.
    Raises NotAvailable.
    """
    waits, lets = os.pipe()
    options = ["--keep", str(first), "--host", host, "--dir", str(directory)]
    try:
        keeper = await _made(
            [str(starter), *options, "--wait", str(waits)], [], deadline, pass_fds=(waits,)
        )
        os.close(waits)
        waits = -1
        yield Container(keeper), lets
    finally:
        for each in {waits, lets} - {-1}:
            os.close(each)


async def _made(
    options: Sequence[str],
    rest: Sequence[str],
    deadline: Deadline,
    *,
    pass_fds: Sequence[int],
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> int:
    """Returns the PID that the starter reports."""
    reader, writer = os.pipe()
    try:
        done = await programs.run(
            [*options, "--report", str(writer), *rest],
            deadline,
            "the job container",
            environment=environment,
            directory=directory,
            pass_fds=(writer, *pass_fds),
        )
        os.close(writer)
        writer = -1
        with os.fdopen(reader, closefd=False) as report:
            text = report.read()
    finally:
        for each in {reader, writer} - {-1}:
            os.close(each)
    if done.status != 0 or not text.strip():
        raise NotAvailable(
            f"cannot make the job container: {done.err.strip() or done.status}",
            hint="see 'crdebug doctor'",
        )
    return int(text)


def entering(
    starter: Path, container: int | None, command: Sequence[str], serve: Path | None = None
) -> list[str]:
    """The command line that runs a command inside a container; None: outside of any.

    serve: the path of a socket, at which a plan is carried out outside (native/starter/enter.c).
    """
    server = [] if serve is None else ["--serve", str(serve)]
    return [str(starter), "--enter", str(container or 0), *server, "--", *command]


# ---- processes left by a CRS that was killed -----------------------------------------------------


def containers_of(directory: Path) -> tuple[int, ...]:
    """The host PIDs of PID 1 of every container whose job directory this is."""
    try:
        wanted = _identity(directory)
    except OSError:
        return ()
    found = []
    for pid in proc.pids():
        try:
            there = proc.root(pid) / JOB_DIRECTORY[1:]
            if proc.inner_pid(pid) == 1 and _identity(there) == wanted and _is_ours(pid):
                found.append(pid)
        except (OSError, KeyError):
            continue  # gone, or a container of another kind
    return tuple(found)


def _is_ours(pid: int) -> bool:
    """Has it this user's rights, and no others? Anybody's process can have any arguments. Raises
    ProcessLookupError."""
    return owners.users_of(pid) == {os.geteuid()}


def _identity(path: Path) -> tuple[int, int]:
    details = path.stat()
    return details.st_dev, details.st_ino


def crs_at_work(images: Path) -> tuple[int, ...]:
    """The host PIDs of the programs that write images into a directory below `images`, or read
    them there; and of half restored processes, which look like them until they are complete."""
    found = []
    for pid in proc.pids():
        with contextlib.suppress(OSError):
            told = pairwise(proc.command_line(pid))
            places = [Path(value) for option, value in told if option == "--images-dir"]
            if any(place.is_relative_to(images) for place in places) and _is_ours(pid):
                found.append(pid)
    return tuple(found)


def scripts_at_work(images: Path) -> tuple[int, ...]:
    """The host PIDs of the action scripts of programs that `crs_at_work` finds, or found earlier: a
    script that carries out a plan outlives its CRS if that is killed."""
    found = []
    for pid in proc.pids():
        with contextlib.suppress(OSError):
            if "--crs-action" in proc.command_line(pid):
                place = proc.environment(pid).get(SCRIPT_OF)
                if place and Path(place).is_relative_to(images) and _is_ours(pid):
                    found.append(pid)
    return tuple(found)


async def end_all(find: Callable[[], tuple[int, ...]], deadline: Deadline) -> None:
    """Kill the processes that `find` returns, until it returns none. Raises DeadlineExpired."""
    while pids := find():
        for pid in pids:
            signals.kill(pid, None)
        for pid in pids:
            await signals.ended(pid, deadline, f"the end of process {pid}")
