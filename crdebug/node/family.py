"""Which process started which. Host PIDs throughout."""

from __future__ import annotations

import psutil

from crdebug.node import proc


def descendants(pid: int) -> tuple[int, ...]:
    """The live processes below one, by age; empty if there is no such process."""
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return ()
    return tuple(each.pid for each in below if proc.is_alive(each.pid))


def ancestors(pid: int) -> tuple[int, ...]:
    """The processes above one, the nearest first."""
    try:
        return tuple(each.pid for each in psutil.Process(pid).parents())
    except psutil.NoSuchProcess:
        return ()
