"""Finds symbols in a running process, from its ELF files, without a debugger."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Symbol, SymbolTableSection

from crdebug.node import proc


@dataclass(frozen=True, slots=True)
class _Content:
    """Of a file, to be read once. path: one of those by which it can be read."""

    path: str = field(compare=False)  # below /proc/PID/root, another one for each process
    device: int
    inode: int
    modified: int


def _named(table: SymbolTableSection, name: str) -> Iterator[Symbol]:
    """The symbols of that name. (get_symbol_by_name() makes an object of each symbol that there is,
    tens of thousands in the libraries of an MPI.)"""
    names, entries, size = table.stringtable.data(), table.data(), table["sh_entsize"]
    sought = name.encode() + b"\0"
    place = names.find(sought)
    while place >= 0:  # also the end of a longer name may be one
        word = struct.pack("<I", place)  # st_name, with which an entry begins
        at = entries.find(word)
        while at >= 0:
            if at % size == 0:
                yield table.get_symbol(at // size)
            at = entries.find(word, at + 1)
        place = names.find(sought, place + 1)


def _at_once(path: str, flags: int) -> int:
    """Open a file; a FIFO of its name is not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


@lru_cache(maxsize=1024)
def _symbols_of(content: _Content, names: frozenset[str]) -> tuple[dict[str, int], int]:
    """The values of defined symbols, and the lowest address of a loaded segment."""
    found: dict[str, int] = {}
    with open(content.path, "rb", opener=_at_once) as file:
        elf = ELFFile(file)
        base = min(s["p_vaddr"] for s in elf.iter_segments("PT_LOAD"))
        for section in (".dynsym", ".symtab"):
            table = elf.get_section_by_name(section)
            if not isinstance(table, SymbolTableSection):
                continue
            for name in names - found.keys():
                for symbol in _named(table, name):
                    if symbol["st_shndx"] != "SHN_UNDEF":
                        found[name] = symbol["st_value"]
    return found, base


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

    in_file chooses among the mapped files. Raises ProcessLookupError, also for a process that is
    ending, and has given up its memory.
    """
    wanted = frozenset(names)
    bases = _loaded(each for each in proc.maps(pid) if each.path[:1] == "/" and in_file(each.path))
    addresses: dict[str, int] = {}
    for path, start in bases.items():
        if wanted <= addresses.keys():
            break
        for _ in range(2):  # the thread by which the file is seen may end between two looks
            file = f"{proc.root(pid)}{path}"
            try:
                details = os.stat(file)
                if not stat.S_ISREG(details.st_mode):
                    break
                content = _Content(file, details.st_dev, details.st_ino, details.st_mtime_ns)
                found, lowest = _symbols_of(content, wanted)
            except (OSError, ELFError, ValueError):
                continue  # deleted, or no ELF file
            for name, value in found.items():
                addresses.setdefault(name, start - lowest + value if lowest < start else value)
            break
    if not wanted <= addresses.keys() and not proc.maps(pid):
        raise ProcessLookupError(f"process {pid} has ended, or is ending")
    return addresses
