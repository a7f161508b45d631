"""A full single-step trace, and what each reverse command should answer, from the trace alone.

Sourced into a GDB after crdebug's scripts; uses nothing of the stepper's but what it says of code
(lines, expanded functions), and the snapshots.

-test-trace ORIGIN END
    Put the snapshot ORIGIN back, and step until the address END; every instruction is recorded.
-test-check ORIGIN KIND FIRST LAST STEP
    Stand at every STEP-th instruction from FIRST on, before LAST, go back, compare. STEP 0: where
    another function has just begun or returned, and one instruction and some later.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence

import gdb

# mypy knows the package by its name outside of GDB.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from crdebug.gdbscripts.ptrace import (
        REGISTERS,
        SIGSTOP,
        UserRegisters,
        ptrace,
        registers_of,
        set_registers,
        tids,
        wait,
    )
    from crdebug.gdbscripts.snapshot.commands import find, flush, process
    from crdebug.gdbscripts.snapshot.kernel import rseq_ranges
    from crdebug.gdbscripts.snapshot.memory import PAGE, ZERO_PAGE, Memory, areas
    from crdebug.gdbscripts.snapshot.picture import is_own_memory
    from crdebug.gdbscripts.stepper.code import Book, Chain
    from crdebug.gdbscripts.stepper.commands import Walk
    from crdebug.gdbscripts.stepper.levels import levels_of
    from crdebug.gdbscripts.wire import Answer

    Range = tuple[int, int]  # of addresses
    Checksum = tuple[int, tuple[int, ...]]  # of memory; and registers
    Wanted = int | str | None  # an index; an error; before the origin
else:
    from crdebug_gdb.ptrace import (
        REGISTERS,
        SIGSTOP,
        ptrace,
        registers_of,
        set_registers,
        tids,
        wait,
    )
    from crdebug_gdb.snapshot.commands import find, flush, process
    from crdebug_gdb.snapshot.kernel import rseq_ranges
    from crdebug_gdb.snapshot.memory import PAGE, ZERO_PAGE, Memory, areas
    from crdebug_gdb.snapshot.picture import is_own_memory
    from crdebug_gdb.stepper.code import Book
    from crdebug_gdb.stepper.commands import Walk
    from crdebug_gdb.stepper.levels import levels_of

SINGLESTEP = 9
NO_CALLER = "the outermost function has no caller"
UNCOUNTED = ("r11", "orig_rax", "eflags")
traced: Reference  # the last trace


class Step:
    def __init__(self, registers: UserRegisters, checksum: Checksum, frame: Activation) -> None:
        self.pc, self.sp = registers.rip, registers.rsp
        self.checksum = checksum
        self.frame = frame
        self.pending = False


class Activation:
    def __init__(
        self,
        parent: Activation | None,
        frame: int,
        origin_call: int | None = None,
        is_signal: bool = False,
    ) -> None:
        self.parent = parent
        self.frame = frame  # gone as soon as the stack pointer is this
        self.origin_call = origin_call  # the address after the call that it was in at the origin
        self.is_signal = is_signal
        self.frame_of_signal: Range | None = (
            None  # in it flags and extended registers differ from run to run
        )
        self.there = False  # at the origin
        self.pcs: list[int] = []

    def interrupts(self, sp: int) -> None:
        """It is a handler, and begins here; the red zone is of what it interrupts."""
        self.is_signal, self.frame_of_signal = True, (sp, self.frame - 128)

    def signal_frames(self) -> list[Range]:
        return [each.frame_of_signal for each in self.above() if each.frame_of_signal]

    def above(self) -> list[Activation]:
        found: list[Activation] = []
        each: Activation | None = self
        while each is not None:
            found.append(each)
            each = each.parent
        return found


def checksum(memory: Memory, registers: UserRegisters, excepted: Sequence[Range]) -> Checksum:
    total = 0
    for area in areas(memory.pid):
        if is_own_memory(area):
            data = bytearray(memory.read(area.start, area.end - area.start))
            if area.start <= registers.rsp < area.end:  # nothing past the stack's end counts
                size = max(registers.rsp - 128 - area.start, 0)
                data[:size] = bytes(size)
            for low, high in excepted:
                if area.start <= low < area.end:
                    data[low - area.start : high - area.start] = bytes(high - low)
            # The stack's mapping grows, by zeros, and stays.
            for at in range(0, len(data), PAGE):
                page = data[at : at + PAGE]
                if page != ZERO_PAGE:
                    total = zlib.crc32(page, zlib.crc32(b"%x" % (area.start + at), total))
    names = (name for name in REGISTERS.split() if name not in UNCOUNTED)
    return total, tuple(getattr(registers, name) for name in names)


def single(tid: int) -> int:
    """Take one step; returns the signal that it delivered."""
    give = 0
    while True:
        ptrace(SINGLESTEP, tid, give or None)
        status = wait(tid)
        if status & 0xFF == 5:
            now = registers_of(tid)
            if now.rcx == now.rip and now.r11 & 0x100:  # a system call saves the trap flag there
                now.r11 &= ~0x100
                set_registers(tid, now)
            return give
        give = status & 0xFF
        if give == SIGSTOP:
            give = 0


def put_back(name: str) -> None:
    snapshot = find(name)
    problems, now = snapshot.problems()
    assert not problems, problems
    snapshot.put_back(now)


def record(name: str, end: int) -> tuple[list[Step], Book]:
    put_back(name)
    flush()
    pid, _ = process()
    tid = selected()
    steps: list[Step] = []
    excepted = list(rseq_ranges(tids()))
    memory = Memory(pid)  # the book goes on reading from it
    book = Book(memory)
    outer: Activation | None = None
    rows = levels_of(book)
    for row in reversed(rows):
        outer = Activation(outer, row.frame, row.pc if row is not rows[0] else None, row.is_signal)
        outer.there = True
    assert outer is not None
    activation = outer
    while True:
        now = registers_of(tid)
        while activation.parent is not None and now.rsp >= activation.frame:
            activation = activation.parent
        left_out = [*excepted, *activation.signal_frames()]
        steps.append(Step(now, checksum(memory, now, left_out), activation))
        activation.pcs.append(now.rip)
        if now.rip == end:
            return steps, book
        code = memory.read(now.rip, 4)
        calls = code[0] == 0xE8 or (code[0] == 0xFF and code[1] >> 3 & 7 == 2)
        calls = calls or (code[0] & 0xF0 == 0x40 and code[1] == 0xFF and code[2] >> 3 & 7 == 2)
        signal = single(tid)
        then = registers_of(tid)
        if signal:
            steps[-1].pending = True
            activation = Activation(activation, now.rsp)
            activation.interrupts(then.rsp)
        elif calls:
            activation = Activation(activation, now.rsp)


class Reference:
    """What the commands should answer, as indices; None: before the origin. Or an error."""

    def __init__(self, steps: list[Step], book: Book) -> None:
        self.steps = steps
        self.book = book
        self.expanded = 0  # functions at the present stop, in the innermost frame

    def has_lines(self, activation: Activation) -> bool:
        if activation.there:
            return any(self.book.line(pc) for pc in activation.pcs)
        return any(self.book.line(pc) for pc in activation.pcs[:6])

    def stepi(self, x: int) -> Wanted:
        return self.standing(x - 1)

    def standing(self, index: int | None) -> int | None:
        """A place where a signal is about to be delivered cannot be reached."""
        if index is not None and index >= 0 and self.steps[index].pending:
            frame = self.steps[index].frame
            index -= 1
            while self.steps[index].frame is not frame:
                index -= 1
        return index if index is not None and index >= 0 else None

    def nexti(self, x: int) -> Wanted:
        allowed = set(self.steps[x].frame.above())
        for i in range(x - 1, -1, -1):
            if self.steps[i].frame in allowed:
                return self.standing(i)
        return None

    def finish(self, x: int) -> Wanted:
        frame = self.steps[x].frame
        chain = self.book.chain(self.steps[x].pc)
        shown = chain[: self.expanded]
        while shown:
            found = None
            for i in range(x - 1, -1, -1):
                if self.steps[i].frame is frame:
                    if self.book.chain(self.steps[i].pc)[: len(shown)] != shown:
                        break
                    found = i
            else:
                call = frame.origin_call
                if call is not None and self.book.chain(call - 1)[: len(shown)] == shown:
                    return None  # that began earlier
            if found is not None:
                return found
            shown = shown[:-1]
        above = set(frame.above()[1:])
        if not above:
            return NO_CALLER
        for i in range(x - 1, -1, -1):
            if self.steps[i].frame in above:
                return self.standing(i)
        return None

    def step(self, x: int) -> Wanted:
        above = set(self.steps[x].frame.above())

        def entered(frame: Activation) -> bool:
            while frame not in above:
                if frame.is_signal or not self.has_lines(frame):
                    return False
                assert frame.parent is not None
                frame = frame.parent
            return self.has_lines(frame)

        for i in range(x - 1, -1, -1):
            if entered(self.steps[i].frame) and self.begins(i, None):
                return i
        return None

    def next(self, x: int) -> Wanted:
        frame = self.steps[x].frame
        chain = self.book.chain(self.steps[x].pc)[: self.expanded]
        for i in range(x - 1, -1, -1):
            each = self.steps[i]
            if each.frame not in frame.above():
                continue
            if each.frame is not frame:
                frame = each.frame
                chain = self.book.chain(each.pc)
            here = self.book.chain(each.pc)
            if here != chain[: len(here)]:
                continue
            chain = here
            if self.has_lines(each.frame) and self.begins(i, here):
                return i
        return None

    def begins(self, i: int, chain: Chain | None) -> bool:
        each = self.steps[i]
        line = self.book.line(each.pc)
        if not self.book.starts_line(each.pc):
            return False
        code = self.book.code(each.pc)
        assert code is not None  # it has lines
        if code.entry <= each.pc < code.body():
            return False
        for k in range(i - 1, -1, -1):
            if self.steps[k].frame is each.frame:
                here = self.book.chain(self.steps[k].pc)
                if chain is None or here == chain[: len(here)]:
                    before = self.steps[k].pc
                    return self.book.line(before) != line or code.entry <= before < code.body()
        if not each.frame.there:
            return True
        call = each.frame.origin_call
        return call is not None and self.book.line(call - 1) != line


def selected() -> int:
    """The TID of the selected thread."""
    thread = gdb.selected_thread()
    assert thread is not None
    return thread.ptid[1]


def stand_at(name: str, index: int) -> None:
    put_back(name)
    tid = selected()
    for _ in range(index):
        single(tid)
    flush()


class Trace(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        global traced
        name, end = arguments
        steps, book = record(name, int(gdb.parse_and_eval(end)))
        traced = Reference(steps, book)
        lines = {book.line(each.pc) for each in steps}
        frames = {id(each.frame) for each in steps}
        return {"steps": str(len(steps)), "lines": str(len(lines)), "frames": str(len(frames))}


def expanded() -> int:
    frame: gdb.Frame | None
    frame, count = gdb.newest_frame(), 0
    while frame is not None and frame.type() == gdb.INLINE_FRAME:
        frame, count = frame.older(), count + 1
    return count


def where(index: Wanted) -> str:
    if index is None or isinstance(index, str):
        return index or "before the origin"
    each = traced.steps[index]
    line = traced.book.line(each.pc)
    function = traced.book.function(each.pc)
    name = f"{os.path.basename(line[0])}:{line[1]}" if line else "-"
    return f"#{index} {each.pc:#x} sp {each.sp:#x} {name} {function}"


def is_early(x: int) -> bool:
    steps = traced.steps
    return any(steps[i].frame is not steps[i - 1].frame for i in (x, x - 1, x - 4) if i > 0)


class Check(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        name, kind, first, last, step, *options = arguments
        steps, moved, befores = traced.steps, 0, 0
        wrong: list[str] = []
        every = range(int(first), min(int(last), len(steps)), int(step) or 1)
        for x in every if int(step) else [x for x in every if is_early(x)]:
            if steps[x].pending:
                continue
            try:
                stand_at(name, x)
            except FileNotFoundError:
                wrong.append("the process has ended")
                break
            traced.expanded = expanded()
            wanted: Wanted = getattr(traced, kind)(x)
            try:
                with Walk([*options, name, kind]) as walk:
                    told = walk.reverse(kind)
                    excepted = [*rseq_ranges(tids())]
                    if isinstance(wanted, int):
                        excepted += steps[wanted].frame.signal_frames()
                    now = registers_of(walk.tid)
                    reached = checksum(walk.memory, now, excepted)
            except gdb.GdbError as error:
                if str(error) == wanted:
                    moved += 1
                    continue
                wrong.append(f"{kind} at {where(x)}: {error}, not {where(wanted)}")
                continue
            stands = x if "before" in told else wanted
            if ("before" in told) != (wanted is None) or not isinstance(stands, int):
                wrong.append(f"{kind} at {where(x)}: {told}, not {where(wanted)}")
            elif steps[stands].checksum != reached:
                same = [where(i) for i, s in enumerate(steps) if s.checksum == reached][:3]
                line = traced.book.line(now.rip)
                wrong.append(
                    f"{kind} at {where(x)}: {now.rip:#x} {line} {same}, not {where(wanted)}"
                )
            else:
                moved += 1
                befores += "before" in told
        return {"right": str(moved), "before": str(befores), "wrong": wrong}


Trace("-test-trace")
Check("-test-check")
