"""A process seen from outside: its threads and its private writable memory; and the differences
between two looks.

`snapshot` reads a process that is stopped or held; it does not stop it. Of memory it leaves out
what may differ although nothing happened to the program: what the caller names (the shim's own
page), what lies below a thread's stack pointer and its red zone, what the kernel writes on its own
account (rseq areas), and what it may empty at any time (MAP_DROPPABLE: glibc 2.41 keeps states of
getrandom(3) there, and begins anew where it finds zeros). What of this depends on registers, which
a debugger reads, comes from the caller.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from harness.spans import Span, outside, union

PAGE = os.sysconf("SC_PAGE_SIZE")
# A leaf function may keep values this far below the stack pointer (System V ABI for AMD64, 3.2.2).
RED_ZONE = 128
_SHOWN = 8  # differences in detail; there may be thousands
_GAP = 8  # bytes that may be equal within what is shown as one difference


# ---- /proc/PID/maps -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MapLine:
    """One line of /proc/PID/maps. name: a path, ``[heap]`` and the like, or empty."""

    span: Span
    permissions: str
    offset: int
    inode: int
    name: str

    @property
    def private_writable(self) -> bool:
        return self.permissions[1] == "w" and self.permissions[3] == "p"


def parse_maps(text: str) -> tuple[MapLine, ...]:
    """Read the text of /proc/PID/maps."""
    lines = []
    for line in text.splitlines():
        addresses, permissions, offset, _device, inode, *name = line.split(maxsplit=5)
        start, end = addresses.split("-")
        span = Span(int(start, 16), int(end, 16))
        lines.append(
            MapLine(span, permissions, int(offset, 16), int(inode), name[0] if name else "")
        )
    return tuple(lines)


def maps(pid: int) -> tuple[MapLine, ...]:
    """A process's mappings now."""
    return parse_maps(Path(f"/proc/{pid}/maps").read_text())


def droppable(smaps: str) -> tuple[Span, ...]:
    """The mappings that the kernel may empty at any time, of the text of /proc/PID/smaps."""
    mappings = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", smaps, flags=re.M)
    marked = "".join(each for each in mappings if re.search(r"^VmFlags:.* dp\b", each, re.M))
    lines = re.findall(r"^[0-9a-f]+-[0-9a-f]+ .*$", marked, re.M)
    return tuple(line.span for line in parse_maps("\n".join(lines)))


# ---- threads ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread. tid: as seen here.  inner: in its innermost PID namespace; survives a restart."""

    tid: int
    inner: int
    name: str


def parse_status(text: str) -> Thread:
    """Read the text of /proc/PID/task/TID/status."""
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    numbers = fields["NSpid"].split()
    return Thread(int(numbers[0]), int(numbers[-1]), fields["Name"])


def threads(pid: int) -> tuple[Thread, ...]:
    """A process's threads, by TID."""
    directory = Path(f"/proc/{pid}/task")
    tids = sorted(int(entry.name) for entry in directory.iterdir())
    return tuple(parse_status((directory / str(tid) / "status").read_text()) for tid in tids)


