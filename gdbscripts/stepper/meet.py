"""Find a stop again, from an earlier state that a replay has reached.

-crdebug-recall
    {state}: the state that identifies the selected thread's stop, as one word.
-crdebug-meet [--write ADDRESS=BYTES] ORIGIN STATE LIMIT...
    {place, pc, sp, exact}: go to the place where the thread was in that state, before it reaches
    one of the LIMITs (addresses). exact=0: no passage was the same in all registers and in the
    stack; we took the most similar one, but another one is as similar, or it is not similar enough.
    Library code may leave different values in registers and on the stack each time; the program's
    own values distinguish the passages of a loop.
    If the thread waited in the function at a LIMIT, it goes to the beginning of that function.
    If the thread was about to get a signal, it goes to the place before that: to the instruction
    that faults, or to the system call by which the thread sends itself the signal.
"""

from __future__ import annotations

import gdb

from ..ptrace import registers_of, threads
from ..snapshot.commands import OWN_STOPS, process
from ..snapshot.kernel import SYSCALL_INSTRUCTION, inner_number, stop_signal
from ..snapshot.memory import Memory
from ..wire import Command, Reach
from .commands import Walk
from .engine import COUNT, CRASHES, STOP, EndAhead, SignalAhead, WalkFailed, point_at, stack_level
from .search import Search

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..wire import Answer, Moves
    from .engine import Point

    State = tuple[list[int], bytes]  # registers, and the stack's end

SAVED = ("rip", "rsp", "rbp", "rbx", "r12", "r13", "r14", "r15")  # calls preserve them
NAMES = (*SAVED, "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11")
DEPTH = 2048  # bytes of stack
MOST = 20000  # passages to examine one by one


def state_of(tid: int, memory: Memory) -> State:
    now = registers_of(tid)
    values = [getattr(now, name) for name in NAMES]
    try:
        stack = memory.read(now.rsp, DEPTH)
    except OSError:
        stack = b""
    return values, stack


def likeness(one: State, other: State) -> tuple[int, int, int]:
    """How similar two states are: the equal registers that calls preserve (which count first), then
    the other equal registers and words of the stack, and the number compared."""
    (registers, stack), (wanted, expected) = one, other
    saved = sum(a == b for a, b in zip(registers[: len(SAVED)], wanted))  # noqa: B905
    others = list(zip(registers, wanted))[len(SAVED) :]  # noqa: B905
    size = min(len(stack), len(expected))
    words = [stack[at : at + 4] == expected[at : at + 4] for at in range(0, size, 4)]
    return saved, sum(a == b for a, b in others) + sum(words), len(others) + len(words)


