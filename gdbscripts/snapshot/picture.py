"""The memory in a snapshot.

Private memory is in a frozen copy of the process (frozen.py). We copy into this GDB's own memory
what such a copy lacks: shared mappings, and memory that the program keeps from its children
(madvise(2): MADV_DONTFORK, MADV_WIPEONFORK). If no frozen copy can be made, we copy everything, as
long as that is little compared with the free memory.
"""

from __future__ import annotations

import re

import gdb

from ..ptrace import Gone
from .actions import put_back_actions
from .frozen import Frozen, make
from .kernel import Injector, syscall_instruction
from .memory import (
    PAGE,
    Memory,
    areas,
    is_anonymous,
    own_pages_scanned,
    read_content,
    write_content,
)
from .pages import contents_differ, copy_pages, difference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..ptrace import UserRegisters
    from .memory import Area
    from .pages import Range

MADVISE, DONT_NEED = 28, 4
SHARE_TO_COPY = 4  # a copy takes at most one part in so many of the free memory
FLAGS = re.compile(r"^VmFlags:(.*)$", re.M)
PLACE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ", re.M)


def is_own_memory(area: Area) -> bool:
    """Is it memory that this process writes, and no other?"""
    return area.access[1] == "w" and area.access[3] == "p" and not area.name.startswith("[v")


def is_frozen_too(area: Area) -> bool:
    """Is it private memory, writable or not? Code from files is left out: there may be breakpoints
    in it, which are not part of a snapshot."""
    if area.access[3] != "p" or area.name.startswith(("[v", "[uprobes]", "/anon_hugepage")):
        return False
    return "w" in area.access or "x" not in area.access or is_anonymous(area)


def is_huge(area: Area) -> bool:
    """Is it private memory in huge pages? A frozen copy does not keep it: when the process writes
    to such a page and no other is free, the kernel takes the page from the copy (mm/hugetlb.c,
    unmap_ref_private)."""
    return area.name.startswith("/anon_hugepage") and is_own_memory(area)


def free_memory() -> int:
    """Bytes."""
    with open("/proc/meminfo") as file:
        (found,) = (line.split()[1] for line in file if line.startswith("MemAvailable:"))
    return int(found) << 10


faults: dict[int, int] = {}  # by process, the number of page faults at its last frozen copy


def since_last(pid: int, held: int) -> int:
    """About how many bytes of its memory a process has changed since its last frozen copy: the
    first write to a page after that is a page fault. held: the size of all its memory."""
    with open(f"/proc/{pid}/stat") as file:
        now = int(file.read().rpartition(")")[2].split()[7])
    before = faults.get(pid)
    faults.clear()
    faults[pid] = now
    return held if before is None else min((now - before) * PAGE, held)


