"""What a CRIU without privileges cannot save, found before it tries.

Such a CRIU opens what a process has mapped by its name: /proc/PID/map_files is closed to it. Tried
with CRIU 4.2.1 on Linux 6.18, as an ordinary user, dumped and restored in namespaces of his own:

- a file that was deleted or replaced, mapped shared or private, also if it is still open: the dump
  fails ("Can't open mapped [...(deleted)]");
- the same file, only open: it works, its content is in the image;
- an anonymous shared mapping, of one process or of several: it works if one mapping shows all of it
  (it is read from the process's memory, holes as well). If parts were unmapped the dump fails
  ("Can't read virtual memory");
- memory of memfd_create(2), only mapped or only open: as above. Mapped shared and open, dump and
  restore say that all is well, but the mapping and the descriptor are two memories from then on;
- System V shared memory: the dump fails ("doesn't live in IPC ns"), and with an IPC namespace of
  the job's own the restore does ("Can't open sysctl kernel/sem");
- more pipes than fs.pipe-user-pages-soft: the dump fails ("Unable to set a pipe size").
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from crdebug.base.errors import Refused
from crdebug.node import files_used, in_flight, proc
from crdebug.node.files_used import MappedFile

_DELETED = " (deleted)"
_MEMFD = "/memfd:"
_SYSTEM_V = "/SYSV"
# What the kernel calls the memory of anonymous shared mappings; with huge pages.
_ANONYMOUS = ("/dev/zero", "/anon_hugepage")
_PAGES_OF_A_PIPE = 16  # pipe(7), "Pipe capacity"
_SOFT_LIMIT = "sys/fs/pipe-user-pages-soft"

_Maps = dict[int, list[MappedFile]]


def refuse_what_cannot_be_saved(pids: Iterable[int]) -> None:
    """Raises Refused, with the process and the name of the mapping, if a CRIU without privileges
    could not save one of these processes, or not whole.

    pids: all processes of a job, stopped. One that has ended is passed over.
    """
    maps: _Maps = {}
    opened: dict[tuple[int, int], int] = {}
    pipes: set[str] = set()
    for pid in pids:
        try:
            maps[pid] = [*files_used.mapped(pid)]
            opened.update(dict.fromkeys(files_used.opened(pid), pid))
            pipes.update(
                name for name in in_flight.channels(pid).values() if name.startswith("pipe:")
            )
        except (FileNotFoundError, ProcessLookupError):
            maps.pop(pid, None)
    memories: dict[tuple[int, int], int] = {}
    for pid, found in maps.items():
        for each in found:
            _require_name(pid, each)
            if each.shared and _is_memory(each):
                _require_not_open(pid, each, opened.get(each.file))
        _require_whole(pid, found, memories)
    _require_pipes(len(pipes))


def _is_memory(mapping: MappedFile) -> bool:
    """Has it no file but memory, which CRIU reads from the process's?"""
    return mapping.name.endswith(_DELETED) and mapping.name.startswith((_MEMFD, *_ANONYMOUS))


def refuse_system_v(pid: int, mapping: MappedFile, why: str, instead: str) -> None:
    """Raises Refused if this is System V's shared memory. why: clause after "which"; instead: what
    else the user can do."""
    if mapping.name.startswith(_SYSTEM_V):
        raise Refused(
            f"{_who(pid)} has System V shared memory ({_shown(mapping)}), which {why}",
            hint=f"start the launcher with UCX_TLS=^sysv if it is MPICH's, or {instead}",
        )


def _require_name(pid: int, mapping: MappedFile) -> None:
    refuse_system_v(pid, mapping, "cannot be saved without root", "use shm_open(3)")
    if mapping.name.endswith(_DELETED) and not _is_memory(mapping) and not _is_named(pid, mapping):
        raise Refused(
            f"{_who(pid)} has mapped {_shown(mapping)}, which was deleted or replaced since: it "
            "cannot be saved without root",
            hint="start the job again if a file that it runs was compiled or installed anew; if "
            "the program deletes what it has mapped, let it keep the name",
        )


def _is_named(pid: int, mapping: MappedFile) -> bool:
    """A file may really be called so."""
    try:
        details = os.stat(f"{proc.root(pid)}{mapping.name}")
    except OSError:
        return False
    return (details.st_dev, details.st_ino) == mapping.file


def _require_not_open(pid: int, mapping: MappedFile, holder: int | None) -> None:
    if holder is not None:
        also = "has it open" if holder == pid else f"has mapped what {_who(holder)} has open"
        raise Refused(
            f"{_who(pid)} {also}: {_shown(mapping)} of memfd_create(2) cannot be saved without "
            "root while it is both open and mapped",
            hint="let the program close it once it is mapped, or use shm_open(3)",
        )


def _require_whole(
    pid: int, found: Iterable[MappedFile], memories: dict[tuple[int, int], int]
) -> None:
    """Each memory must be mapped in one piece, from its beginning, and by all processes alike.

    memories: the sizes of those that other processes have; those of this one are added.
    """
    pieces: dict[tuple[int, int], list[MappedFile]] = {}
    for each in found:
        if each.shared and _is_memory(each):
            pieces.setdefault(each.file, []).append(each)
    for file, parts in pieces.items():
        first, last = parts[0], parts[-1]
        size = last.end - first.start
        if (
            any(each.offset != each.start - first.start for each in parts)
            or sum(each.end - each.start for each in parts) != size
            or memories.setdefault(file, size) != size
        ):
            raise Refused(
                f"{_who(pid)} has mapped parts of shared memory without a file "
                f"({_shown(first)}), which cannot be saved without root",
                hint="let each process keep all of it mapped, or use shm_open(3)",
            )


def _require_pipes(count: int) -> None:
    """CRIU needs one more, of the usual size, at a time."""
    most = int((proc.PROC / _SOFT_LIMIT).read_text())
    if most and (count + 1) * _PAGES_OF_A_PIPE > most:
        raise Refused(
            f"the job has {count} pipes here, and without root {most // _PAGES_OF_A_PIPE} can be "
            f"saved (fs.pipe-user-pages-soft is {most})",
            hint="run fewer ranks on this machine, or have its administrator set "
            "fs.pipe-user-pages-soft higher, or to 0 for no limit",
        )


def _shown(mapping: MappedFile) -> str:
    return mapping.name.removesuffix(_DELETED)


def _who(pid: int) -> str:
    try:
        return f"process {pid} ({proc.status(pid)['Name']})"
    except ProcessLookupError:
        return f"process {pid}"
