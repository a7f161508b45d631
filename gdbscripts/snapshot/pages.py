"""Find the pages in which two processes differ that were once the same, and copy those from one to
the other.

We compare page tables, from /proc/PID/pagemap: a page that both processes map is the same in both.
With CAP_SYS_ADMIN we see the numbers of pages, and so know exactly which these are. Otherwise the
kernel says only whether a page is mapped by just one process. Such pages differ; all others we read
on both sides and compare.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys

from ..ptrace import libc
from ..wire import NamedTuple
from .memory import PAGE, differing, is_anonymous, own_pages_scanned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .memory import Area, Memory

    Range = tuple[int, int]
    Run = tuple[int, int, int]  # start, end, and a sum of the constants

SMALL = 1 << 30  # bytes: in mappings up to this size we look at all entries
AT_ONCE = 8192  # entries
BATCH_BYTES, BATCH_RANGES = 4 << 20, 1024  # IOV_MAX
GIVE_BACK = 32 * PAGE  # we give ranges of zeros this large back to the kernel instead
# An entry's highest byte (Linux: admin-guide/mm/pagemap.rst): bit 7, in memory; bit 6, swapped out;
# bit 5, a file's page or shared; bit 0, mapped by this process alone.
# CHANGED: pages may differ.
# ALONE: they do differ, because no other process has the present ones.
# WANTED: the other process has pages of its own there; otherwise they are zeros, or a file's.
CHANGED, ALONE, WANTED = 1, 2, 4
OWN = [flags & 0xC0 and not flags & 0x20 for flags in range(256)]
PRESENT_ONES = bytes(
    (CHANGED | (ALONE if flags & 1 else 0)) if own else 0 for flags, own in enumerate(OWN)
)
WANTED_ONES = bytes(CHANGED | WANTED if own else 0 for own in OWN)
ANY = bytes([0] + [0xFF] * 255)
RUNS = re.compile(rb"\x01+|\x03+|\x05+|\x07+")
# The bits that identify the page: its number or place in swap, and whether it is present.
SAME_PAGE = (0xC07FFFFFFFFFFFFF).to_bytes(8, "little")


for call in (libc.process_vm_readv, libc.process_vm_writev):
    call.argtypes = (
        *(ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong),
        *(ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong),
    )
    call.restype = ctypes.c_ssize_t


class Vector(ctypes.Structure):
    """struct iovec of <sys/uio.h>."""

    _fields_ = (("base", ctypes.c_uint64), ("size", ctypes.c_uint64))


def sees_numbers() -> bool:
    """May this process see the numbers of pages?"""
    here = ctypes.create_string_buffer(b"x", 16)
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        file.seek(ctypes.addressof(here) // PAGE * 8)
        return int.from_bytes(file.read(8), sys.byteorder) & ((1 << 55) - 1) != 0


def portions(present: Memory, wanted: Memory, area: Area) -> Iterator[Range]:
    """The parts of a mapping in which either process may have pages of its own."""
    if area.end - area.start <= SMALL:
        yield area.start, area.end
        return
    found: list[Range] = []
    for each in (present, wanted):
        scanned = own_pages_scanned(each.pages, area)
        if scanned is None:  # before Linux 6.7
            yield area.start, area.end
            return
        found += scanned
    start, end = 0, 0
    for low, high in sorted(found):
        if low > end + SMALL:
            if end:
                yield start, end
            start = low
        end = max(end, high)
    if end:
        yield start, end


def codes(now: bytes, then: bytes, numbers: bool) -> bytes:
    """For each page 0, or a sum of the constants above. now, then: entries of the page tables."""
    size = len(now) // 8
    both = [now[7::8].translate(PRESENT_ONES), then[7::8].translate(WANTED_ONES)]
    told = int.from_bytes(both[0], "little") | int.from_bytes(both[1], "little")
    if numbers and told:
        other = int.from_bytes(now, "little") ^ int.from_bytes(then, "little")
        other &= int.from_bytes(SAME_PAGE * size, "little")
        for shift in (32, 16, 8):  # combine them in the lowest byte of each
            other |= other >> shift
        differs = other.to_bytes(len(now), "little")[::8].translate(ANY)
        told &= int.from_bytes(differs, "little")
    return told.to_bytes(size, "little")


def runs(present: Memory, wanted: Memory, area: Area, numbers: bool) -> Iterator[Run]:
    """Ranges of pages that may differ."""
    for start, end in portions(present, wanted, area):
        for low in range(start, end, AT_ONCE * PAGE):
            size = min(AT_ONCE, (end - low) // PAGE) * 8
            now = os.pread(present.pages, size, low // PAGE * 8)
            then = os.pread(wanted.pages, size, low // PAGE * 8)
            if len(now) != size or len(then) != size:
                raise OSError(5, f"cannot look for pages from {low:#x} on")
            if numbers and now == then:
                continue
            told = codes(now, then, numbers)
            for found in RUNS.finditer(told):
                first, last = found.span()
                yield low + first * PAGE, low + last * PAGE, told[first]


class Batch:
    """Ranges of addresses that are read and written together."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.ranges = ranges
        self.size = sum(end - start for start, end in ranges)
        self.vectors = (Vector * len(ranges))(
            *[Vector(start, end - start) for start, end in ranges]
        )

    def read(self, memory: Memory, room: ctypes.Array[ctypes.c_char]) -> None:
        local = Vector(ctypes.addressof(room), self.size)
        many = len(self.ranges)
        done = libc.process_vm_readv(memory.pid, ctypes.byref(local), 1, self.vectors, many, 0)
        if done == self.size:
            return
        view, at = memoryview(room).cast("B"), 0  # only a debugger can read some of it
        for start, end in self.ranges:
            view[at : at + end - start] = memory.read(start, end - start)
            at += end - start

    def write(self, memory: Memory, room: ctypes.Array[ctypes.c_char]) -> None:
        local = Vector(ctypes.addressof(room), self.size)
        many = len(self.ranges)
        done = libc.process_vm_writev(memory.pid, ctypes.byref(local), 1, self.vectors, many, 0)
        if done == self.size:
            return
        view, at = memoryview(room).cast("B"), 0
        for start, end in self.ranges:
            memory.write(start, bytes(view[at : at + end - start]))
            at += end - start

    def differing(
        self, one: ctypes.Array[ctypes.c_char], other: ctypes.Array[ctypes.c_char]
    ) -> Iterator[Range]:
        """The addresses of pages in which two contents differ."""
        if libc.memcmp(one, other, ctypes.c_size_t(self.size)) == 0:
            return
        left, right, at = memoryview(one).cast("B"), memoryview(other).cast("B"), 0
        for start, end in self.ranges:
            size = end - start
            first, second = bytes(left[at : at + size]), bytes(right[at : at + size])
            for low, high in differing(first, second) if first != second else ():
                yield start + low, start + high
            at += size


