"""Where a symbol is in a running process, read from its ELF files, without a debugger."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from crdebug.acquire.elf import Elf
from crdebug.node import proc


@dataclass(frozen=True, slots=True)
class _Key:
    """Names the content of a file, so that it is read once."""

    path: str
    device: int
    inode: int
    modified: int


@lru_cache(maxsize=256)
def _symbols_of(key: _Key, names: frozenset[str]) -> tuple[dict[str, int], int]:
    """The values of defined symbols, and the lowest address of a loaded segment."""
    with open(key.path, "rb") as file:
        elf = Elf(file)
        return elf.symbols(names), elf.lowest


def _loaded(mappings: Iterable[proc.Mapping]) -> dict[str, int]:
    """By file, where it is loaded: where its code is. A program may have mapped it once more to
    read in it, as sanitizers do for the lines of their reports."""
    bases: dict[str, int] = {}
    start: dict[str, int] = {}  # of the mappings of a file that we are in
    with_code = set()
    for each in mappings:
        if each.offset == 0 or each.path not in start:
            start[each.path] = each.start - each.offset
        bases.setdefault(each.path, start[each.path])
        if "x" in each.access and each.path not in with_code:
            with_code.add(each.path)
            bases[each.path] = start[each.path]
    return bases


def find_symbols(
    pid: int,
    names: Iterable[str],
    *,
    in_file: Callable[[str], bool] = lambda path: True,
) -> dict[str, int]:
    """The addresses of those of `names` that the process has; the program's own come first.

    in_file chooses among the mapped files. Raises ProcessLookupError.
    """
    wanted = frozenset(names)
    bases = _loaded(each for each in proc.maps(pid) if each.path[:1] == "/" and in_file(each.path))
    addresses: dict[str, int] = {}
    for path, start in bases.items():
        for _ in range(2):  # the thread by which the file is seen may end between two looks
            file = f"{proc.root(pid)}{path}"
            try:
                details = os.stat(file)
                key = _Key(file, details.st_dev, details.st_ino, details.st_mtime_ns)
                found, lowest = _symbols_of(key, wanted)
            except (OSError, ValueError):
                continue  # deleted, or no ELF file
            for name, value in found.items():
                addresses.setdefault(name, start - lowest + value if lowest < start else value)
            break
    return addresses
