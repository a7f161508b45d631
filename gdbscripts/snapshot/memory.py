"""Keep a process's memory in this GDB, and put it back: contents, and the mappings they are in.

All threads of the process must be stopped by GDB. We keep chunks of 32 KiB. A chunk that has not
changed since the previous snapshot is the same object, so another snapshot of a process that has
changed little takes little memory.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import itertools
import os
import re

from ..wire import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Piece = tuple[int, int, str]  # start, end, access

PAGE = 4096
CHUNK = 8 * PAGE
ZERO_PAGE = bytes(PAGE)
ZEROS = bytes(CHUNK)
# The highest byte of an entry in /proc/PID/pagemap (Linux: admin-guide/mm/pagemap.rst): bit 7, in
# memory; bit 6, swapped out; bit 5, not a private copy.
PORTION_OF_PAGES = 1 << 18  # pages whose entries (2 MiB) we read at once
# Linux: include/uapi/linux/fs.h.
PAGEMAP_SCAN, REGIONS = 0xC0606610, 1024
FILE_PAGE, PRESENT_PAGE, SWAPPED_PAGE = 1 << 2, 1 << 3, 1 << 4
OWN_PAGES = re.compile(rb"[\x40-\x5f\x80-\x9f\xc0-\xdf]+")

MAPS_LINE = re.compile(r"(\w+)-(\w+) (\S{4}) (\w+) (\S+) (\d+) *(.*)")


class Area(NamedTuple):
    """A line of /proc/PID/maps."""

    start: int
    end: int
    access: str
    offset: int
    device: str
    inode: int
    name: str


def areas(pid: int) -> list[Area]:
    """The lines of /proc/PID/maps."""
    with open(f"/proc/{pid}/maps", errors="surrogateescape") as file:
        return [area for area in map(area_of, file) if area is not None]


@functools.lru_cache(maxsize=4096)  # the job stands while we read, and most lines stay as they are
def area_of(line: str) -> Area | None:
    match = MAPS_LINE.match(line)
    if match is None:
        return None
    start, end, access, offset, device, inode, name = match.groups()
    return Area(int(start, 16), int(end, 16), access, int(offset, 16), device, int(inode), name)


def is_anonymous(area: Area) -> bool:
    """Is it private memory without a file? The kernel may join and split such mappings."""
    named = area.name and area.name != "[heap]" and not area.name.startswith("[anon:")
    return area.inode == 0 and area.access[3] == "p" and not named


class Memory:
    """/proc/PID/mem and /proc/PID/pagemap, open."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self.file = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        except ProcessLookupError:  # the kernel shows nothing of that one thread any more
            import gdb

            said = "the main thread has ended (pthread_exit): only checkpoints lead back"
            raise gdb.GdbError(said) from None
        self.pages = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *problem: object) -> None:
        os.close(self.file)
        os.close(self.pages)

    def read(self, start: int, size: int) -> bytes:
        return os.pread(self.file, size, start)

    def write(self, start: int, data: bytes) -> None:
        if os.pwrite(self.file, data, start) != len(data):
            raise OSError(5, f"cannot write memory at {start:#x}")

    def extents(self, area: Area) -> list[tuple[int, int]]:
        """The parts of a mapping that may hold anything but zeros."""
        if area.access[3] == "s":
            return shared_extents(self.pid, area)
        if area.inode:
            return file_extents(self, area)
        found = own_pages_scanned(self.pages, area)
        return own_pages_read(self.pages, area) if found is None else found

    def chunks(self, area: Area) -> Iterator[tuple[int, int]]:
        """Start and size of each chunk of a mapping that may hold anything but zeros."""
        last = -1
        for start, end in self.extents(area):
            for at in range(start - start % CHUNK, end, CHUNK):
                if at != last:
                    last = at
                    low = max(at, area.start)
                    yield low, min(at + CHUNK, area.end) - low


class ScanArguments(ctypes.Structure):
    """struct pm_scan_arg of <linux/fs.h>."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            "size",
            "flags",
            "start",
            "end",
            "walk_end",
            "vec",
            "vec_len",
            "max_pages",
            "category_inverted",
            "category_mask",
            "category_anyof_mask",
            "return_mask",
        )
    )
    start: int
    walk_end: int


class Region(ctypes.Structure):
    """struct page_region of <linux/fs.h>."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("start", "end", "categories"))
    start: int
    end: int


