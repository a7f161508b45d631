"""Trees of processes. Host PIDs throughout."""

from __future__ import annotations

import psutil

from crdebug.node import proc


def descendants(pid: int) -> tuple[int, ...]:
    """The live descendants of a process, by age; empty if there is no such process."""
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return ()
    return tuple(each.pid for each in below if proc.is_alive(each.pid))


def ancestors(pid: int) -> tuple[int, ...]:
    """The ancestors of a process, the nearest first."""
    try:
        return tuple(each.pid for each in psutil.Process(pid).parents())
    except psutil.NoSuchProcess:
        return ()


def of_job(root: int) -> tuple[int, ...]:
    """Every live process of a job, given the first: it and its descendants, for it adopts orphans
    (PR_SET_CHILD_SUBREAPER of prctl(2)) if it is our starter. Raises ProcessLookupError."""
    return (root, *descendants(root))
