"""-crdebug-python-leave: from a stop at a line of Python to where Python begins with that line.

A thread that is not in the function for such a stop stays where it is. That function is called only
while the line is wanted, so it is no place to which the rank could be brought back. The next one is
the beginning of the line's first instruction, to which CPython's loop jumps when the call for the
line has returned (Python/ceval.c, DISPATCH_GOTO). The thread goes there alone, step by step, with
no signal but faults.
"""

from __future__ import annotations

import re

import gdb

from .inject import LET_THROUGH
from .ptrace import WORD, ptrace, registers_of, set_signal_mask, signal_mask, wait
from .snapshot.kernel import PTRACE_SINGLESTEP
from .wire import PYTHON_FUNCTION, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire import Answer

MOST = 1_000_000  # instructions; there are some hundreds, more with conditions that come yet
LOOP = "_PyEval_EvalFrame"
JUMP = re.compile(rb"[\x3e\x40-\x4f]*\xff(.)", re.S)


def symbol(address: int) -> str:
    return gdb.execute(f"info symbol {address:#x}", to_string=True)


def is_jump(code: bytes) -> bool:
    """Does the instruction jump to where a register or memory says?"""
    found = JUMP.match(code)
    return found is not None and found[1][0] >> 3 & 7 == 4


def leave(tid: int) -> None:
    memory, low = gdb.selected_inferior(), registers_of(tid).rsp
    mask = signal_mask(tid)
    set_signal_mask(tid, WORD & ~sum(1 << (number - 1) for number in LET_THROUGH))
    try:
        for _ in range(MOST):
            now = registers_of(tid)
            there = bytes(memory.read_memory(now.rip, 4))
            begins = now.rsp > low and is_jump(there) and symbol(now.rip).startswith(LOOP)
            ptrace(PTRACE_SINGLESTEP, tid)
            wait(tid)
            if begins:
                return
        raise gdb.GdbError("it does not come to its line of Python")
    finally:
        set_signal_mask(tid, mask)
        gdb.execute("maint flush register-cache", to_string=True)


class Leave(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        thread = gdb.selected_thread()
        if symbol(registers_of(thread.ptid[1]).rip).startswith(PYTHON_FUNCTION):
            leave(thread.ptid[1])
        return {}


Leave(Command.PYTHON_LEAVE)
