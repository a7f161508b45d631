"""The resources of the machine that a job without a container needs for a restart. We note them at
a checkpoint, and check them before the restart. (A job in a container has its own.)"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from crdebug.base.deadline import Deadline
from crdebug.base.errors import DeadlineExpired, Refused, StoreError
from crdebug.node import files_used, in_flight, ports, proc, unprivileged
from crdebug.node.free_numbers import (
    is_number_kept,
    is_number_taken,
    is_terminal_taken,
    terminals,
)
from crdebug.node.ports import Port

NAME = "needs.json"
_REAPED = 20.0  # seconds that init may take to reap
_KERNELS = ("/proc/", "/sys/", "/dev/")


@dataclass(frozen=True, slots=True)
class Needs:
    """The resources that must be free or present.

    numbers: those of the processes, their threads, process groups and sessions.
    files: open files and working directories that are not saved with the checkpoint.
    mounts: by mount point, the kind of file system with the job's files.
    pipes: the names of pipes that lead out of the job, and into which it writes.
    terminals: the numbers of its pseudo-terminals, which a launcher makes for its ranks.
    """

    numbers: tuple[int, ...]
    ports: tuple[Port, ...]
    files: tuple[str, ...]
    mounts: dict[str, str]
    pipes: tuple[str, ...]
    terminals: tuple[int, ...] = ()


def note(pids: Iterable[int], saved: Iterable[str]) -> Needs:
    """The needs of stopped processes. saved: files that a restart puts back anyway."""
    processes = tuple(pids)
    numbers: set[int] = set()
    opened: set[str] = set()
    ends: dict[str, set[int]] = {}
    for pid in processes:
        numbers.update((pid, *proc.tids(pid)))
        opened.update(proc.files_in_use(pid))
        for descriptor, name in in_flight.channels(pid).items():
            if name.startswith("pipe:"):
                ends.setdefault(name, set()).add(proc.access_mode(pid, descriptor))
    paths = {path for path in opened if not path.startswith(_KERNELS)}
    return Needs(
        tuple(sorted(numbers)),
        ports.bound(processes),
        tuple(sorted(paths - set(saved))),
        _mounts_of(paths, processes[0]),
        tuple(sorted(name for name, modes in ends.items() if modes == {os.O_WRONLY})),
        terminals(processes),
    )


def mounts_in_use(pids: Iterable[int]) -> dict[str, str]:
    """By mount point, the kind of file system with files of stopped processes."""
    processes = tuple(pids)
    opened = {path for pid in processes for path in proc.files_in_use(pid)}
    return _mounts_of((path for path in opened if not path.startswith(_KERNELS)), processes[0])


def _mounts_of(paths: Iterable[str], process: int) -> dict[str, str]:
    """The mounts that the paths of a process are on."""
    points = sorted(proc.mounts(process), key=lambda mount: len(mount.point), reverse=True)
    found = (next(each for each in points if _is_below(path, each.point)) for path in paths)
    return {mount.point: mount.kind for mount in found}


def require_dumpable(pids: Iterable[int]) -> None:
    """Raises Refused if the CRS could not dump these processes outside a container."""
    for pid in pids:
        for each in files_used.mapped(pid):
            why = "can only be saved in a container"
            unprivileged.refuse_system_v(pid, each, why, "the job with 'crdebug run'")


def _is_below(path: str, point: str) -> bool:
    return point == "/" or path == point or path.startswith(f"{point}/")


def write(needs: Needs, directory: Path) -> None:
    (directory / NAME).write_bytes(msgspec.json.encode(needs))


def read(directory: Path) -> Needs:
    """Raises StoreError."""
    try:
        return msgspec.json.decode((directory / NAME).read_bytes(), type=Needs)
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(f"{directory / NAME} cannot be read: {error}") from None


def missing(needs: Needs, own: Iterable[Port]) -> list[str]:
    """The ports in use, missing files and changed mounts, as clauses for people. (`require` checks
    the numbers.)"""
    taken = ports.taken() - set(own)
    told = [f"{port} is in use" for port in needs.ports if port in taken]
    told += [f"{path} is missing" for path in needs.files if not os.path.exists(path)]
    now = {mount.point: mount.kind for mount in proc.mounts(os.getpid())}
    for point, kind in needs.mounts.items():
        if now.get(point) != kind:
            what = "nothing is mounted" if point not in now else f"a {now[point]} is mounted"
            told.append(f"{what} at {point}, where a {kind} was")
    return told


def _in_use(needs: Needs) -> list[int]:
    return [number for number in needs.numbers if is_number_taken(number)]


async def require(needs: Needs, own: Iterable[int] = ()) -> None:
    """Raises a Refused that names every obstacle to a restart.

    own: the processes of the present job, which will be gone then.
    """
    processes = tuple(own)
    with contextlib.suppress(DeadlineExpired):
        # A process that has just ended keeps its number until its parent has reaped it.
        await Deadline(_REAPED).until(lambda: not _kept(needs), "")
    numbers = {tid for pid in processes for tid in proc.tids(pid)}
    taken = [number for number in _in_use(needs) if number not in numbers]
    told = [f"PID {number} is in use by {_who(number)}" for number in taken]
    others = set(filter(is_terminal_taken, needs.terminals)) - set(terminals(processes))
    told += [f"pseudo-terminal {number} is in use" for number in sorted(others)]
    told += missing(needs, ports.bound(processes))
    if told:
        raise Refused(
            "the job cannot be brought back now: " + "; ".join(told),
            hint="it needs the same PIDs, ports, pseudo-terminals, files and mounts as at the "
            "checkpoint",
        )


def _kept(needs: Needs) -> bool:
    """Does a process that has ended still have one of the numbers?"""
    return any(is_number_kept(number) for number in needs.numbers)


def _who(number: int) -> str:
    try:
        fields = proc.status(number)
    except ProcessLookupError:
        return "a process group or session"
    state = ", which has ended and not been waited for" if fields["State"][0] == "Z" else ""
    return f"{fields['Name']}{state}"
