"""Which program files a process runs, and what identifies their content."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from functools import lru_cache

from crdebug.acquire.elf import Elf
from crdebug.node import proc


@lru_cache(maxsize=4096)
def _build_id(path: str, size: int, modified: int) -> str:
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
        if known := Elf(file).build_id:
            return known
    return f"{size}:{modified}"


def build_id(path: str) -> str:
    """The GNU build-id of an ELF file; "size:mtime" of any other; "" when it is not there."""
    try:
        details = os.stat(path)
    except OSError:
        return ""
    return _build_id(path, details.st_size, details.st_mtime_ns)


def is_static_mpi(path: str) -> bool:
    """Is it an MPI program that is linked statically, so that nothing can be preloaded into it?"""
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
        elf = Elf(file)
        return not elf.is_dynamic and elf.names("MPI_Init")
    return False


def mapped_programs(pids: Iterable[int]) -> tuple[str, ...]:
    """All files that these processes have mapped as code."""
    paths: set[str] = set()
    for pid in pids:
        try:
            paths.update(m.path for m in proc.maps(pid) if "x" in m.access and m.path[:1] == "/")
        except (ProcessLookupError, PermissionError):
            continue
    return tuple(sorted(path for path in paths if not path.endswith(" (deleted)")))
