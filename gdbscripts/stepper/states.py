"""The start of reverse execution, and the state that it has to find again."""

from __future__ import annotations

import contextlib

import gdb

from ..ptrace import extended_state, ptrace, registers_of, tids, wait
from ..rank_state import held_signal, is_caught
from ..snapshot.commands import Snapshot, find, flush, process
from ..snapshot.kernel import PTRACE_SINGLESTEP, fields_of, leave_call, rseq_ranges, stop_signal
from ..snapshot.memory import Memory, areas, read_content
from ..snapshot.picture import is_own_memory
from .engine import HasEnded, WalkFailed
from .levels import levels_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes

    from ..ptrace import UserRegisters
    from ..wire import Moves
    from .code import Book
    from .levels import Level

GENERAL = ("rip", "rsp", "rbp", "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r12")
MOST_NEAR = 6


class Walking:
    """library: the stepper's. origin: the owner of the states in `near`. landed: the last command's
    target, and the registers there."""

    library: ctypes.CDLL | None = None
    origin: tuple[Snapshot, list[tuple[int, bytes]]] | None = None
    landed: tuple[Moves, tuple[int, ...]] | None = None


walking = Walking()
near: dict[Moves, Snapshot] = {}  # states on ways from the origin


class Origin:
    """A snapshot to walk from."""

    def __init__(self, name: str, writes: list[tuple[int, bytes]]) -> None:
        self.snapshot = find(name)
        if walking.origin != (self.snapshot, writes):
            near.clear()
            walking.origin = (self.snapshot, writes)
        self.writes = writes
        self.known: list[Level] = []

    def put_back_near(self, moves: Moves) -> int:
        """Restore the nearest state on the way; returns how many of the moves that saves."""
        for count in range(len(moves), 0, -1):
            snapshot = near.get(moves[:count])
            if snapshot is not None:
                self.restore(snapshot)
                return count
        self.put_back()
        return 0

    def keep_near(self, moves: Moves) -> None:
        """Keep the present state, to which these moves lead."""
        flush()
        near.pop(moves, None)
        with contextlib.suppress(gdb.GdbError):
            near[moves] = Snapshot([])
        while len(near) > MOST_NEAR:
            del near[next(iter(near))]

    def restore(self, snapshot: Snapshot) -> None:
        if fields_of(f"/proc/{process()[0]}/status")["State"][0] in "ZX":
            raise HasEnded
        problems, now = snapshot.problems()
        if problems:
            raise WalkFailed("cannot be put back: " + "; ".join(problems))
        thread = gdb.selected_thread()  # when it was kept, another one may have been selected
        snapshot.put_back(now)
        thread.switch()

    def put_back(self) -> None:
        self.restore(self.snapshot)
        if self.writes:
            with Memory(process()[0]) as memory:
                for address, data in self.writes:
                    memory.write(address, data)

    def levels(self) -> list[Level]:
        return self.known

    def learn(self, book: Book) -> None:
        """Call this right after restoring the origin."""
        flush()
        self.known = levels_of(book)


def take_signal(tid: int) -> bool:
    """If a process sent the signal that a thread is about to get, take the thread to its handler.
    Returns whether it did."""
    told = stop_signal(tid)
    if told.code > 0 or not held_signal(tid) or not is_caught(tid, told.number):
        return False
    gdb.execute("queue-signal 0", to_string=True)
    ptrace(PTRACE_SINGLESTEP, tid, told.number)
    wait(tid)
    return True


class Here:
    """The state of the thread, and of all memory, at the present stop."""

    def __init__(self, tid: int) -> None:
        self.tid = tid
        pid, _ = process()
        # At a catchpoint: no walk ends in the middle of a call, or before a signal.
        leave_call(tid, make=True)
        self.signalled = take_signal(tid)
        flush()
        self.registers = registers_of(tid)
        self.xstate = extended_state(tid)
        self.areas = [each for each in areas(pid) if is_own_memory(each)]
        self.excepted = [*rseq_ranges(tids()), *self.dead_stack()]
        self.snapshot: Snapshot | None = None  # not at a signal that is about to be delivered
        with contextlib.suppress(gdb.GdbError):
            self.snapshot = Snapshot([])
        self.content = None
        if self.snapshot is None or self.snapshot.picture.frozen is None:
            with Memory(pid) as memory:
                self.content, _ = read_content(memory, self.areas, {})

    def dead_stack(self) -> list[tuple[int, int]]:
        """The memory beyond the end of the stack, red zone included, is unused: it holds remains of
        signal frames, for example, with a layout of the processor's choice."""
        sp = self.registers.rsp
        return [(area.start, sp - 128) for area in self.areas if area.start <= sp < area.end]

    @property
    def pc(self) -> int:
        return self.registers.rip

    def same(self, memory: Memory) -> bool:
        """Is the state of thread and memory this one again? (The registers have been compared.)"""
        if extended_state(self.tid) != self.xstate:
            return False
        if self.content is None:
            assert self.snapshot is not None
            return not self.snapshot.picture.differs(memory, self.excepted)
        now, changed = read_content(memory, self.areas, self.content.chunks)
        if not changed and now.chunks.keys() == self.content.chunks.keys():
            return True
        for start in now.chunks.keys() | self.content.chunks.keys():
            one, other = now.chunks.get(start), self.content.chunks.get(start)
            if one is other:
                continue
            size = len(one or other or b"")
            if self.blanked(start, one or bytes(size)) != self.blanked(start, other or bytes(size)):
                return False
        return True

    def blanked(self, start: int, data: bytes) -> bytearray:
        """A piece of memory without the parts that do not count."""
        found = bytearray(data)
        for low, high in self.excepted:
            low, high = max(low - start, 0), min(high - start, len(found))
            if low < high:
                found[low:high] = bytes(high - low)
        return found


def general(registers: UserRegisters) -> tuple[int, ...]:
    """The registers that distinguish a thread's stops."""
    return tuple(getattr(registers, name) for name in GENERAL)
