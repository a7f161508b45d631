"""Find the system call that the kernel resumes by restart_syscall(2).

crdebug/native/shim/shim.c, original_call, does the same inside a rank.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .ptrace import UserRegisters
    from .snapshot.memory import Memory

RESTART_SYSCALL = 219
POLL, NANOSLEEP, FUTEX, CLOCK_NANOSLEEP = 7, 35, 202, 230
FURTHEST = 64  # the code loads a call's number within so many bytes before it
PAGE = 4096
LOWEST_POINTER = 65536


def loaded_call(code: bytes) -> int | None:
    """The last number of a resumable call that the code before a system call loads."""
    for at in range(len(code) - 5, -1, -1):
        load, number, *zeros = code[at : at + 5]
        if load == 0xB8 and not any(zeros) and number in (POLL, NANOSLEEP, FUTEX, CLOCK_NANOSLEEP):
            return number
    return None


def code_before(rip: int) -> tuple[int, int]:
    """The address and size of the code to read before a call that ends at `rip`: at most the part
    in the same page."""
    instruction = rip - 2
    room = min(instruction & (PAGE - 1), FURTHEST)
    return instruction - room, room


def original_call(memory: Memory, registers: UserRegisters) -> int:
    """The call that restart_syscall(2) resumes: by its code, else by its arguments."""
    found = loaded_call(memory.read(*code_before(registers.rip)))
    if found is not None:
        return found
    if registers.rdi < LOWEST_POINTER:
        return POLL if registers.rdx < LOWEST_POINTER else CLOCK_NANOSLEEP
    if registers.r10 >= LOWEST_POINTER and registers.rsi & ~(128 | 256) in (0, 9):
        return FUTEX
    return NANOSLEEP if registers.rsi == 0 or registers.rsi >= LOWEST_POINTER else POLL
