"""What a process does at signals (sigaction(2)), put back from a frozen copy, which does the same
as the process did.

The kernel tells nobody else where a handler is; so both are made to ask. Only signals that either
of them catches, or one of them ignores, are asked for.
"""

from __future__ import annotations

from .kernel import Injector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .kernel import SignalSets
    from .memory import Memory

RT_SIGACTION = 13
SIZE = 32  # struct sigaction as the kernel has it: handler, flags, restorer, mask


def of_interest(now: SignalSets, then: SignalSets) -> Iterator[int]:
    """The numbers of signals at which something else may be done now."""
    bits = (now.ignored ^ then.ignored) | now.caught | then.caught
    for number in range(1, 65):
        if bits >> (number - 1) & 1:
            yield number


def ask(injector: Injector, memory: Memory, room: int, number: int) -> bytes:
    injector.call(RT_SIGACTION, number, 0, room, 8)
    return memory.read(room, SIZE)


def put_back_actions(
    numbers: Iterable[int], memory: Memory, tid: int, copy: Memory, room: int, instruction: int
) -> None:
    """Have the process do at these signals what its frozen copy would.

    room: an address of memory of the process's own, in both.
    instruction: see Injector.

    Raises OSError.
    """
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