def own_pages_scanned(
    pages: int, area: Area, *, first: bool = False
) -> list[tuple[int, int]] | None:
    """Like `own_pages_read`, by PAGEMAP_SCAN: it takes no time for missing page tables, and so for
    huge reservations. None before Linux 6.7, which does not have it.

    first: return only the first page.
    """
    room = 1 if first else REGIONS
    regions = (Region * room)()
    told = ScanArguments(
        size=ctypes.sizeof(ScanArguments),
        end=area.end,
        vec=ctypes.addressof(regions),
        vec_len=room,
        max_pages=int(first),
        category_inverted=FILE_PAGE,
        category_mask=FILE_PAGE,
        category_anyof_mask=PRESENT_PAGE | SWAPPED_PAGE,
        return_mask=PRESENT_PAGE | SWAPPED_PAGE,
    )
    found: list[tuple[int, int]] = []
    at = area.start
    while at < area.end:
        told.start = at
        try:
            count = fcntl.ioctl(pages, PAGEMAP_SCAN, told)
        except OSError as error:
            if error.errno in (errno.ENOTTY, errno.EINVAL) and at == area.start:
                return None
            raise
        for region in regions[:count]:
            if found and found[-1][1] == region.start:
                found[-1] = found[-1][0], region.end
            else:
                found.append((region.start, region.end))
        if first and found:
            break
        if told.walk_end <= at:
            raise OSError(errno.EIO, f"cannot look for pages from {at:#x} on")
        at = told.walk_end
    return found


