"""How much memory new processes can use: of the machine, and within this process's control groups.

A batch system or a container engine limits a group of processes to less than the machine has; who
counts on the machine's free memory there is killed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from crdebug.node.proc import PROC

GROUPS = Path("/sys/fs/cgroup")


def available() -> int:
    """Bytes that new processes can use without swapping: MemAvailable of proc(5), or less if a
    control group leaves less ("Control Group v2" of the kernel's documentation, memory.max; and
    "Memory Resource Controller" for version 1)."""
    fields = dict(line.split(":") for line in (PROC / "meminfo").read_text().splitlines())
    return min(int(fields["MemAvailable"].split()[0]) << 10, *_left())


def _left() -> Iterator[int]:
    """What the groups of this process leave, from the innermost on; the first is no limit."""
    yield 1 << 62
    with contextlib.suppress(OSError):
        for line in (PROC / "self" / "cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            inner = Path(path.lstrip("/"))
            if number == "0":
                top, names = GROUPS, ("memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):  # of version 1
                top = GROUPS / "memory"
                names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            else:
                continue
            for group in (inner, *inner.parents):
                with contextlib.suppress(OSError, ValueError):
                    yield _left_in(top / group, *names)


def _left_in(group: Path, limit: str, used: str, cached: str) -> int:
    """Raises OSError for the root of version 2, ValueError for a group without a limit ("max")."""
    told = (line.split() for line in (group / "memory.stat").read_text().splitlines())
    reclaimed = dict(told).get(cached, "0")  # as MemAvailable counts it
    limit, used = (group / limit).read_text(), (group / used).read_text()
    return max(int(limit) - int(used) + int(reclaimed), 0)
