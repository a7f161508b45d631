"""Facts about functions from their code: instructions, lines, and the places of their frames."""

from __future__ import annotations

import bisect
import os
import re

import gdb

from ..snapshot.memory import areas
from ..wire import NamedTuple
from .unwind import FrameTable, UnwindEntry, frame_rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..snapshot.memory import Memory
    from ..wire import StackLevel
    from .unwind import Rule

    Line = tuple[str, int]  # file, number
    Chain = tuple[tuple[int, int, str], ...]  # start, end, function


class Instruction(NamedTuple):
    """target: of a direct jump or call."""

    address: int
    size: int
    text: str
    target: int | None


TARGET = re.compile(r"^(?:bnd |notrack )*(j\w+|call\w*|loop\w*|xbegin)\s+(?:0x)?([0-9a-f]+)\b")


def entry_of(function: gdb.Symbol) -> int:
    """The start of a function's code."""
    address = function.value().address
    assert address is not None
    return int(address)


def disassembled(start: int, end: int) -> list[Instruction]:
    """Every instruction; target: of a direct jump or call."""
    architecture = (
        gdb.selected_inferior().architecture()
        if hasattr(gdb.Inferior, "architecture")
        else gdb.newest_frame().architecture()
    )
    found = []
    for each in architecture.disassemble(start, end - 1):
        text = each["asm"]
        jump = TARGET.match(text)
        target = int(jump[2], 16) if jump else None
        found.append(Instruction(each["addr"], each["length"], text, target))
    return found


class Code:
    """A function. pieces: [(start, end)], the first begins with its entry."""

    def __init__(self, book: Book, entry: int, pieces: list[tuple[int, int]]) -> None:
        self.book = book
        self.entry = entry
        self.pieces = pieces
        self.instructions = [i for start, end in pieces for i in disassembled(start, end)]

    def contains(self, pc: int) -> bool:
        return any(start <= pc < end for start, end in self.pieces)

    def landmarks(self) -> set[int]:
        """Its entry, and one address in each of its loops."""
        found = {self.entry}
        for each in self.instructions:
            text = each.text.split("#")[0]
            if "call" in text:
                continue
            if each.target is not None and each.target <= each.address:
                if self.contains(each.target):
                    found.add(each.target)
            elif "jmp" in text and each.target is None:
                found.add(each.address)
        return found

    def joints(self) -> set[int]:
        """Addresses that control may reach other than from the previous instruction."""
        return {i.target for i in self.instructions if i.target and "call" not in i.text}

    def comes_from_other_lines(self, pc: int) -> bool:
        """Does the code show that the instruction before this one, in the same call of the
        function, is of another line? Not where a call returns: it may do so more than once."""
        line, chain, found = self.book.line(pc), self.book.chain(pc), False
        for each in self.instructions:
            text = each.text.split("#")[0]
            call, jump = "call" in text, "jmp" in text
            if jump and each.target is None:
                return False  # it may lead anywhere
            next_to = each.address + each.size == pc
            if next_to and call:
                return False
            ends = jump or "ret" in text or "ud2" in text or "hlt" in text
            if (next_to and not ends) or (each.target == pc and not call):
                found = True
                if self.book.line(each.address) == line or self.book.chain(each.address) != chain:
                    return False
        return found

    def calls(self) -> set[int]:
        return {i.address for i in self.instructions if "call" in i.text.split("#")[0]}

    def after_calls(self) -> set[int]:
        return {i.address + i.size for i in self.instructions if "call" in i.text.split("#")[0]}

    def has_lines(self) -> bool:
        return self.book.line(self.entry) is not None

    def body(self) -> int:
        """The address where a step into this function stops: after the code that sets up its
        frame."""
        code = bytes(self.book.memory.read(self.entry, 12))
        if code[:4] == b"\xf3\x0f\x1e\xfa":
            code = code[4:]
        if code[:4] in (b"\x55\x48\x89\xe5",) or code[:4] == b"\x55\x48\x8b\xec":
            return self.book.range_end(self.entry)
        return self.entry

    def level(self, address: int, frame: int) -> StackLevel | None:
        """The level of a point at an address of the function, in the frame; None if unknown."""
        rule = self.book.rule(address)
        return None if rule is None else (*rule, frame)


