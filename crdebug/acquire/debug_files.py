"""The distribution's debug files, unpacked once for the GDBs of all ranks.

Debian compresses the sections of what is below /usr/lib/debug. GDB maps a section that is not
compressed, and all GDBs share that memory; a compressed one each of them unpacks into memory of its
own (gdb/gdb_bfd.c, gdb_bfd_map_section): of the C library's alone 12 MB.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.node import owners, programs

_DISTRIBUTION = Path("/usr/lib/debug")


async def unpack(
    indexes: Path, unpacked: Path, deadline: Deadline, packed: Path = _DISTRIBUTION
) -> None:
    """Unpack into `unpacked` the files of `packed` that GDBs have read; both are laid out as GDB's
    debug-file-directory.

    indexes: GDB's index cache, whose files are named by the build-ids of what GDBs have read.
    A file that cannot be unpacked is left as it is; GDB reads that, too.
    """
    with contextlib.suppress(OSError):
        names = (name.removesuffix(".gdb-index") for name in os.listdir(indexes))
        wanted = {place for place in map(_place, names) if os.path.exists(packed / place)}
        there = {str(path.relative_to(unpacked)) for path in unpacked.glob(".build-id/*/*.debug")}
        for place in there - wanted:
            (unpacked / place).unlink(missing_ok=True)
        new = [each for each in wanted - there if _is_packed(packed / each)]
        await asyncio.gather(*(_unpack(packed / p, unpacked / p, deadline) for p in new))


def _place(build_id: str) -> str:
    """See "Debugging Information in Separate Files" in GDB's manual."""
    return os.path.join(".build-id", build_id[:2], f"{build_id[2:]}.debug")


def _is_packed(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            sections = ELFFile(file).iter_sections()
            return any(each["sh_flags"] & SH_FLAGS.SHF_COMPRESSED for each in sections)
    except (ELFError, OSError, ValueError):
        return False


async def _unpack(source: Path, target: Path, deadline: Deadline) -> None:
    owners.make_readable(target.parent)
    descriptor, name = tempfile.mkstemp(dir=target.parent)  # several may do it at once
    os.close(descriptor)
    unfinished = Path(name)
    argv = ["objcopy", "--decompress-debug-sections", str(source), str(unfinished)]
    try:
        with contextlib.suppress(CrdebugError):
            ran = await programs.run(argv, deadline, f"objcopy to unpack {source}")
            if ran.status == 0:
                unfinished.rename(target)
    finally:
        unfinished.unlink(missing_ok=True)
