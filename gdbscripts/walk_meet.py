"""Finding a stop again, from an earlier state in which the process was brought by replay.

Sourced after walk_mi.py, into the same namespace.

-crdebug-recall
    {state}: what the selected thread's stop is recognised by, as one word.
-crdebug-meet [--write ADDRESS=BYTES] ORIGIN STATE LIMIT...
    {place, pc, sp, exact}: go to where the thread was in that state, before it comes to one of the
    LIMITs (addresses). exact=0: no passage was the same in all registers and in the stack; the
    most similar one was taken, and another one is as similar, or it is not similar enough.
    Library code may leave other remains in registers and on the stack each time; the program's
    own values tell the passages of a loop from each other.
"""

import gdb
from __main__ import (
    STOP,
    Memory,
    Reverse,
    Walk,
    point_at,
    process,
    reach,
    registers_of,
    stack_level,
)

SAVED = ("rip", "rsp", "rbp", "rbx", "r12", "r13", "r14", "r15")  # over calls
NAMES = (*SAVED, "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11")
DEPTH = 2048  # bytes of stack
MOST = 20000  # passages that are looked at one by one


def state_of(tid, memory):
    now = registers_of(tid)
    values = [getattr(now, name) for name in NAMES]
    try:
        stack = memory.read(now.rsp, DEPTH)
    except OSError:
        stack = b""
    return values, stack


def likeness(one, other):
    """How much two states have in common: registers that last over calls (the more of these, the
    more alike), then the other registers and words of the stack, and of how many."""
    (registers, stack), (wanted, expected) = one, other
    saved = sum(a == b for a, b in zip(registers[: len(SAVED)], wanted))  # noqa: B905
    others = list(zip(registers, wanted))[len(SAVED) :]  # noqa: B905
    size = min(len(stack), len(expected))
    words = [stack[at : at + 4] == expected[at : at + 4] for at in range(0, size, 4)]
    return saved, sum(a == b for a, b in others) + sum(words), len(others) + len(words)


class Recall(gdb.MICommand):
    def invoke(self, arguments):
        with Memory(process()[0]) as memory:
            values, stack = state_of(gdb.selected_thread().ptid[1], memory)
        return {"state": ",".join(f"{value:x}" for value in values) + ":" + stack.hex()}


class Meet(gdb.MICommand):
    def invoke(self, arguments):
        with Walk(arguments) as walk:
            text, *limits = walk.rest
            registers, _, stack = text.partition(":")
            wanted = ([int(value, 16) for value in registers.split(",")], bytes.fromhex(stack))
            pc, level = wanted[0][0], stack_level(wanted[0][1])
            stops = [point_at(int(limit, 16), STOP, 1) for limit in limits]
            count, exact = self.find(walk, wanted, pc, level, stops)
            moves = (reach(pc, level, count),) if count else ()
            search = Reverse(walk.engine, walk.book, walk.origin, None, [])
            walk.go(search, moves)
            return {**walk.told(moves), "exact": str(int(exact))}

    def find(self, walk, wanted, pc, level, stops):
        """Which passage of its address it was, 0 if it is the origin itself, and whether that is
        beyond doubt."""
        walk.origin.put_back()
        if state_of(walk.tid, walk.memory) == wanted:
            return 0, True
        alike, count = [], 0
        while count < MOST:
            point = point_at(pc, STOP, 1, level)
            if walk.engine.run([point, *stops]) is not point:
                break
            count += 1
            now = state_of(walk.tid, walk.memory)
            if now == wanted:
                return count, True
            alike.append((likeness(now, wanted), count))
        if not alike:
            raise gdb.GdbError("the thread did not come to this place again")
        alike.sort(reverse=True)
        (saved, common, of), best = alike[0]
        alone = len(alike) == 1 or alike[1][0] < alike[0][0]
        return best, alone and saved == len(SAVED) and common >= 0.9 * of


class CallFrame(gdb.MICommand):
    """-crdebug-call-frame LIBRARY: {frame} of the outermost function of a library that the selected
    thread is in."""

    def invoke(self, arguments):
        frame, found = gdb.newest_frame(), None
        while frame is not None:
            older = frame.older()
            if older is not None and gdb.solib_name(frame.pc()) == arguments[0]:
                found = older.read_register("rsp")
            frame = older
        if found is None:
            raise gdb.GdbError(f"the thread is not in {arguments[0]}")
        return {"frame": f"{int(found):x}"}


CallFrame("-crdebug-call-frame")
Recall("-crdebug-recall")
Meet("-crdebug-meet")
