"""Processes whose first thread has ended, while others live (pthread_exit(3) in main).

The kernel shows resources that the threads share, memory above all, only through a living thread:
/proc/PID, which is the first one's, is then empty (proc(5); fs/proc/base.c, get_task_mm).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_EXITING = 0x4  # PF_EXITING of the kernel's include/linux/sched.h


def _lives(pid: int, tid: str) -> bool:
    try:
        with open(f"/proc/{pid}/task/{tid}/stat", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX" and not int(fields[6]) & _EXITING


def living_thread(pid: int) -> int:
    """The process's first thread, or a living one if the first has ended and another lives."""
    try:
        tids = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return pid
    return next((int(tid) for tid in tids if _lives(pid, tid)), pid)


def leader_has_ended(pid: int) -> bool:
    """Has the first thread ended, while others live?"""
    return living_thread(pid) != pid


def shared(function: Callable[Concatenate[int, P], R]) -> Callable[Concatenate[int, P], R]:
    """Read something that a process's threads share: through the first one, or if that shows
    nothing, through a living one."""

    @functools.wraps(function)
    def by_living(pid: int, /, *arguments: P.args, **named: P.kwargs) -> R:
        try:
            found = function(pid, *arguments, **named)
            if found or (thread := living_thread(pid)) == pid:
                return found
        except OSError:
            if (thread := living_thread(pid)) == pid:
                raise
        return function(thread, *arguments, **named)

    return by_living
