"""What the code says of a function: its instructions, lines, and where its frame is."""

import bisect
import os
import re
import struct
from collections import namedtuple

import gdb

from ..snapshot.memory import areas

FP = 6
PT_LOAD, PT_GNU_EH_FRAME = 1, 0x6474E550


def leb(data, at, signed=False):
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if signed and byte & 0x40:
        result -= 1 << shift
    return result, at


class FrameTable:
    """A module's .eh_frame, as far as it says where the canonical frame address is."""

    def __init__(self, memory, base):
        self.memory = memory
        self.starts, self.entries = [], []
        header = memory.read(base, 64)
        if header[:4] != b"\x7fELF":
            return
        kind, phoff, size, count = (
            *struct.unpack_from("<H", header, 16),
            *struct.unpack_from("<Q", header, 32),
            *struct.unpack_from("<HH", header, 54),
        )
        table = None
        low = None
        for i in range(count):
            each = memory.read(base + phoff + i * size, size)
            (what,) = struct.unpack_from("<I", each)
            (address,) = struct.unpack_from("<Q", each, 16)
            if what == PT_LOAD and low is None:
                low = address & ~0xFFF
            if what == PT_GNU_EH_FRAME:
                table = address
        if table is None:
            return
        self._read(table + base - (low if kind == 2 else 0))

    def _read(self, at):
        version, _, count_form, form = self.memory.read(at, 4)
        if (version, count_form, form) != (1, 0x03, 0x3B):
            return
        (count,) = struct.unpack("<I", self.memory.read(at + 8, 4))
        rows = struct.unpack(f"<{2 * count}i", self.memory.read(at + 12, 8 * count))
        self.starts = [at + value for value in rows[::2]]
        self.entries = [at + value for value in rows[1::2]]

    def find(self, pc):
        """The entry (FDE) for an address: start, end, and the instructions for its frame."""
        i = bisect.bisect_right(self.starts, pc) - 1
        if i < 0:
            return None
        at = self.entries[i]
        (length, pointer) = struct.unpack("<II", self.memory.read(at, 8))
        data = self.memory.read(at + 8, length - 4)
        start = self.starts[i]
        (size,) = struct.unpack_from("<I", data, 4)
        if not start <= pc < start + size:
            return None
        common = at + 4 - pointer
        (length,) = struct.unpack("<I", self.memory.read(common, 4))
        head = self.memory.read(common + 8, length - 4)
        end = head.index(0, 1)
        augmentation = head[1:end].decode("ascii", "replace")
        code_factor, i = leb(head, end + 1)
        data_factor, i = leb(head, i, True)
        _, i = leb(head, i)
        if augmentation.startswith("z"):
            extra, i = leb(head, i)
            i += extra
        body = 8
        if augmentation.startswith("z"):
            extra, body = leb(data, body)
            body += extra
        programs = (head[i:], data[body:])
        return start, start + size, programs, code_factor, data_factor, "S" in augmentation


