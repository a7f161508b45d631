"""The registers of a process's threads as a debugger shows them, and their differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Registers = Mapping[int, Mapping[str, str]]

# The syscall instruction itself overwrites these two (AMD64 manual, volume 3, SYSCALL).
CLOBBERED_BY_SYSCALL = frozenset({"rcx", "r11"})


def in_system_call(registers: Mapping[str, str]) -> bool:
    """Whether a stopped thread is in a system call: orig_rax is its number, else -1."""
    value = int(registers.get("orig_rax", "-1"), 0)
    return 0 <= value < 1 << 63


def register_differences(
    before: Registers, after: Registers, *, ignored: Iterable[str] = ()
) -> tuple[str, ...]:
    """What differs, as lines to read: by thread, its registers' values as a debugger prints them.

    rcx and r11 of a thread that was in a system call may differ, and those in `ignored`.
    """
    told = []
    for thread in sorted(before.keys() | after.keys()):
        old, new = before.get(thread), after.get(thread)
        if old is None or new is None:
            told.append(f"thread {thread} is {'new' if old is None else 'gone'}")
            continue
        excepted = set(ignored)
        if in_system_call(old):
            excepted |= CLOBBERED_BY_SYSCALL
        for name in (*old, *(name for name in new if name not in old)):
            if name not in excepted and old.get(name) != new.get(name):
                was, now = (values.get(name, "not there") for values in (old, new))
                told.append(f"thread {thread}: {name} was {was}, is {now}")
    return tuple(told)