def own_pages_read(pages: int, area: Area) -> list[tuple[int, int]]:
    """The ranges of pages that a private mapping has of its own, in memory or swapped out."""
    found: list[tuple[int, int]] = []
    for low in range(area.start, area.end, PORTION_OF_PAGES * PAGE):
        high = min(low + PORTION_OF_PAGES * PAGE, area.end)
        size = (high - low) // PAGE * 8
        entries = os.pread(pages, size, low // PAGE * 8)
        if len(entries) != size:
            raise OSError(errno.EIO, f"cannot look for pages from {low:#x} on")
        for own in OWN_PAGES.finditer(entries[7::8]):
            start, end = low + own.start() * PAGE, low + own.end() * PAGE
            if found and found[-1][1] == start:
                found[-1] = found[-1][0], end
            else:
                found.append((start, end))
    return found


def file_extents(memory: Memory, area: Area) -> list[tuple[int, int]]:
    """All of a private mapping of a file, up to the file's end."""
    end = area.end
    while end > area.start:
        try:
            memory.read(end - PAGE, 1)
            break
        except OSError:
            end -= PAGE
    return [(area.start, end)] if end > area.start else []


def shared_extents(pid: int, area: Area) -> list[tuple[int, int]]:
    """The parts of a shared mapping that its file has. (Reading a hole through the mapping would
    fill it.)"""
    try:
        file = os.open(
            f"/proc/{pid}/map_files/{area.start:x}-{area.end:x}", os.O_RDONLY | os.O_CLOEXEC
        )
    except OSError:
        return [(area.start, area.end)]
    found = []
    at, end = area.offset, area.offset + area.end - area.start
    try:
        while at < end:
            at = os.lseek(file, at, os.SEEK_DATA)
            hole = os.lseek(file, at, os.SEEK_HOLE)
            if at < end:
                stop = min(-(-hole // PAGE) * PAGE, end)
                found.append((area.start + at - area.offset, area.start + stop - area.offset))
            at = hole
    except OSError as error:
        if error.errno != 6:  # ENXIO: nothing but a hole is left
            return [(area.start, area.end)]
    finally:
        os.close(file)
    return found


class Content:
    """The content of memory.

    areas: the mappings.
    chunks: by address, those that are not all zeros.
    """

    def __init__(self, chosen: list[Area]) -> None:
        self.areas = chosen
        self.chunks: dict[int, bytes] = {}

    @property
    def size(self) -> int:
        return sum(len(data) for data in self.chunks.values())


def read_content(
    memory: Memory, chosen: list[Area], base: Mapping[int, bytes]
) -> tuple[Content, int]:
    """Returns the content of some mappings, and how many bytes of it are not also in `base`."""
    content = Content(chosen)
    known, kept, changed = base, content.chunks, 0
    pread, file = os.pread, memory.file
    for area in chosen:
        for start, size in memory.chunks(area):
            data = pread(file, size, start)
            old = known.get(start)
            if data == old:
                kept[start] = old
            elif data != ZEROS[: len(data)]:
                kept[start] = data
                changed += len(data)
    return content, changed


def write_content(memory: Memory, content: Content, excepted: list[tuple[int, int]]) -> int:
    """Write a content back to memory, only the pages that differ; returns how many bytes.

    excepted: ranges that stay as they are.
    """
    sizes = {at: size for area in content.areas for at, size in memory.chunks(area)}
    sizes.update((at, len(data)) for at, data in content.chunks.items())
    written = 0
    for at, size in sizes.items():
        wanted, now = content.chunks.get(at) or ZEROS[:size], memory.read(at, size)
        if now == wanted:
            continue
        for start, end in excepted:
            if start < at + size and at < end:
                low, high = max(start - at, 0), min(end - at, size)
                wanted = wanted[:low] + now[low:high] + wanted[high:]
        for start, end in differing(now, wanted):
            memory.write(at + start, wanted[start:end])
            written += end - start
    return written


def differing(now: bytes, wanted: bytes) -> Iterator[tuple[int, int]]:
    """The pages in which two chunks differ, as ranges."""
    start = None
    for at in range(0, len(now), PAGE):
        same = now[at : at + PAGE] == wanted[at : at + PAGE]
        if not same and start is None:
            start = at
        elif same and start is not None:
            yield start, at
            start = None
    if start is not None:
        yield start, len(now)


# ---- mappings -----------------------------------------------------------------------------------


def heap_end(found: Iterable[Area]) -> int:
    """The end of the last [heap] mapping, which brk(2) moves; 0 if there is none."""
    return max((area.end for area in found if area.name == "[heap]"), default=0)


def anonymous_pieces(found: Iterable[Area]) -> list[Piece]:
    """The anonymous mappings except the heap, as sorted (start, end, access)."""
    return [(a.start, a.end, a.access) for a in found if is_anonymous(a) and a.name != "[heap]"]


def layout_problem(then: list[Area], now: list[Area]) -> str | None:
    """Why the mappings `now` cannot be made those of `then`; None if they can."""

    def others(found: list[Area]) -> set[Area]:
        named = [area for area in found if not is_anonymous(area)]
        # The kernel lets the main thread's stack grow downwards, and never shrinks it.
        return {(a if a.name != "[stack]" else a._replace(start=0, offset=0)) for a in named}

    def heap_start(found: list[Area]) -> int:
        return min((area.start for area in found if area.name == "[heap]"), default=0)

    old, new = others(then), others(now)
    for area in sorted(old ^ new):
        what = "gone" if area in old else "new"
        name = area.name or "anonymous"
        return f"the mapping {area.start:x}-{area.end:x} {area.access} of {name} is {what}"
    if heap_end(then) != heap_end(now) and heap_start(then) != heap_start(now):
        return "the heap is new or gone"
    end = min(heap_end(then), heap_end(now))
    if protections(then, end) != protections(now, end):
        return "parts of the heap have another protection"
    return None


def protections(found: Iterable[Area], end: int) -> list[tuple[int, str]]:
    """Where each part of the heap with another protection than the one before begins."""
    parts: list[tuple[int, str]] = []
    for area in sorted(each for each in found if each.name == "[heap]" and each.start < end):
        if not parts or parts[-1][1] != area.access:
            parts.append((area.start, area.access))
    return parts


def access_at(pieces: list[Piece], address: int) -> str | None:
    for start, end, access in pieces:
        if start <= address < end:
            return access
    return None


def layout_calls(then: list[Area], now: list[Area]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The system calls that make the anonymous mappings `now` those of `then`, in this order:
    (number, arguments). `layout_problem` must have found nothing.
    """
    mmap, mprotect, munmap, brk = 9, 10, 11, 12
    private, anonymous, fixed, no_reserve = 0x02, 0x20, 0x10, 0x4000
    if heap_end(then) != heap_end(now):
        yield brk, (heap_end(then),)
    old, new = anonymous_pieces(then), anonymous_pieces(now)
    edges = sorted({edge for start, end, _ in (*old, *new) for edge in (start, end)})
    for start, end in itertools.pairwise(edges):
        before, after = access_at(old, start), access_at(new, start)
        if before == after:
            continue
        size = end - start
        if before is None:
            yield munmap, (start, size)
            continue
        protection = sum(1 << bit for bit, letter in enumerate("rwx") if letter in before)
        if after is None:
            flags = private | anonymous | fixed | no_reserve
            yield mmap, (start, size, protection, flags, (1 << 64) - 1, 0)
        else:
            yield mprotect, (start, size, protection)
