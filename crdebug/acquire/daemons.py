"""The daemons that a launcher without a process table has started on other hosts.

MPICH's launcher (hydra) is stripped by Debian, and then has no MPIR symbols. It starts a proxy on
each host by a remote shell, whose command line names the host; the proxy's own says whose it is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from dataclasses import dataclass

from crdebug.acquire.mpir import is_here
from crdebug.node import owners, proc, process_tree

_PROXY = "hydra_pmi_proxy"
_OWNER = "--control-port"  # HOST:PORT at which the launcher listens


@dataclass(frozen=True, slots=True)
class Daemon:
    """host: as the launcher's remote shell has it, perhaps USER@HOST.
    owner: words in the daemon's command line that no other job's have."""

    host: str
    owner: tuple[str, ...]


def daemons_of(launcher: int) -> tuple[Daemon, ...]:
    """Those on other hosts, by what the launcher's remote shells were started with."""
    found = []
    for pid in process_tree.descendants(launcher):
        daemon = _of_shell(_command_line(pid))
        if daemon is not None and not is_here(daemon.host.rpartition("@")[2]):
            found.append(daemon)
    return tuple(found)


def daemons_here(owner: tuple[str, ...], users: Collection[int]) -> tuple[int, ...]:
    """This host's daemons with such a command line, of these users; one, unless it has ended."""
    found = []
    for pid in proc.pids():
        if _is_proxy((line := _command_line(pid))[:1]) and _contains(line, owner):
            with contextlib.suppress(OSError):
                if owners.users_of(pid) <= set(users):
                    found.append(pid)
    return tuple(found)


def _of_shell(line: tuple[str, ...]) -> Daemon | None:
    """From ``ssh -x HOST "/usr/bin/hydra_pmi_proxy" --control-port HOST:PORT ...``."""
    for at, word in enumerate(line):
        if at >= 2 and _is_proxy((word,)) and not line[at - 1].startswith("-"):
            if _OWNER not in line[:-1]:
                return None
            owner = line.index(_OWNER)
            return Daemon(line[at - 1], line[owner : owner + 2])
    return None


def _is_proxy(words: tuple[str, ...]) -> bool:
    return any(os.path.basename(word.strip('"')) == _PROXY for word in words)


def _contains(line: tuple[str, ...], words: tuple[str, ...]) -> bool:
    return any(line[at : at + len(words)] == words for at in range(len(line)))


def _command_line(pid: int) -> tuple[str, ...]:
    try:
        return proc.command_line(pid)
    except OSError:
        return ()
