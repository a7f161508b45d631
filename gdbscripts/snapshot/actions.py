"""What a process does at signals (sigaction(2)), put back from a frozen copy, which does the same
as the process did.

The kernel tells nobody else where a handler is; so both are made to ask. Only signals that either
of them catches, or one of them ignores, are asked for.
"""

from __future__ import annotations

from .kernel import Injector, fields_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .memory import Memory

RT_SIGACTION = 13
SIZE = 32  # struct sigaction as the kernel has it: handler, flags, restorer, mask


def sets(tid: int) -> tuple[int, int]:
    """The signals that are ignored, and those that are caught, a bit for each."""
    fields = fields_of(f"/proc/{tid}/status")
    return int(fields["SigIgn"], 16), int(fields["SigCgt"], 16)


def of_interest(now: int, then: int) -> Iterator[int]:
    """The numbers of signals at which two processes may do different things."""
    (ignored, caught), (ignored_then, caught_then) = sets(now), sets(then)
    bits = (ignored ^ ignored_then) | caught | caught_then
    for number in range(1, 65):
        if bits >> (number - 1) & 1:
            yield number


def ask(injector: Injector, memory: Memory, room: int, number: int) -> bytes:
    injector.call(RT_SIGACTION, number, 0, room, 8)
    return memory.read(room, SIZE)


def put_back_actions(memory: Memory, tid: int, copy: Memory, room: int, instruction: int) -> None:
    """Have the process do at signals what its frozen copy would.

    room: an address of memory of the process's own, in both.  instruction: see Injector. Raises
    OSError.
    """
    numbers = list(of_interest(tid, copy.pid))
    before = memory.read(room, SIZE), copy.read(room, SIZE)
    try:
        with Injector(tid, instruction) as ours, Injector(copy.pid, instruction) as theirs:
            for number in numbers:
                wanted = ask(theirs, copy, room, number)
                if ask(ours, memory, room, number) != wanted:
                    memory.write(room, wanted)
                    ours.call(RT_SIGACTION, number, room, 0, 8)
    finally:
        memory.write(room, before[0])
        copy.write(room, before[1])
