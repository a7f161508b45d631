"""Which numbers of processes and pseudo-terminals are taken: a restart without a container needs
the old ones."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable

from crdebug.node.proc import PROC, status


def is_number_taken(number: int) -> bool:
    """Does a process, thread, process group or session have this number?"""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        try:
            os.killpg(number, 0)
        except (ProcessLookupError, PermissionError):
            return False
    except PermissionError:
        return True
    return True


def is_number_kept(number: int) -> bool:
    """Is it the number of a zombie, or of a group with only zombies left?"""
    if not is_number_taken(number):
        return False
    try:
        return status(number)["State"][:1] in "ZX"
    except ProcessLookupError:
        return True


def terminals(pids: Iterable[int]) -> tuple[int, ...]:
    """The numbers of the pseudo-terminals whose masters these processes have open (pts(4);
    "tty-index" of proc(5), fdinfo)."""
    found: set[int] = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for name in os.listdir(PROC / str(pid) / "fd"):
                with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                    if os.readlink(PROC / str(pid) / "fd" / name).endswith("/ptmx"):
                        told = (PROC / str(pid) / "fdinfo" / name).read_text()
                        found.update(map(int, re.findall(r"^tty-index:\s*(\d+)", told, re.M)))
    return tuple(sorted(found))


def is_terminal_taken(number: int) -> bool:
    return os.path.exists(f"/dev/pts/{number}")