# ---- memory -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Region:
    """Private writable mappings that touch each other and have equal permissions, taken as one,
    because the kernel may join or split them at any time.

    crc: CRC32 of the bytes that are not excluded.
    pages: by address, those that hold anything but zeros; excluded bytes are zeros.
    """

    span: Span
    permissions: str
    names: tuple[str, ...]
    crc: int
    pages: Mapping[int, bytes] = field(repr=False)

    @property
    def name(self) -> str:
        return ", ".join(dict.fromkeys(name for name in self.names if name)) or "anonymous"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A process's threads and private writable memory at one time.

    excluded: the addresses that were left out.
    """

    pid: int
    threads: tuple[Thread, ...]
    regions: tuple[Region, ...]
    excluded: tuple[Span, ...]

    def differences(self, after: Snapshot) -> tuple[str, ...]:
        """What differs in a later snapshot, as lines to read; empty if nothing does.

        PIDs as seen here may differ, since a restart changes them; those within may not.
        """
        told: list[str] = []
        ours, theirs = ({t.inner: t.name for t in s.threads} for s in (self, after))
        for inner in sorted(ours.keys() | theirs.keys()):
            if inner not in theirs:
                told.append(f"thread {inner} ({ours[inner]}) is gone")
            elif inner not in ours:
                told.append(f"thread {inner} ({theirs[inner]}) is new")
            elif ours[inner] != theirs[inner]:
                told.append(f"thread {inner} was {ours[inner]}, is {theirs[inner]}")
        # What either snapshot left out is zeros in one of them: compare neither.
        excluded = union((*self.excluded, *after.excluded))
        old = {(region.span, region.permissions): region for region in self.regions}
        new = {(region.span, region.permissions): region for region in after.regions}
        for key in sorted(old.keys() | new.keys()):
            before, now = old.get(key), new.get(key)
            if now is None or before is None:
                region, what = (before, "gone") if before is not None else (now, "new")
                assert region is not None
                told.append(f"{region.span} {region.permissions} {region.name} is {what}")
            elif self.excluded != after.excluded or before.crc != now.crc:
                told.extend(_byte_differences(before, now, excluded))
        return tuple(told)


def _byte_differences(before: Region, now: Region, excluded: Sequence[Span]) -> list[str]:
    zeros = bytes(PAGE)
    told: list[str] = []
    found = 0
    pending: Span | None = None

    def show(span: Span) -> str:
        old, new = (
            b"".join(
                region.pages.get(a - a % PAGE, zeros)[a % PAGE : a % PAGE + 1]
                for a in range(span.start, min(span.end, span.start + 16))
            ).hex(" ")
            for region in (before, now)
        )
        more = " …" if span.end - span.start > 16 else ""
        offset = Span(span.start - before.span.start, span.end - before.span.start)
        return f"{before.span} {before.name}, offset {offset}: {old}{more} became {new}{more}"

    for address in sorted(before.pages.keys() | now.pages.keys()):
        old, new = before.pages.get(address, zeros), now.pages.get(address, zeros)
        if old == new:
            continue
        for part in outside(Span(address, address + PAGE), excluded):
            for at in range(part.start - address, part.end - address):
                if old[at] == new[at]:
                    continue
                here = address + at
                if pending is not None and here - pending.end <= _GAP:
                    pending = Span(pending.start, here + 1)
                    continue
                if pending is not None and found <= _SHOWN:
                    told.append(show(pending))
                found += 1
                pending = Span(here, here + 1)
    if pending is not None and found <= _SHOWN:
        told.append(show(pending))
    if found > _SHOWN:
        told.append(f"{before.span} {before.name}: {found - _SHOWN} more differences")
    return told


def make_region(
    lines: Sequence[MapLine], pages: Mapping[int, bytes], excluded: Sequence[Span]
) -> Region:
    """A region of adjacent mappings with these pages; `excluded` is a result of `union`."""
    span = Span(lines[0].span.start, lines[-1].span.end)
    kept: dict[int, bytes] = {}
    crc = 0
    for address in sorted(pages):
        data = _masked(address, pages[address], excluded)
        if any(data):
            kept[address] = data
            crc = zlib.crc32(data, zlib.crc32(address.to_bytes(8, "little"), crc))
    return Region(span, lines[0].permissions, tuple(line.name for line in lines), crc, kept)


def _masked(address: int, data: bytes, excluded: Sequence[Span]) -> bytes:
    page = Span(address, address + len(data))
    parts = list(outside(page, excluded))
    if parts == [page]:
        return data
    masked = bytearray(len(data))
    for part in parts:
        slot = slice(part.start - address, part.end - address)
        masked[slot] = data[slot]
    return bytes(masked)


def adjacent(lines: Iterable[MapLine]) -> Iterator[tuple[MapLine, ...]]:
    """The private writable mappings, those that touch and have equal permissions together."""
    group: list[MapLine] = []
    for line in lines:
        if not line.private_writable:
            continue
        if group and (group[-1].span.end, group[-1].permissions) != (
            line.span.start,
            line.permissions,
        ):
            yield tuple(group)
            group = []
        group.append(line)
    if group:
        yield tuple(group)


def below_stack_pointers(
    lines: Iterable[MapLine], stack_pointers: Iterable[int]
) -> tuple[Span, ...]:
    """For each stack pointer, the part of its mapping below its red zone.

    Raises ValueError for one that points into no private writable mapping.
    """
    stacks = [line.span for line in lines if line.private_writable]
    found = []
    for pointer in stack_pointers:
        for span in stacks:
            if span.start <= pointer <= span.end:
                found.append(Span(span.start, max(span.start, pointer - RED_ZONE)))
                break
        else:
            raise ValueError(f"stack pointer {pointer:x} is in no private writable mapping")
    return union(found)


# ---- reading a live process ---------------------------------------------------------------------

_PRESENT = 1 << 63 | 1 << 62  # in memory, or swapped out (kernel: admin-guide/mm/pagemap.rst)
_FILE_PAGE = 1 << 61  # the page is the file's own, or shared; not a private copy


def _pages(pid: int, line: MapLine, memory: int, pagemap: int) -> Iterator[tuple[int, bytes]]:
    """The pages of a mapping that can hold anything but zeros."""
    count = (line.span.end - line.span.start) // PAGE
    if line.inode:
        # What was never touched of a file's private mapping is the file's content, not zeros.
        wanted = list(range(count))
    else:
        # Reading an untouched anonymous page would make the kernel map one.
        entries = array("Q", os.pread(pagemap, count * 8, line.span.start // PAGE * 8))
        wanted = [index for index, entry in enumerate(entries) if entry & _PRESENT]
    for index in wanted:
        address = line.span.start + index * PAGE
        try:
            data = os.pread(memory, PAGE, address)
        except OSError:
            continue  # a mapping that reaches beyond its file's end has nothing there
        yield address, data


def snapshot(
    pid: int,
    *,
    stack_pointers: Iterable[int] = (),
    thread_pointers: Iterable[int] = (),
    own: Iterable[Span] = (),
) -> Snapshot:
    """Read the threads and all private writable memory of a process that is not running.

    stack_pointers: one for each thread.  thread_pointers: fs_base of each thread.
    own: further addresses to leave out.
    """
    lines = maps(pid)
    area = rseq_area(pid, lines)
    areas = [
        Span(pointer + area.start, pointer + area.end)
        for pointer in thread_pointers
        if area is not None
    ]
    dropped = droppable(Path(f"/proc/{pid}/smaps").read_text())
    excluded = union((*own, *areas, *dropped, *below_stack_pointers(lines, stack_pointers)))
    with _opened(f"/proc/{pid}/mem") as memory, _opened(f"/proc/{pid}/pagemap") as pagemap:
        regions = tuple(
            make_region(
                group,
                {a: data for line in group for a, data in _pages(pid, line, memory, pagemap)},
                excluded,
            )
            for group in adjacent(lines)
        )
    return Snapshot(pid, threads(pid), regions, excluded)


class _opened:
    """A file descriptor for reading, closed at the end of the block."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> int:
        self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return self._fd

    def __exit__(self, *unused: object) -> None:
        os.close(self._fd)


