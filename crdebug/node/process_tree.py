"""Which process started which. Host PIDs throughout."""

from __future__ import annotations

import contextlib
from collections import defaultdict

from crdebug.node import proc


def descendants(pid: int) -> tuple[int, ...]:
    """The live processes below one, by age; empty if there is no such process."""
    below = defaultdict(list)
    for each in proc.pids():
        with contextlib.suppress(OSError):
            below[proc.parent(each)].append(each)
    found = list(below[pid])
    for each in found:  # which grows meanwhile
        found += below[each]
    ages = {}
    for each in found:
        with contextlib.suppress(ProcessLookupError):
            ages[each] = proc.started(each), each
    return tuple(each for each in sorted(ages, key=ages.__getitem__) if proc.is_alive(each))


def ancestors(pid: int) -> tuple[int, ...]:
    """The processes above one, the nearest first."""
    found = []
    with contextlib.suppress(ProcessLookupError):
        while pid := proc.parent(pid):
            found.append(pid)
    return tuple(found)


def of_job(root: int) -> tuple[int, ...]:
    """Every live process of a job, by its first: all of its container if it is PID 1 of one, else
    it and what is below it. Raises ProcessLookupError."""
    if proc.inner_pid(root) == 1:
        return proc.processes_in_namespace_of(root)
    return (root, *descendants(root))
