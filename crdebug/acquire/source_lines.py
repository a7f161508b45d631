"""The source lines of addresses in processes, without a debugger: by addr2line."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.node import proc, programs

_AT_ONCE = 500  # addresses
_LINE = re.compile(r"(?P<file>.+):(?P<line>[1-9]\d*)( \(discriminator \d+\))?\Z")

Address = tuple[int, int]  # a process, and a return address in it


async def lines(
    addresses: Iterable[Address],
    deadline: Deadline,
    maps: Mapping[int, Sequence[proc.Mapping]] | None = None,
) -> dict[Address, str]:
    """By return address, the line of the call: "heat.c:88". Those that are not known are left out:
    of a program without debug information, or where there is no addr2line.

    maps: what the processes had mapped, if they may be gone; they then have any numbers.
    """
    files: dict[_Identity, _File] = {}
    for address in dict.fromkeys(addresses):
        with contextlib.suppress(OSError, ELFError):
            _place(*address, maps, files)
    told: dict[Address, str] = {}
    for file in files.values():
        offsets = [*file.places]
        for start in range(0, len(offsets), _AT_ONCE):
            some = offsets[start : start + _AT_ONCE]
            for offset, line in zip(some, await _ask(file, some, deadline), strict=False):
                told |= dict.fromkeys(file.places[offset], line) if line else {}
    return told


_Identity = tuple[int, int]
"""Device and inode: the ranks of a program see it below roots of their own."""


@dataclass(slots=True)
class _File:
    """A program or a library. paths: below the roots of processes, of which any may end.
    segments: where they are in the file, their sizes, and where they are loaded.  places: the
    addresses that are asked for, by what the file calls them."""

    paths: list[str]
    segments: tuple[tuple[int, int, int], ...]
    places: dict[int, list[Address]] = field(default_factory=dict)


def _place(
    pid: int,
    address: int,
    maps: Mapping[int, Sequence[proc.Mapping]] | None,
    files: dict[_Identity, _File],
) -> None:
    """Note it with the file that has it. Raises OSError, ELFError."""
    mappings = proc.maps(pid) if maps is None else maps.get(pid, ())
    for each in mappings:
        if each.start <= address < each.end and each.path.startswith("/"):
            path = f"{proc.root(pid) if maps is None else ''}{each.path}"
            status = os.stat(path)
            identity = status.st_dev, status.st_ino
            if identity not in files:
                files[identity] = _File([], _segments(path))
            files[identity].paths.append(path)
            offset = address - each.start + each.offset
            for start, size, loaded in files[identity].segments:
                if start <= offset < start + size:
                    places = files[identity].places
                    places.setdefault(offset - start + loaded, []).append((pid, address))
                    return


def _segments(path: str) -> tuple[tuple[int, int, int], ...]:
    with open(path, "rb") as file:
        loaded = ELFFile(file).iter_segments("PT_LOAD")
        return tuple((each["p_offset"], each["p_filesz"], each["p_vaddr"]) for each in loaded)


async def _ask(file: _File, offsets: list[int], deadline: Deadline) -> list[str]:
    """Raises nothing: where nobody answers, no line is known."""
    # the call is before the address to which it returns
    words = [f"{offset - 1:#x}" for offset in offsets]
    for path in dict.fromkeys(file.paths):
        try:
            done = await programs.run(["addr2line", "-e", path, *words], deadline, "addr2line")
        except CrdebugError:
            return []
        if done.status == 0:
            matches = map(_LINE.match, done.out.splitlines())
            return [f"{PurePath(m['file']).name}:{m['line']}" if m else "" for m in matches]
    return []
