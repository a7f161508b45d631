"""Which program files a process runs, and what identifies their content."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from functools import lru_cache

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

from crdebug.node import proc


@lru_cache(maxsize=4096)
def _build_id(path: str, size: int, modified: int) -> str:
    try:
        with open(path, "rb") as file:
            section = ELFFile(file).get_section_by_name(".note.gnu.build-id")
            if isinstance(section, NoteSection):
                for note in section.iter_notes():
                    if note["n_type"] == "NT_GNU_BUILD_ID":
                        return str(note["n_desc"])
    except (ELFError, OSError, ValueError):
        pass
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
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False  # a FIFO would be waited for
        with open(path, "rb") as file:
            elf = ELFFile(file)
            if any(segment["p_type"] == "PT_INTERP" for segment in elf.iter_segments()):
                return False
            names = elf.get_section_by_name(".strtab")
            return names is not None and b"MPI_Init" in names.data()
    except (ELFError, OSError, ValueError):
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
