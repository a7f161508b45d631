"""The source lines of addresses in processes, without a debugger: by addr2line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
    places: dict[tuple[str, int], list[Address]] = {}  # by file and address in it
    for address in dict.fromkeys(addresses):
        found = _place(*address, maps)
        if found is not None:
            places.setdefault(found, []).append(address)
    by_file: dict[str, list[int]] = {}
    for file, offset in places:
        by_file.setdefault(file, []).append(offset)
    told: dict[Address, str] = {}
    for file, offsets in by_file.items():
        for start in range(0, len(offsets), _AT_ONCE):
            some = offsets[start : start + _AT_ONCE]
            for offset, line in zip(some, await _ask(file, some, deadline), strict=False):
                told |= dict.fromkeys(places[file, offset], line) if line else {}
    return told


def _place(
    pid: int, address: int, maps: Mapping[int, Sequence[proc.Mapping]] | None
) -> tuple[str, int] | None:
    """The file that has it, and its address there."""
    try:
        mappings = proc.maps(pid) if maps is None else maps.get(pid, ())
        for each in mappings:
            if each.start <= address < each.end and each.path.startswith("/"):
                path = f"{proc.root(pid) if maps is None else ''}{each.path}"
                return path, _in_file(path, address - each.start + each.offset)
    except (OSError, ELFError, ValueError):
        return None
    return None


def _in_file(path: str, offset: int) -> int:
    """The address that a file gives to what is at this offset. Raises ELFError."""
    with open(path, "rb") as file:
        for segment in ELFFile(file).iter_segments("PT_LOAD"):
            start = segment["p_offset"]
            if start <= offset < start + segment["p_filesz"]:
                return int(offset - start + segment["p_vaddr"])
    raise ValueError("it is in no segment")


async def _ask(file: str, offsets: list[int], deadline: Deadline) -> list[str]:
    # the call is before the address to which it returns
    words = ["addr2line", "-e", file, *(f"{offset - 1:#x}" for offset in offsets)]
    try:
        done = await programs.run(words, deadline, "addr2line")
    except CrdebugError:
        return []
    found = []
    for line in done.out.splitlines():
        match = _LINE.match(line)
        found.append(f"{PurePath(match['file']).name}:{match['line']}" if match else "")
    return found
