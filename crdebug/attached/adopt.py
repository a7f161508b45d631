"""Make a job that crdebug did not start one of its jobs, so that it can have checkpoints.

It gets a directory and a record, and each of its ranks, stopped under GDB, gets the shim by a
dlopen. Nothing else is changed. It has no container, so a restart needs its PIDs to be free.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from crdebug.acquire.discovery import FoundJob
from crdebug.acquire.mpir import ProcDesc
from crdebug.acquire.symbols import find_symbols
from crdebug.attached.job import AttendedJob
from crdebug.base.deadline import Deadline
from crdebug.base.errors import GdbError, NotAvailable, Refused
from crdebug.base.events import Event, JobSays
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.checkpoint_commands import Injection, inject, pass_signal
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.target import Target
from crdebug.job import native_parts
from crdebug.job.directory import JobRecord, all_jobs, is_of, unused
from crdebug.job.holds import Hold, SigstopHold
from crdebug.job.incarnation import Incarnation
from crdebug.job.waitpoint import WaitpointHold
from crdebug.native.build import build
from crdebug.native.shim import layout
from crdebug.node import proc, process_tree

_LOST = (
    "SIGSTOP holds it at checkpoints: afterwards threads in system calls are shown before them, a "
    "signal at which it has stopped cannot be kept, and any SIGCONT lets it go"
)


async def adopt(
    found: FoundJob, group: TargetGroup, settings: Settings, tell: Callable[[Event], None]
) -> AttendedJob:
    """Make the stopped job of these debuggers one of crdebug's. tell: called with what such a job
    cannot have.

    Raises Refused if not all of its ranks are attached, or if they are not below its launcher;
    NotAvailable.
    """
    if os.geteuid() != 0:
        raise NotAvailable(
            "only root can take checkpoints of a job that crdebug did not start: it has no "
            "container",
            hint="start it with 'crdebug run'",
        )
    missing = RankSet.span(found.size) - group.ranks
    if missing or any(is_of(each, found.root) for each in all_jobs()):
        raise Refused(
            "cannot checkpoint a part of a job: not all ranks are attached",
            ranks=missing or None,
            hint="attach without --ranks",
        )
    require_tree(found)
    deadline = Deadline(settings.attach)
    native = await build(settings.compiler, deadline)
    pids = [entry.pid for entry in found.entries]
    signal = settings.signal or _free_signal(pids)
    argv = proc.command_line(found.root)
    with unused(argv, "take it over") as directory:
        run = directory.new_run(1)
        for name in ("stdout", "stderr"):
            (run / name).touch(0o600)
        (run / "events").write_text(f"ranks {found.size}\n")
        record = JobRecord(
            name=directory.name,
            argv=argv,
            directory=proc.working_directory(found.root),
            created=time.time(),
            signal=signal,
            starter=str(native.starter),
            shim=str(native.shim),
            incarnation=1,
            pid=found.root,
            start=proc.started(found.root),
            boot=proc.boot_id(),
            adopted=True,
            parts=native_parts.keep(directory, [native.starter, native.shim, native.stepper]),
        )
        directory.write(record)
    try:
        entering = (_enter(each, group, record, deadline, tell) for each in found.entries)
        holds = tuple(await asyncio.gather(*entering))
    except BaseException:
        with contextlib.suppress(Refused), directory.lock("forget it"):
            directory.remove()
        raise
    tell(JobSays(f"from now on this is job {directory.name}"))
    return AttendedJob(group, Incarnation(directory, record, holds), settings, tell)


def require_tree(found: FoundJob) -> None:
    """Raises Refused unless the ranks are below the launcher: a dump takes the launcher and
    everything below it, and so does the end before a restart. Slurm's daemon could not be brought
    back.
    """
    tree, name = process_tree.of_job(found.root), proc.status(found.root)["Name"]
    strangers = RankSet.of(entry.rank for entry in found.entries if entry.pid not in tree)
    if strangers or name.startswith("slurmstepd"):
        raise Refused(
            f"cannot checkpoint: {name} is not a launcher with these ranks as its children",
            ranks=strangers or RankSet.of(entry.rank for entry in found.entries),
            hint="in Slurm start the job with mpirun, under 'crdebug run'",
        )


def _free_signal(pids: Iterable[int]) -> int:
    """A real-time signal that no thread catches, blocks or ignores; the usual one if possible."""
    used = 0
    for pid in pids:
        for thread in proc.threads(pid):
            used |= thread.caught | thread.blocked | thread.ignored
    for number in range(layout.DEFAULT_SIGNAL, 34, -1):
        if not used >> (number - 1) & 1:
            return number
    return layout.DEFAULT_SIGNAL


async def _enter(
    entry: ProcDesc,
    group: TargetGroup,
    record: JobRecord,
    deadline: Deadline,
    tell: Callable[[Event], None],
) -> Hold:
    """Put the shim into a rank; if that is impossible, SIGSTOP will hold it."""
    with contextlib.suppress(NotAvailable, ProcessLookupError):
        return WaitpointHold.find(entry, record.shim)  # it was there before
    target = group[entry.rank]
    try:
        addresses = _addresses(entry.pid)
        await pass_signal(target, record.signal, deadline)
        await _inject(target, entry, record, addresses, deadline, tell)
        return WaitpointHold.find(entry, record.shim)
    except (GdbError, NotAvailable) as error:
        tell(JobSays(f"rank {entry.rank}: it cannot get a shim: {error.problem}; {_LOST}"))
        return SigstopHold(entry)
    except ProcessLookupError:  # it is ending, as others find out
        return SigstopHold(entry)


def _addresses(pid: int) -> tuple[int, int]:
    """The addresses of dlopen and __errno_location. Raises NotAvailable if a library cannot be
    loaded."""
    if proc.status(pid).get("Seccomp", "0") != "0":
        raise NotAvailable("seccomp(2) restricts its system calls")
    names = ("dlopen", "__errno_location")
    found = find_symbols(pid, names, in_file=lambda path: "libc.so" in path or "libc-" in path)
    if len(found) < len(names):
        raise NotAvailable("it has no dlopen: it is linked statically, or its C library is old")
    return found["dlopen"], found["__errno_location"]


async def _inject(
    target: Target,
    entry: ProcDesc,
    record: JobRecord,
    addresses: tuple[int, int],
    deadline: Deadline,
    tell: Callable[[Event], None],
) -> None:
    moved = await inject(target, Injection(Path(record.shim), *addresses, record.signal), deadline)
    if moved:
        names = ", ".join(moved)
        tell(JobSays(f"rank {entry.rank}: thread {names} ran on, out of malloc or dlopen"))
