"""Read core files without a debugger: whose they are, and how each process ended. x86-64.

The kernel writes them (fs/binfmt_elf.c, elf_core_dump), and so does GDB's generate-core-file.
"""

from __future__ import annotations

import bisect
import os
import re
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crdebug.base.errors import BadInput, in_words

_Read = Callable[[int, int], bytes]  # from a place, up to so many bytes; fewer where it ends

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")  # Elf64_Ehdr of elf(5)
_SEGMENT = struct.Struct("<IIQQQQQQ")  # Elf64_Phdr
_NOTE = struct.Struct("<III")  # Elf64_Nhdr
_PAIR = struct.Struct("<QQ")
_TRIPLE = struct.Struct("<QQQ")
_X86_64, _PT_LOAD, _PT_NOTE, _PF_X = 62, 1, 4, 1
_MANY = 0xFFFF  # PN_XNUM: then the first section header has the number of segments
_PRSTATUS, _PRPSINFO, _AUXV, _FILE = 1, 3, 6, 0x46494C45
_BUILD_ID, _PAGE = 3, 4096
_SIGNAL, _PID = 12, 24  # offsets in struct elf_prstatus (of a short) and elf_prpsinfo (of an int)
_AT_ENTRY, _AT_EXECFN = 9, 31
# No more is read, however large a damaged file says that something is. The environment has at most
# a quarter of the stack, which is usually 8 MiB; /proc/sys/vm/max_map_count is usually 65530.
_ENVIRONMENT, _NOTE_SIZE, _SEGMENTS = 8 << 20, 64 << 20, 1 << 20
_COMPRESSED = {
    b"\x28\xb5\x2f\xfd": "zstd -d",
    b"\x1f\x8b": "gunzip",
    b"\xfd7zXZ\0": "xz -d",
    b"\x04\x22\x4d\x18": "lz4 -d",
}


@dataclass(frozen=True, slots=True)
class Core:
    """A core file.

    program: the executable's path on the machine where it ran; "" if the file does not tell.
    build: the executable's GNU build-id, "" if it is not in the file.
    libraries: the build-ids of the shared libraries by their paths, as far as they are in the file.
    signal: the one that ended the process; 0 if it went on (gcore).
    environment: the variables that the process was started with; empty if they are not in the file.
    """

    path: Path
    program: str
    build: str
    pid: int
    signal: int
    libraries: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def is_core(path: Path) -> bool:
    """Is it a core file, whole or not? False also for one that cannot be read."""
    head = _head(path)
    return len(head) >= 20 and head[:4] == b"\x7fELF" and head[16:18] == b"\4\0"


def how_to_unpack(path: Path) -> str:
    """The command that unpacks a compressed file; "" for any other."""
    head = _head(path)
    return next((command for magic, command in _COMPRESSED.items() if head.startswith(magic)), "")


def _head(path: Path) -> bytes:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return b""  # a FIFO would be waited for
        with open(path, "rb") as file:
            return file.read(64)
    except OSError:
        return b""


def read_core(path: Path) -> Core:
    """Raises BadInput for a file that is no whole core file, CrdebugError for one that
    cannot be read."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise BadInput(f"{path} is not a core file")
        with open(path, "rb", buffering=0) as file:
            # Not mapped: it may be overwritten by the next one meanwhile, and shrink.
            return _read(path, _reader(file.fileno()), os.fstat(file.fileno()).st_size)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise in_words(error) from None
    except (struct.error, ValueError, IndexError, OverflowError):
        raise BadInput(f"{path} is damaged: it cannot be read as a core file") from None


def _reader(descriptor: int) -> _Read:
    return lambda at, size: os.pread(descriptor, size, at)


def _read(path: Path, read: _Read, length: int) -> Core:
    head = read(0, _HEADER.size)
    if head[:4] != b"\x7fELF" or head[16:18] != b"\4\0":
        raise BadInput(f"{path} is not a core file")
    if head[4] != 2 or head[18:20] != struct.pack("<H", _X86_64):
        raise BadInput(f"{path} is the core file of another kind of machine", hint="of x86-64 only")
    segments = _segments(path, read, length)
    expected = max((each.offset + each.size for each in segments), default=0)
    if expected > length:
        raise BadInput(
            f"{path} is truncated: it has {length} of {expected} bytes",
            hint="the disk or the limit of core files ('ulimit -c') was too small for it, or the "
            "launcher killed the process while it was written",
        )
    notes: dict[int, bytes] = {}
    for each in segments:
        if each.kind == _PT_NOTE:
            for kind, content in _notes(read(each.offset, min(each.size, _NOTE_SIZE))):
                notes.setdefault(kind, content)  # the first thread's is that of the signal
    auxv = dict(_PAIR.iter_unpack(notes.get(_AUXV, b"")))
    memory = _Memory(read, [each for each in segments if each.kind == _PT_LOAD])
    files = _Files(notes.get(_FILE, b""))
    program = files.at(auxv.get(_AT_ENTRY, 0))
    (pid,) = struct.unpack_from("<i", notes.get(_PRPSINFO, bytes(64)), _PID)
    (signal,) = struct.unpack_from("<h", notes.get(_PRSTATUS, bytes(64)), _SIGNAL)
    code = {files.at(each.address) for each in segments if each.executable}
    return Core(
        path,
        program.removesuffix(" (deleted)"),
        memory.build_id(files.base(program)),
        pid,
        signal,
        {each: memory.build_id(files.base(each)) for each in sorted(code - {"", program})},
        memory.environment(auxv.get(_AT_EXECFN, 0)),
    )


@dataclass(frozen=True, slots=True)
class _Segment:
    """size: of what is in the file, from offset on."""

    kind: int
    executable: bool
    offset: int
    address: int
    size: int


def _segments(path: Path, read: _Read, length: int) -> list[_Segment]:
    header = _HEADER.unpack(read(0, _HEADER.size))
    first, sections, size, count = (header[at] for at in (5, 6, 9, 10))
    if count == _MANY:
        (count,) = struct.unpack("<I", read(sections + 44, 4))  # sh_info
    if size != _SEGMENT.size or count > _SEGMENTS:
        raise BadInput(f"{path} is damaged: it cannot be read as a core file")
    if first + count * size > length:
        raise BadInput(f"{path} is truncated: it has only {length} bytes")
    return [
        _Segment(kind, bool(flags & _PF_X), offset, address, in_file)
        for kind, flags, offset, address, _, in_file, *_ in _SEGMENT.iter_unpack(
            read(first, count * size)
        )
    ]


def _notes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Their types and contents, each padded to four bytes (elf(5), "Notes")."""
    at = 0
    while at + _NOTE.size <= len(data):
        name, size, kind = _NOTE.unpack_from(data, at)
        at += _NOTE.size + (name + 3 & ~3)
        yield kind, data[at : at + size]
        at += size + 3 & ~3