def rseq_area(pid: int, lines: Sequence[MapLine]) -> Span | None:
    """Where a thread's rseq area is, relative to its thread pointer; the kernel writes the number
    of the processor there whenever the thread is moved. None if the C library registers none.

    The dynamic linker says it in __rseq_offset and __rseq_size (glibc >= 2.35).
    """
    for line in lines:
        if line.offset == 0 and re.search(r"/ld[-.][^/]*\.so", line.name):
            path = Path(f"/proc/{pid}/root{line.name}")
            symbols = _symbols(path, ("__rseq_offset", "__rseq_size"))
            if len(symbols) == 2:
                with _opened(f"/proc/{pid}/mem") as memory:
                    base = line.span.start
                    (offset,) = struct.unpack("q", os.pread(memory, 8, base + symbols[0]))
                    (size,) = struct.unpack("I", os.pread(memory, 4, base + symbols[1]))
                # The size counts the fields in use; the area has room for 32 bytes at least, and
                # newer kernels write further ones (rseq(2), struct rseq in linux/rseq.h).
                return Span(offset, offset + max(size, 32)) if size else None
    return None


def _symbols(path: Path, names: Sequence[str]) -> list[int]:
    """The values of dynamic symbols, relative to where the file is mapped, if it has them all."""
    with path.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        if not isinstance(table, SymbolTableSection):
            return []
        values = {symbol.name: int(symbol["st_value"]) for symbol in table.iter_symbols()}
    return [values[name] for name in names if name in values]


_TRAP = 0xCC  # int3


def _file_of(pid: int, line: MapLine) -> str:
    """The path of a mapping's file. Only root finds it if its name is another one's by now."""
    place = f"map_files/{line.span}" if os.geteuid() == 0 else f"root{line.name}"
    return f"/proc/{pid}/{place}"


def patched_code(pid: int) -> tuple[str, ...]:
    """The breakpoints left in a process's code: single bytes that differ from its file.

    Some MPIs write jumps into the C library. Reads only pages that are private copies, so it is
    cheap.
    """
    told = []
    with _opened(f"/proc/{pid}/mem") as memory, _opened(f"/proc/{pid}/pagemap") as pagemap:
        for line in maps(pid):
            if not (line.inode and line.permissions[2:] == "xp" and line.permissions[1] == "-"):
                continue
            count = (line.span.end - line.span.start) // PAGE
            entries = array("Q", os.pread(pagemap, count * 8, line.span.start // PAGE * 8))
            for index, entry in enumerate(entries):
                if not entry & _PRESENT or entry & _FILE_PAGE:
                    continue
                address = line.span.start + index * PAGE
                now = os.pread(memory, PAGE, address)
                with _opened(_file_of(pid, line)) as file:
                    true = os.pread(file, PAGE, line.offset + index * PAGE).ljust(PAGE, b"\0")
                changed = {at for at in range(PAGE) if true[at] != now[at]}
                told += [
                    f"{address + at:x} in {line.name}: {true[at]:02x} became {now[at]:02x}"
                    for at in sorted(changed)
                    if now[at] == _TRAP and not {at - 1, at + 1} & changed
                ]
    return tuple(told)