def frame_rules(entry):
    """Where the frame is, from each address on: (addresses, rules). A rule: (base, offset,
    indirect), None if it cannot be said like this."""
    start, _, programs, code_factor, _, _ = entry
    addresses, rules = [start], [None]
    rule, stack, at = None, [], start

    def note():
        if addresses[-1] == at:
            rules[-1] = rule
        else:
            addresses.append(at)
            rules.append(rule)

    for code in programs:
        i = 0
        while i < len(code):
            op = code[i]
            i += 1
            high, low = op & 0xC0, op & 0x3F
            if high == 0x40:
                at += low * code_factor
            elif high == 0x80:
                _, i = leb(code, i)
            elif high == 0xC0 or op == 0x00:
                pass
            elif op == 0x01:
                i += 8
            elif op in (0x02, 0x03, 0x04):
                size = 1 << (op - 2)
                at += int.from_bytes(code[i : i + size], "little") * code_factor
                i += size
            elif op in (0x05, 0x09, 0x14):
                _, i = leb(code, i)
                _, i = leb(code, i)
            elif op in (0x06, 0x07, 0x08, 0x2E):
                _, i = leb(code, i)
            elif op == 0x0A:
                stack.append(rule)
            elif op == 0x0B:
                rule = stack.pop() if stack else None
                note()
            elif op == 0x0C:
                base, i = leb(code, i)
                offset, i = leb(code, i)
                rule = (base, offset, 0)
                note()
            elif op == 0x0D:
                base, i = leb(code, i)
                rule = (base, rule[1], 0) if rule else None
                note()
            elif op == 0x0E:
                offset, i = leb(code, i)
                rule = (rule[0], offset, 0) if rule else None
                note()
            elif op == 0x0F:
                size, i = leb(code, i)
                rule = rule_of(code[i : i + size])
                i += size
                note()
            elif op in (0x10, 0x16):
                _, i = leb(code, i)
                size, i = leb(code, i)
                i += size
            elif op in (0x11, 0x12, 0x13, 0x15):
                # The kinds with a signed factored offset: 0x12 and 0x13 define the frame.
                if op == 0x12:
                    base, i = leb(code, i)
                    offset, i = leb(code, i, True)
                    rule = (base, offset * entry[4], 0)
                    note()
                elif op == 0x13:
                    offset, i = leb(code, i, True)
                    rule = (rule[0], offset * entry[4], 0) if rule else None
                    note()
                else:
                    _, i = leb(code, i)
                    _, i = leb(code, i, True)
            else:
                return addresses, [None] * len(addresses)
    return addresses, rules


def rule_of(expression):
    """DW_OP_bregN offset [DW_OP_deref]: of functions that align their stack."""
    if expression and 0x70 <= expression[0] <= 0x7F:
        offset, i = leb(expression, 1, True)
        if expression[i:] == b"\x06":
            return (expression[0] - 0x70, offset, 1)
        if expression[i:] == b"":
            return (expression[0] - 0x70, offset, 0)
    return None


Instruction = namedtuple("Instruction", "address size text target")
TARGET = re.compile(r"^(?:bnd |notrack )*(j\w+|call\w*|loop\w*|xbegin)\s+(?:0x)?([0-9a-f]+)\b")


def disassembled(start, end):
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

    def __init__(self, book, entry, pieces):
        self.book = book
        self.entry = entry
        self.pieces = pieces
        self.instructions = [i for start, end in pieces for i in disassembled(start, end)]

    def contains(self, pc):
        return any(start <= pc < end for start, end in self.pieces)

    def landmarks(self):
        """Its entry, and addresses one of which is in each of its loops."""
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

    def joints(self):
        """Where control may come to other than from the instruction before."""
        return {i.target for i in self.instructions if i.target and "call" not in i.text}

    def calls(self):
        return {i.address for i in self.instructions if "call" in i.text.split("#")[0]}

    def after_calls(self):
        return {i.address + i.size for i in self.instructions if "call" in i.text.split("#")[0]}

    def has_lines(self):
        return self.book.line(self.entry) is not None

    def body(self):
        """Where a step into this function stops: behind what sets up its frame."""
        code = bytes(self.book.memory.read(self.entry, 12))
        if code[:4] == b"\xf3\x0f\x1e\xfa":
            code = code[4:]
        if code[:4] in (b"\x55\x48\x89\xe5",) or code[:4] == b"\x55\x48\x8b\xec":
            return self.book.range_end(self.entry)
        return self.entry

    def level(self, address, frame):
        """The level of a point at an address of the function, in the frame; None: not known."""
        rule = self.book.rule(address)
        return None if rule is None else (*rule, frame)