class Picture:
    """The memory of one snapshot.

    shared: mappings to keep as well.
    same: mappings whose content must be the same when the snapshot is put back.
    most: bytes that may be copied.
    Raises GdbError.
    """

    def __init__(
        self,
        memory: Memory,
        tid: int,
        settled: UserRegisters,
        found: list[Area],
        shared: list[Area],
        same: list[Area],
        base: Mapping[int, bytes],
        most: int,
    ) -> None:
        self.why_not = ""
        self.frozen: Frozen | None = None
        self.areas: list[Area] = []
        copied = [each for each in found if is_own_memory(each)]
        try:
            self.frozen = make(memory, tid, settled, found)
        except (Gone, OSError) as error:
            self.why_not = str(error)
        else:
            every = [each for each in found if is_frozen_too(each)]
            copied = [*missing(memory, self.frozen, every), *filter(is_huge, found)]
            self.areas = [each for each in every if each not in copied]
        chosen = [*copied, *shared]
        self.check_bound(memory, [*chosen, *same], most)
        self.content, self.changed = read_content(memory, chosen, base)
        self.same, more = read_content(memory, same, base)
        self.changed += more
        if self.frozen is not None:
            self.changed += since_last(memory.pid, self.frozen.held_bytes())
            self.changed += self.frozen.table_bytes()

    def check_bound(self, memory: Memory, chosen: Iterable[Area], bound: int) -> None:
        size = 0
        for area in chosen:
            size += sum(end - start for start, end in memory.extents(area))
            if size > bound:
                said = f"copying its memory would take more than {bound >> 20} MiB"
                if self.why_not:
                    said += f", and a frozen copy cannot be made: {self.why_not}"
                raise gdb.GdbError(f"cannot be kept: {said}")

    @property
    def way(self) -> str:
        return "copied" if self.frozen is None else "frozen"

    @property
    def chunks(self) -> dict[int, bytes]:
        return self.same.chunks | self.content.chunks

    @property
    def held_bytes(self) -> int:
        """The size of its frozen copy."""
        return 0 if self.frozen is None else self.frozen.held_bytes()

    def thaw(self) -> None:
        """Copy the frozen copy's memory, so that it can end. Raises OSError."""
        if self.frozen is None:
            return
        own = [each for each in self.areas if is_own_memory(each)]
        with Memory(self.frozen.tid) as memory:
            found, size = read_content(memory, own, {})
        self.content.areas.extend(own)
        self.content.chunks.update(found.chunks)
        self.changed, self.areas, self.frozen = size, [], None

    @property
    def size(self) -> int:
        return self.held_bytes + sum(map(len, self.chunks.values()))

    def problem(self) -> str | None:
        """Why it cannot be put back, or None."""
        if self.frozen is not None and not self.frozen.is_there():
            return "its frozen copy was ended, as happens first when memory is short"
        return None

    def differs(self, memory: Memory, excepted: Sequence[Range]) -> bool:
        """Does the memory differ from this, outside of some ranges? The mappings are the same."""
        again, changed = read_content(memory, self.content.areas, self.content.chunks)
        if changed or again.chunks.keys() != self.content.chunks.keys():
            return True
        if self.frozen is None:
            return False
        with Memory(self.frozen.tid) as wanted:
            return contents_differ(memory, wanted, self.areas, excepted)

    def put_back_actions(
        self, signals: Iterable[int], memory: Memory, tid: int, now: list[Area]
    ) -> None:
        """Put back what the process does at these signals, if there is a frozen copy to ask. now:
        the mappings."""
        room = next((each.start for each in self.areas if is_own_memory(each)), None)
        if self.frozen is None or room is None:
            return
        instruction = syscall_instruction(memory, now)
        with Memory(self.frozen.tid) as copy:
            put_back_actions(signals, memory, tid, copy, room, instruction)

    def put_back(self, memory: Memory, tid: int, excepted: list[Range]) -> int:
        """Make the memory what it was, outside of some ranges; the mappings are the same. Returns
        how many bytes were written."""
        before = [(start, memory.read(start, end - start)) for start, end in excepted]
        written = write_content(memory, self.content, excepted)
        if self.frozen is not None:
            with Memory(self.frozen.tid) as wanted:
                found = difference(memory, wanted, self.areas)
                if found.zeros:
                    found.sure.extend(give_back(memory, tid, found.zeros))
                written += copy_pages(memory, wanted, found)
        for start, data in before:
            if memory.read(start, len(data)) != data:
                memory.write(start, data)
        return written

    def end(self) -> None:
        if self.frozen is not None:
            self.frozen.end()


def give_back(memory: Memory, tid: int, zeros: list[Range]) -> Iterator[Range]:
    """Make the process give pages back to the kernel; returns those that it could not give back
    (locked ones)."""
    instruction = syscall_instruction(memory, areas(memory.pid))
    with Injector(tid, instruction) as injector:
        for start, end in zeros:
            try:
                injector.call(MADVISE, start, end - start, DONT_NEED)
            except OSError:
                yield start, end


def missing(memory: Memory, frozen: Frozen, every: list[Area]) -> Iterator[Area]:
    """The mappings that a frozen copy lacks, or has without their content."""
    there = areas(frozen.tid)
    known = {(each.start, each.end) for each in there}
    wiped = None
    with Memory(frozen.tid) as copy:
        for area in every:
            if (area.start, area.end) not in known and not any(
                each.start <= area.start and area.end <= each.end for each in there
            ):
                yield area
            elif is_anonymous(area):
                found = own_pages_scanned(copy.pages, area, first=True)
                if found is None:  # before Linux 6.7
                    if wiped is None:
                        wiped = set(wiped_on_fork(memory.pid))
                    if area.start in wiped:
                        yield area
                elif not found and own_pages_scanned(memory.pages, area, first=True):
                    yield area


def wiped_on_fork(pid: int) -> Iterator[int]:
    """The addresses of mappings that are empty in a child."""
    with open(f"/proc/{pid}/smaps", errors="surrogateescape") as file:
        text = file.read()
    places = [int(found[1], 16) for found in PLACE.finditer(text)]
    for start, flags in zip(places, FLAGS.findall(text)):  # noqa: B905 - as many as there are
        if "wf" in flags.split():
            yield start
