"""The places of functions' frames, from a module's .eh_frame (DWARF)."""

from __future__ import annotations

import bisect
import struct

from ..wire import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..snapshot.memory import Memory

    Rule = tuple[int, int, int]  # base, offset, indirect: of a StackLevel

PT_LOAD, PT_GNU_EH_FRAME = 1, 0x6474E550


class UnwindEntry(NamedTuple):
    """The entry of a range of addresses. programs: the instructions that locate its frame."""

    start: int
    end: int
    programs: tuple[bytes, bytes]
    code_factor: int
    data_factor: int
    is_signal: bool


def leb(data: bytes, at: int, signed: bool = False) -> tuple[int, int]:
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
    """A module's .eh_frame: only the rules for the canonical frame address."""

    def __init__(self, memory: Memory, base: int) -> None:
        self.memory = memory
        self.starts: list[int] = []
        self.entries: list[int] = []
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

    def _read(self, at: int) -> None:
        version, _, count_form, form = self.memory.read(at, 4)
        if (version, count_form, form) != (1, 0x03, 0x3B):
            return
        (count,) = struct.unpack("<I", self.memory.read(at + 8, 4))
        rows = struct.unpack(f"<{2 * count}i", self.memory.read(at + 12, 8 * count))
        self.starts = [at + value for value in rows[::2]]
        self.entries = [at + value for value in rows[1::2]]

    def find(self, pc: int) -> UnwindEntry | None:
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
        is_signal = "S" in augmentation
        return UnwindEntry(start, start + size, programs, code_factor, data_factor, is_signal)


def frame_rules(entry: UnwindEntry) -> tuple[list[int], list[Rule | None]]:
    """The frame's place from each address on: (addresses, rules). A rule: (base, offset, indirect),
    None if this form cannot express it."""
    start, _, programs, code_factor, data_factor, _ = entry
    addresses: list[int] = [start]
    rules: list[Rule | None] = [None]
    stack: list[Rule | None] = []
    rule: Rule | None = None
    at = start

    def note() -> None:
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
                    rule = (base, offset * data_factor, 0)
                    note()
                elif op == 0x13:
                    offset, i = leb(code, i, True)
                    rule = (rule[0], offset * data_factor, 0) if rule else None
                    note()
                else:
                    _, i = leb(code, i)
                    _, i = leb(code, i, True)
            else:
                return addresses, [None] * len(addresses)
    return addresses, rules


def rule_of(expression: bytes) -> Rule | None:
    """DW_OP_bregN offset [DW_OP_deref], in functions that align their stack."""
    if expression and 0x70 <= expression[0] <= 0x7F:
        offset, i = leb(expression, 1, True)
        if expression[i:] == b"\x06":
            return (expression[0] - 0x70, offset, 1)
        if expression[i:] == b"":
            return (expression[0] - 0x70, offset, 0)
    return None
