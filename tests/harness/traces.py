"""A stretch of a rank's history, traced line by line; and the right destination of each way back.

The trace is made by `step` in the past, where everything happens as it did. A place of it has the
rank's clock, its stack, and the values of the program's own globals, byte for byte. (MPI's own
memory differs from visit to visit, see docs/timeline.md.)
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from crdebug.session import Session
from harness.procstate import maps
from harness.travel import Place, place


@dataclass(frozen=True, slots=True)
class Variable:
    """A global of the program. offset: from where the program is loaded."""

    name: str
    offset: int
    size: int


def variables(program: Path, but: Collection[str] = ()) -> tuple[Variable, ...]:
    """Everything that the program itself defines and may write.

    but: variables whose values depend on MPI or on time.
    """
    with program.open("rb") as file:
        elf = ELFFile(file)
        writable = {
            number
            for number, section in enumerate(elf.iter_sections())
            if section.name in (".data", ".bss")
        }
        table = elf.get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        return tuple(
            Variable(symbol.name, symbol["st_value"], symbol["st_size"])
            for symbol in table.iter_symbols()
            if symbol["st_info"]["type"] == "STT_OBJECT"
            and symbol["st_shndx"] in writable
            and symbol["st_size"]
            and symbol.name not in but
            and "@" not in symbol.name
        )


@dataclass(frozen=True, slots=True)
class Spot:
    """One place.

    memory: the value of each variable.
    unset: locals, by depth of their frame, that may not be set yet: their bytes on the stack may be
        MPI's.
    """

    place: Place
    memory: Mapping[str, bytes]
    unset: frozenset[tuple[int, str]] = frozenset()

    @property
    def depth(self) -> int:
        """Of the stack, 1 in main."""
        return len(self.place.frames)

    @property
    def line(self) -> tuple[str, int]:
        return self.place.frames[0][0], self.place.frames[0][2]

    def locals(self) -> dict[tuple[int, str], str]:
        """By depth of the frame and name."""
        return {
            (self.depth - level, name): value
            for level, frame in enumerate(self.place.frames)
            for name, value in frame[3]
        }

    def _without(self, other: Place) -> Place:
        depth = len(other.frames)
        frames = tuple(
            (*frame[:3], tuple(v for v in frame[3] if (depth - level, v[0]) not in self.unset))
            for level, frame in enumerate(other.frames)
        )
        return replace(other, frames=frames)

    def differences(self, after: Spot, focus: int) -> list[str]:
        told = list(self._without(self.place).differences(self._without(after.place)))
        if self.place.cut[focus] != after.place.cut[focus]:
            told.append(f"clock {self.place.cut[focus]} became {after.place.cut[focus]}")
        for name, held in self.memory.items():
            if held != after.memory[name]:
                told.append(f"{name}: {held[:32].hex()} became {after.memory[name][:32].hex()}")
        return told


@dataclass(frozen=True, slots=True)
class Watcher:
    """Looks at one rank.

    open: local variables without a fixed value, see harness.travel.place.
    """

    job: Session
    focus: int
    program: Path
    variables: Sequence[Variable]
    open: Sequence[str]

    async def look(self) -> Spot:
        pid = self.job.group[self.focus].pid
        assert pid is not None
        own = os.path.realpath(self.program)
        base = min(line.span.start for line in maps(pid) if os.path.realpath(line.name) == own)
        memory = {}
        file = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            for each in self.variables:
                memory[each.name] = os.pread(file, each.size, base + each.offset)
        finally:
            os.close(file)
        return Spot(await place(self.job, self.focus, but=self.open), memory)


def with_unset(trace: Sequence[Spot]) -> list[Spot]:
    """The same, and which locals are as they were when their frame came, or they came into it."""
    told: list[Spot] = []
    first: dict[tuple[int, str], str] = {}
    unset: set[tuple[int, str]] = set()
    before: Spot | None = None
    for spot in trace:
        now = spot.locals()
        kept = min(spot.depth, before.depth) if before is not None else 0
        first = {key: value for key, value in first.items() if key in now and key[0] <= kept}
        new = now.keys() - first.keys() if before is not None else set()
        unset = {key for key in unset if key in first and now[key] == first[key]} | new
        first = {key: first.get(key, value) for key, value in now.items()}
        told.append(replace(spot, unset=frozenset(unset)))
        before = spot
    return told


def begins_line(trace: Sequence[Spot], spot: Spot) -> bool:
    """Is this, which comes after the trace, the beginning of a line? `step` stops too in the second
    half of one, where a function that it calls has returned: in `{ f(); }`, at the end."""
    before = next((each for each in reversed(trace) if each.depth <= spot.depth), None)
    return before is None or (before.depth, before.line) != (spot.depth, spot.line)


def before_line(trace: Sequence[Spot], at: int) -> int | None:
    """Where reverse-next leads from the place of that number: over calls, and out to the caller."""
    depth = trace[at].depth
    return next((n for n in reversed(range(at)) if trace[n].depth <= depth), None)


def call_of(trace: Sequence[Spot], at: int) -> int | None:
    """The place of the line that called the rank's current function."""
    depth = trace[at].depth
    return next((n for n in reversed(range(at)) if trace[n].depth < depth), None)


def entry_before(trace: Sequence[Spot], at: int, function: str) -> int | None:
    """Where reverse-continue stops with a breakpoint on a function: its last entry before."""
    for number in reversed(range(1, at)):
        entered = trace[number].depth > trace[number - 1].depth
        if trace[number].line[0] == function and entered:
            return number
    return None