class Book:
    """The known parts of the program's code; valid until a library is loaded or unloaded."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.areas = areas(memory.pid)
        self.tables: dict[int, FrameTable] = {}
        self.rules: dict[int, tuple[list[int], list[Rule | None]]] = {}
        self.codes: dict[int, Code] = {}
        self.targets: dict[int, int | None] = {}
        self.lines: dict[int, tuple[Line | None, int, int]] = {}
        self.statements: dict[str, set[int]] = {}
        self.chains: dict[int, Chain] = {}

    def module(self, pc: int) -> int | None:
        area = next((a for a in self.areas if a.start <= pc < a.end), None)
        if area is None:
            return None
        if area.name == "[vdso]":
            return area.start
        if not area.inode:
            return None
        same = (a for a in self.areas if a.name == area.name and a.offset == 0)
        return max((a.start for a in same if a.start <= pc), default=None)

    def table(self, pc: int) -> FrameTable | None:
        base = self.module(pc)
        if base is None:
            return None
        if base not in self.tables:
            self.tables[base] = FrameTable(self.memory, base)
        return self.tables[base]

    def unwind_entry(self, pc: int) -> UnwindEntry | None:
        table = self.table(pc)
        return table.find(pc) if table else None

    def rule(self, pc: int) -> Rule | None:
        entry = self.unwind_entry(pc)
        if entry is None:
            return None
        if entry[0] not in self.rules:
            self.rules[entry[0]] = frame_rules(entry)
        addresses, rules = self.rules[entry[0]]
        return rules[bisect.bisect_right(addresses, pc) - 1]

    def code(self, pc: int) -> Code | None:
        """The function at an address; None if nothing is known of it."""
        entry = self.unwind_entry(pc)
        if entry is None:
            return None
        start, end = entry[:2]
        function = self.function(pc)
        if function is not None:
            first = entry_of(function)
            if not start <= first < end:  # in its cold part
                home = self.unwind_entry(first)
                if home is not None:
                    start, end = home[:2]
        if start not in self.codes:
            self.codes[start] = self._code(start, end, function)
        return self.codes[start]

    def _code(self, start: int, end: int, function: gdb.Symbol | None) -> Code:
        pieces = [(start, end)]
        if function is not None:
            for each in disassembled(start, end):
                if each.target is None or start <= each.target < end or "call" in each.text:
                    continue
                other = self.unwind_entry(each.target)
                if other is None or self.function(each.target) != function:
                    continue
                if other[:2] not in pieces:
                    pieces.append(other[:2])
        return Code(self, start, pieces)

    def blocks(self, pc: int) -> list[gdb.Block]:
        """The blocks of functions around an address, the innermost first, up to the real function:
        the ones before it are inlined in it; one around it (Fortran's host) has code of its own."""
        found, proper = [], 0
        block = gdb.block_for_pc(pc)
        while block is not None:
            if block.function is not None:
                entry = entry_of(block.function)
                found.append((block, entry))
                # An inlined function has no unwind entry; but it may begin where the real one does.
                if self.begins(entry) and (not proper or entry == found[proper - 1][1]):
                    proper = len(found)
            block = block.superblock
        return [block for block, _ in found[: proper or None]]

    def begins(self, address: int) -> bool:
        """Does a function's code begin there?"""
        entry = self.unwind_entry(address)
        return entry is not None and entry[0] == address

    def function(self, pc: int) -> gdb.Symbol | None:
        """The symbol of the real function, not of one inlined in it."""
        blocks = self.blocks(pc)
        return blocks[-1].function if blocks else None

    def chain(self, pc: int) -> Chain:
        """The functions inlined at an address, outermost first."""
        if pc not in self.chains:
            inner = reversed(self.blocks(pc)[:-1])
            self.chains[pc] = tuple(
                (each.start, each.end, each.function.name) for each in inner if each.function
            )
        return self.chains[pc]

    def line(self, pc: int) -> Line | None:
        """File and line of an instruction; None if it has none."""
        return self._line(pc)[0]

    def _line(self, pc: int) -> tuple[Line | None, int, int]:
        if pc not in self.lines:
            where = gdb.find_pc_line(pc)
            if where.symtab is None or where.line == 0:
                self.lines[pc] = (None, 0, 0)
            else:
                name = where.symtab.filename
                self.lines[pc] = ((name, where.line), where.pc, where.last or where.pc)
        return self.lines[pc]

    def range_end(self, pc: int) -> int:
        return self._line(pc)[2] + 1

    def starts_line(self, pc: int) -> bool:
        """Does a line of the line table begin there, as a statement?"""
        line, start, _ = self._line(pc)
        return line is not None and start == pc and pc in self._statements(line[0])

    def _statements(self, name: str) -> set[int]:
        if name not in self.statements:
            pattern = re.escape(os.path.basename(name)) + "$"
            text = gdb.execute(f"maint info line-table {pattern}", to_string=True)
            # GDB 15 and later also show the address in the file.
            rows = re.findall(r"^\d+\s+\d+\s+0x(\w+)\s+(?:0x\w+\s+)?Y", text, re.M)
            self.statements[name] = {int(row, 16) for row in rows}
        return self.statements[name]

    def call_target(self, pc: int) -> int | None:
        """The target of a direct call; None for other instructions."""
        if pc not in self.targets:
            (each,) = disassembled(pc, pc + 1)
            self.targets[pc] = each.target
        return self.targets[pc]

    def leads_to_lines(self, target: int | None) -> bool:
        """May a call of this lead to a function with lines? None if unknown."""
        if target is None or self.line(target) is not None:
            return True
        # A stub of the dynamic linker's: [endbr64] [bnd] jmp *OFFSET(%rip).
        code = bytes(self.memory.read(target, 16))
        return b"\xff\x25" in code[:8]

    def line_starts(self, code: Code) -> set[int]:
        """Every address of a function at which a range of the line table begins."""
        found = set()
        for start, end in code.pieces:
            at = start
            while at < end:
                found.add(at)
                at = max(self.range_end(at), at + 1) if self.line(at) else end
        return found
