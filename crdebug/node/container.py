"""The job container: namespaces with our starter as PID 1 (design: "Job container")."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.errors import NotAvailable
from crdebug.node import owners, proc, programs, signals

JOB_DIRECTORY = "/run/crdebug"  # CRDEBUG_DIR of crdebug.h
# A variable for the CRS's action script: the directory of the images.
SCRIPT_OF = "CRDEBUG_IMAGES"


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
    register: Callable[[int], None],
    form: Sequence[str] = (),
) -> None:
    """Start a job. register: called with the host PID of PID 1 of its container; the launcher
    starts only after it has returned, so no job runs unregistered, even if it raises or we die.
    form: options for the starter of a job that has no container.

    directory (on the host): becomes the job's own: stdout, stderr, events. preload: libraries that
    every process of the job loads first, in this order (ld.so(8)). On return the launcher runs; the
    ranks may not run yet. Raises NotAvailable with the starter's reason.
    """
    reader, writer = os.pipe()
    waits, lets = os.pipe()
    options = ["--job", job, "--dir", str(directory), "--signal", str(signal)]
    options += ["--shim", ":".join(map(str, preload))] if preload else []
    options += ["--hold"] if hold else []
    options += form
    answers = ["--report", str(writer), "--wait", str(waits)]
    try:
        done = await programs.run(
            [str(starter), *options, *answers, "--", *launcher],
            deadline,
            "the job container",
            environment=environment,
            directory=working_directory,
            pass_fds=(writer, waits),
        )
        os.close(writer)
        writer = -1
        with os.fdopen(reader, closefd=False) as report:
            text = report.read()
        if done.status != 0 or not text.strip():
            raise NotAvailable(
                f"cannot make the job container: {done.err.strip() or done.status}",
                hint="see 'crdebug doctor'",
            )
        register(int(text))
        os.write(lets, b"!")
    finally:
        for each in {reader, writer, waits, lets} - {-1}:
            os.close(each)


def machine_mounts(pid: int) -> tuple[proc.Mount, ...]:
    """The mounts of a container that are the machine's, not the container's own: the CRS leaves
    them out of the image, and binds them again on restart."""
    ours = {"/", "/proc", "/dev/shm", "/dev/pts", JOB_DIRECTORY}
    points: dict[str, proc.Mount] = {}
    for mount in proc.mounts(pid):
        if mount.point not in ours:
            points[mount.point] = mount
    return tuple(points.values())


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