class _Files:
    """The mapped files: NT_FILE has a count and the page size, then start, end and offset (in
    pages) of each, then their names."""

    def __init__(self, note: bytes) -> None:
        count, page = _PAIR.unpack_from(note) if note else (0, 1)
        names = note[16 + count * _TRIPLE.size :].split(b"\0")
        places = _TRIPLE.iter_unpack(note[16 : 16 + count * _TRIPLE.size])
        self._all = sorted(
            (start, end, offset * page, os.fsdecode(name))
            for (start, end, offset), name in zip(places, names, strict=False)
        )
        self._bases: dict[str, int] = {}
        for start, _, at, name in self._all:
            if not at:
                self._bases.setdefault(name, start)

    def at(self, address: int) -> str:
        """The file that is mapped there; "" for none."""
        before = bisect.bisect_right(self._all, address, key=lambda each: each[0])
        _, end, _, name = self._all[before - 1] if before else (0, 0, 0, "")
        return name if address < end else ""

    def base(self, name: str) -> int:
        """The address of a file's beginning."""
        return self._bases.get(name, 0)


class _Memory:
    """What the file has of the process's memory."""

    def __init__(self, read: _Read, segments: Iterable[_Segment]) -> None:
        self._read = read
        self._segments = sorted(segments, key=lambda each: each.address)

    def bytes(self, start: int, end: int) -> bytes:
        """Of one segment, as much of it as there is up to `end`; b"" if `start` is in none."""
        segment = self._at(start)
        if segment is None:
            return b""
        size = min(end, segment.address + segment.size) - start
        return self._read(segment.offset + start - segment.address, size)

    def _at(self, address: int) -> _Segment | None:
        before = bisect.bisect_right(self._segments, address, key=lambda each: each.address)
        found = self._segments[before - 1] if before else None
        return found if found is not None and address < found.address + found.size else None

    def environment(self, program_name: int) -> dict[str, str]:
        """The strings of the environment end where that of the program's name begins, at the top of
        the stack (fs/exec.c, bprm_execve; linux/auxvec.h, AT_EXECFN)."""
        stack = self._at(program_name)
        if stack is None:
            return {}
        start = max(stack.address, program_name - _ENVIRONMENT)
        found: dict[str, str] = {}
        for entry in reversed(self.bytes(start, program_name).split(b"\0")[:-1]):
            name, is_variable, value = entry.partition(b"=")
            if not is_variable:
                break  # the last argument
            found[os.fsdecode(name)] = os.fsdecode(value)
        return found

    def build_id(self, start: int) -> str:
        """Of the program that is mapped from here on; "" if the file does not have its headers."""
        head = self.bytes(start, start + _HEADER.size)
        if len(head) < _HEADER.size or head[:4] != b"\x7fELF":
            return ""
        header = _HEADER.unpack(head)
        first, size, count = header[5], header[9], header[10]
        if size != _SEGMENT.size:
            return ""
        table = self.bytes(start + first, start + first + size * count)
        segments = list(_SEGMENT.iter_unpack(table[: len(table) // size * size]))
        lowest = min((each[3] for each in segments if each[0] == _PT_LOAD), default=0)
        for kind, _, _, address, _, length, *_ in segments:
            if kind == _PT_NOTE:
                place = start + address - lowest
                for what, content in _notes(self.bytes(place, place + min(length, _PAGE))):
                    if what == _BUILD_ID:
                        return content.hex()
        return ""


# ---- several -------------------------------------------------------------------------------------

_DIGITS = re.compile(r"(\d+)")


def in_order(path: Path) -> tuple[object, ...]:
    """A sort key by which core.9 comes before core.10."""
    parts = _DIGITS.split(path.name)
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts if part)