class Recall(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        tid = gdb.selected_thread().ptid[1]
        with Memory(process()[0]) as memory:
            values, stack = state_of(tid, memory)
        number = stop_signal(tid).number
        signal = 0 if number in OWN_STOPS else number
        words = ",".join(f"{value:x}" for value in values)
        return {"state": f"{words}:{stack.hex()}:{signal}:{inner_number(tid)}"}


class Meet(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        walk = Walk(arguments)
        text, *limits = walk.rest
        registers, stack, signal, inner = text.split(":")
        for thread in threads():  # when the origin was kept, another one may have been selected
            if inner_number(thread.ptid[1]) == inner:
                thread.switch()
        with walk:
            wanted = ([int(value, 16) for value in registers.split(",")], bytes.fromhex(stack))
            stops = [point_at(int(limit, 16), STOP, 1) for limit in limits]
            meeting = Meeting(walk, wanted, int(signal), stops)
            try:
                moves, exact = meeting.find()
                walk.go(Search(walk.engine, walk.book, walk.origin), moves)
            except gdb.GdbError:
                walk.to_origin()
                raise
            return {**walk.told(moves), "exact": str(int(exact))}


class Meeting:
    """One search. signal: the one that the thread was about to get, or 0."""

    def __init__(self, walk: Walk, wanted: State, signal: int, stops: list[Point]) -> None:
        self.walk, self.wanted, self.signal, self.stops = walk, wanted, signal, stops
        self.pc, self.sp = wanted[0][:2]
        self.level = stack_level(self.sp)
        self.passed = 0  # how often the thread has reached the address
        self.signals = 0  # and how often the point before the signal

    def find(self) -> tuple[Moves, bool]:
        """The moves to the state, and whether the match is certain."""
        walk = self.walk
        walk.origin.put_back()
        if not self.signal and self.state() == self.wanted:
            return (), True
        walk.engine.limits = CRASHES
        if self.signal:
            walk.engine.limits |= 1 << (self.signal - 1)
        alike: list[tuple[tuple[int, int, int], int, Moves]] = []
        while self.passed < MOST:
            try:
                passage = self.next()
            except SignalAhead as ahead:
                # The handler of a crash often ends the process: run it only as a last resort.
                if any(each[0][0] == len(SAVED) for each in alike):
                    break
                if not walk.engine.give(ahead.number):
                    break
                continue
            except EndAhead:
                break
            if passage is None:
                break
            moves, now = passage
            if now == self.wanted:
                return moves, True
            found = likeness(now, self.wanted)
            if self.signal and found[0] == len(SAVED):
                return moves, True  # the same signal in the same frame
            alike.append((found, len(alike), moves))
            if self.signal and not walk.engine.give(self.signal):
                break
        if (held := self.held()) is not None:
            return held, True
        if not alike:
            raise WalkFailed("the thread did not reach this place again")
        alike.sort(reverse=True)
        (saved, common, of), _, best = alike[0]
        alone = len(alike) == 1 or alike[1][0] < alike[0][0]
        return best, alone and saved == len(SAVED) and common >= 0.9 * of

    def next(self) -> tuple[Moves, State] | None:
        """The moves to the next candidate state, and the state; None if there is none."""
        point = point_at(self.pc, STOP, 1, self.level)
        engine = self.walk.engine
        while True:
            try:
                if engine.run([point, *self.stops]) is not point:
                    return None
                self.passed += 1
                if not self.signal:
                    return (Reach(self.pc, self.level, self.passed),), self.state()
            except SignalAhead as ahead:
                self.signals += 1
                if ahead.number != self.signal:
                    raise
                now = self.state()
                if now[0][:2] == [self.pc, self.sp]:
                    return self.before_signal(), now
                if not engine.give(ahead.number):
                    raise

    def held(self) -> Moves | None:
        """The moves to the present limit, if the wanted place is inside the function that begins
        here. The thread only waits there, for its next MPI call: it is the same place for a user.
        """
        now = registers_of(self.walk.tid)
        if now.rip not in (stop.address for stop in self.stops) or now.rsp <= self.sp:
            return None
        caller = self.wanted[1][now.rsp - self.sp :][:8]
        if not caller or caller != self.walk.memory.read(now.rsp, len(caller)):
            return None
        return (Reach(now.rip, stack_level(now.rsp)),)

    def before_signal(self) -> Moves:
        """The moves to the point before the signal that the thread is about to get."""
        walk = self.walk
        told = stop_signal(walk.tid)
        if told.code > 0:  # the present instruction causes it
            return (Reach(self.pc, self.level, self.passed),) if self.passed else ()
        call = self.pc - len(SYSCALL_INSTRUCTION)
        if walk.memory.read(call, len(SYSCALL_INSTRUCTION)) != SYSCALL_INSTRUCTION:
            raise WalkFailed("the thread did not send itself the signal")
        walk.origin.put_back()
        counter = point_at(call, COUNT, 0, self.level)
        for _ in range(self.signals):
            try:
                walk.engine.run([counter])
            except SignalAhead as ahead:
                walk.engine.pending = ahead.number
        walk.engine.pending = 0
        return (Reach(call, self.level, counter.hits),) if counter.hits else ()

    def state(self) -> State:
        return state_of(self.walk.tid, self.walk.memory)


class CallFrame(gdb.MICommand):
    """-crdebug-call-frame LIBRARY: {frame} of the outermost function of a library on the selected
    thread's stack."""

    def invoke(self, arguments: list[str]) -> Answer:
        found = None
        frame: gdb.Frame | None = gdb.newest_frame()
        while frame is not None:
            older = frame.older()
            if older is not None and gdb.solib_name(frame.pc()) == arguments[0]:
                found = older.read_register("rsp")
            frame = older
        if found is None:
            raise gdb.GdbError(f"the thread is not in {arguments[0]}")
        return {"frame": f"{int(found):x}"}


CallFrame(Command.CALL_FRAME)
Recall(Command.RECALL)
Meet(Command.MEET)