def batches(ranges: Iterable[Range]) -> Iterator[Batch]:
    found: list[Range] = []
    size = 0
    for start, end in ranges:
        while start < end:
            stop = min(end, start + BATCH_BYTES - size)
            found.append((start, stop))
            size += stop - start
            start = stop
            if size == BATCH_BYTES or len(found) == BATCH_RANGES:
                yield Batch(found)
                found, size = [], 0
    if found:
        yield Batch(found)


class Rooms:
    """Two buffers for a batch."""

    def __init__(self) -> None:
        self.one = (ctypes.c_char * BATCH_BYTES)()
        self.other = (ctypes.c_char * BATCH_BYTES)()


def contents_differ(
    present: Memory, wanted: Memory, chosen: Iterable[Area], excepted: Sequence[Range]
) -> bool:
    """Does any byte in the mappings differ, outside of the excepted ranges?"""
    rooms, numbers = Rooms(), sees_numbers()
    for area in chosen:
        found = ((start, end) for start, end, _ in runs(present, wanted, area, numbers))
        for batch in batches(found):
            batch.read(present, rooms.one)
            batch.read(wanted, rooms.other)
            for start, end in batch.differing(rooms.one, rooms.other):
                size = end - start
                now, then = (
                    bytearray(present.read(start, size)),
                    bytearray(wanted.read(start, size)),
                )
                for low, high in excepted:
                    low, high = max(low - start, 0), min(high - start, size)
                    if low < high:
                        now[low:high] = then[low:high]
                if now != then:
                    return True
    return False


class Difference(NamedTuple):
    """Ranges of pages.

    sure: they have to be written.
    unsure: they may be the same already.
    zeros: they can be given back to the kernel.
    """

    sure: list[Range]
    unsure: list[Range]
    zeros: list[Range]


def difference(present: Memory, wanted: Memory, chosen: Iterable[Area]) -> Difference:
    numbers = sees_numbers()
    found = Difference([], [], [])
    for area in chosen:
        gives_back = is_anonymous(area)
        for start, end, told in runs(present, wanted, area, numbers):
            if gives_back and not told & WANTED and end - start >= GIVE_BACK:
                found.zeros.append((start, end))
            else:
                (found.sure if told & ALONE else found.unsure).append((start, end))
    return found


def copy_pages(present: Memory, wanted: Memory, found: Difference) -> int:
    """Returns how many bytes were written."""
    rooms, written = Rooms(), 0
    for batch in batches(found.sure):
        batch.read(wanted, rooms.other)
        batch.write(present, rooms.other)
        written += batch.size
    for batch in batches(found.unsure):
        batch.read(present, rooms.one)
        batch.read(wanted, rooms.other)
        for part in batches(list(batch.differing(rooms.one, rooms.other))):
            part.read(wanted, rooms.other)
            part.write(present, rooms.other)
            written += part.size
    return written
