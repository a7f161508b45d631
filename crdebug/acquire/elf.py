"""ELF files, as far as crdebug reads them: those of x86-64 (elf(5)).

Written out here, as a general reader takes some tenths of a second to make an object of each symbol
of a program, where all that is wanted is the address of a few.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

_HEADER = struct.Struct("<16x16xQQ6xHHHH2x")
_SEGMENT = struct.Struct("<I12xQ32x")
_SECTION = struct.Struct("<4xIQ8xQQI20x")
_NAME = struct.Struct("<I20x")  # of a symbol
_SYMBOL = struct.Struct("<6xHQ8x")
_NOTE = struct.Struct("<III")
_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian

_LOAD, _INTERPRETER = 1, 3
_SYMBOLS, _NOTES, _DYNAMIC_SYMBOLS = 2, 7, 11
_COMPRESSED = 0x800
_BUILD_ID = 3, b"GNU\0"


class _Section(NamedTuple):
    """link: of symbols, the number of the section that has their names."""

    kind: int
    flags: int
    offset: int
    size: int
    link: int


class Elf:
    """An ELF file that is open. Everything raises ValueError when it is none, or damaged."""

    def __init__(self, file: BinaryIO) -> None:
        self._descriptor = file.fileno()
        self._size = os.fstat(self._descriptor).st_size
        header = self._exactly(0, _HEADER.size)
        segments, sections, step, count, section_step, section_count = _HEADER.unpack(header)
        if not header.startswith(_MAGIC):
            raise ValueError("no ELF file of 64 bits")
        if (count and step != _SEGMENT.size) or (section_count and section_step != _SECTION.size):
            raise ValueError("an ELF file whose headers have another size")
        table = self._exactly(segments, count * _SEGMENT.size)
        # kind and address of each
        self._segments: tuple[tuple[int, int], ...] = tuple(_SEGMENT.iter_unpack(table))
        table = self._exactly(sections, section_count * _SECTION.size)
        self._sections = tuple(map(_Section._make, _SECTION.iter_unpack(table)))

    def _exactly(self, offset: int, size: int) -> bytes:
        if offset + size <= self._size:
            data = os.pread(self._descriptor, size, offset)
            if len(data) == size:
                return data
        raise ValueError("an ELF file that ends too early")

    def _of_kind(self, kind: int) -> Iterator[_Section]:
        return (each for each in self._sections if each.kind == kind)

    def _content(self, section: _Section) -> bytes:
        return self._exactly(section.offset, section.size)

    def _names_of(self, symbols: _Section) -> bytes:
        if symbols.link >= len(self._sections):
            raise ValueError("an ELF file whose symbols have no names")
        return self._content(self._sections[symbols.link])

    @property
    def lowest(self) -> int:
        """The lowest address of a segment that is loaded."""
        return min(address for kind, address in self._segments if kind == _LOAD)

    @property
    def is_dynamic(self) -> bool:
        """Does a loader bring in the libraries that it needs?"""
        return any(kind == _INTERPRETER for kind, _ in self._segments)

    @property
    def is_packed(self) -> bool:
        """Is a section of it compressed?"""
        return any(each.flags & _COMPRESSED for each in self._sections)

    def symbols(self, names: Iterable[str]) -> dict[str, int]:
        """The values of those of `names` that are defined; what is dynamic comes first."""
        wanted, found = frozenset(names), dict[str, int]()
        for kind in (_DYNAMIC_SYMBOLS, _SYMBOLS):
            for section in self._of_kind(kind):
                found.update(self._defined(section, wanted - found.keys()))
        return found

    def _defined(self, section: _Section, names: frozenset[str]) -> dict[str, int]:
        text = self._names_of(section)
        wanted = {place: name for name in names for place in _places(name, text)}
        if not wanted:
            return {}
        table = self._content(section)
        table = table[: len(table) // _SYMBOL.size * _SYMBOL.size]
        found = {}
        for number, (place,) in enumerate(_NAME.iter_unpack(table)):
            if place in wanted:
                where, value = _SYMBOL.unpack_from(table, number * _SYMBOL.size)
                if where:  # else it is in another file
                    found[wanted[place]] = value
        return found

    def names(self, text: str) -> bool:
        """Does the name of any symbol that is no dynamic one have this in it?"""
        return any(text.encode() in self._names_of(each) for each in self._of_kind(_SYMBOLS))

    @property
    def build_id(self) -> str:
        """The GNU build-id; empty if it has none."""
        for section in self._of_kind(_NOTES):
            for kind, name, content in _notes(self._content(section)):
                if (kind, name) == _BUILD_ID:
                    return content.hex()
        return ""


def _places(name: str, text: bytes) -> Iterator[int]:
    """Where a name is in a string table, also as the end of a longer one."""
    wanted = name.encode() + b"\0"
    place = text.find(wanted)
    while place >= 0:
        yield place
        place = text.find(wanted, place + 1)


def _notes(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Kind, owner and content of each."""
    place = 0
    while place + _NOTE.size <= len(data):
        name_size, size, kind = _NOTE.unpack_from(data, place)
        name = place + _NOTE.size
        content = name + (name_size + 3) // 4 * 4
        yield kind, data[name : name + name_size], data[content : content + size]
        place = content + (size + 3) // 4 * 4