class Book:
    """All that is known of the program's code; valid while no library comes or goes."""

    def __init__(self, memory):
        self.memory = memory
        self.areas = areas(memory.pid)
        self.tables, self.rules, self.codes, self.targets = {}, {}, {}, {}
        self.lines, self.statements, self.chains = {}, {}, {}

    def module(self, pc):
        area = next((a for a in self.areas if a.start <= pc < a.end), None)
        if area is None:
            return None
        if area.name == "[vdso]":
            return area.start
        if not area.inode:
            return None
        same = (a for a in self.areas if a.name == area.name and a.offset == 0)
        return max((a.start for a in same if a.start <= pc), default=None)

    def table(self, pc):
        base = self.module(pc)
        if base is None:
            return None
        if base not in self.tables:
            self.tables[base] = FrameTable(self.memory, base)
        return self.tables[base]

    def unwind_entry(self, pc):
        table = self.table(pc)
        return table.find(pc) if table else None

    def rule(self, pc):
        entry = self.unwind_entry(pc)
        if entry is None:
            return None
        if entry[0] not in self.rules:
            self.rules[entry[0]] = frame_rules(entry)
        addresses, rules = self.rules[entry[0]]
        return rules[bisect.bisect_right(addresses, pc) - 1]

    def code(self, pc):
        """The function at an address; None if nothing is known of it."""
        entry = self.unwind_entry(pc)
        if entry is None:
            return None
        start, end = entry[:2]
        function = self.function(pc)
        if function is not None:
            first = int(function.value().address)
            if not start <= first < end:  # in its cold part
                home = self.unwind_entry(first)
                if home is not None:
                    start, end = home[:2]
        if start not in self.codes:
            self.codes[start] = self._code(start, end, function)
        return self.codes[start]

    def _code(self, start, end, function):
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

    def blocks(self, pc):
        """The blocks of functions around an address, the innermost first, to the function proper:
        those before are expanded in it; one around it (Fortran's host) has code of its own."""
        found, proper = [], 0
        block = gdb.block_for_pc(pc)
        while block is not None:
            if block.function is not None:
                entry = int(block.function.value().address)
                found.append((block, entry))
                # What is expanded has no unwind entry; but it may begin where the function does.
                if self.begins(entry) and (not proper or entry == found[proper - 1][1]):
                    proper = len(found)
            block = block.superblock
        return [block for block, _ in found[: proper or None]]

    def begins(self, address):
        """Does a function's code begin there?"""
        entry = self.unwind_entry(address)
        return entry is not None and entry[0] == address

    def function(self, pc):
        """The symbol of the function proper, not of one expanded in it."""
        blocks = self.blocks(pc)
        return blocks[-1].function if blocks else None

    def chain(self, pc):
        """The functions that are expanded at an address, outermost first."""
        if pc not in self.chains:
            inner = reversed(self.blocks(pc)[:-1])
            self.chains[pc] = tuple((each.start, each.end, each.function.name) for each in inner)
        return self.chains[pc]

    def line(self, pc):
        """File and line of an instruction; None if it has none."""
        return self._line(pc)[0]

    def _line(self, pc):
        if pc not in self.lines:
            where = gdb.find_pc_line(pc)
            if where.symtab is None or where.line == 0:
                self.lines[pc] = (None, 0, 0)
            else:
                name = where.symtab.filename
                self.lines[pc] = ((name, where.line), where.pc, where.last or where.pc)
        return self.lines[pc]

    def range_end(self, pc):
        return self._line(pc)[2] + 1

    def starts_line(self, pc):
        """Does a line of the line table begin there, as a statement?"""
        line, start, _ = self._line(pc)
        return line is not None and start == pc and pc in self._statements(line[0])

    def _statements(self, name):
        if name not in self.statements:
            pattern = re.escape(os.path.basename(name)) + "$"
            text = gdb.execute(f"maint info line-table {pattern}", to_string=True)
            # GDB 15 and later show an address as it is in the file besides.
            rows = re.findall(r"^\d+\s+\d+\s+0x(\w+)\s+(?:0x\w+\s+)?Y", text, re.M)
            self.statements[name] = {int(row, 16) for row in rows}
        return self.statements[name]

    def call_target(self, pc):
        """Where a direct call leads; None if it is none."""
        if pc not in self.targets:
            (each,) = disassembled(pc, pc + 1)
            self.targets[pc] = each.target
        return self.targets[pc]

    def leads_to_lines(self, target):
        """May a call of this lead to a function that has lines? None: who knows."""
        if target is None or self.line(target) is not None:
            return True
        # A stub of the dynamic linker's: [endbr64] [bnd] jmp *OFFSET(%rip).
        code = bytes(self.memory.read(target, 16))
        return b"\xff\x25" in code[:8]

    def line_starts(self, code):
        """Every address of a function where a range of the line table begins."""
        found = set()
        for start, end in code.pieces:
            at = start
            while at < end:
                found.add(at)
                at = max(self.range_end(at), at + 1) if self.line(at) else end
        return found
