"""crdebug on the hosts of a cluster (harness/hosts.py), and what it leaves there."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pexpect

from crdebug.node import proc
from harness.hosts import Cluster, Host


def crdebug(*words: object) -> list[object]:
    """Its command line, for `Host.run` and the others."""
    return [sys.executable, "-m", "crdebug", *words]


@contextlib.contextmanager
def console(host: Host, words: Sequence[object], ranks: str) -> Iterator[pexpect.spawn[str]]:
    """crdebug's console there, once it has said that it has the job with these ranks (a regular
    expression)."""
    with spawned(host, words) as at:
        at.expect(f"job .*: ranks {ranks}\r\n")
        yield at


def spawned(
    host: Host, words: Sequence[object], *, timeout: int = 60, **variables: str
) -> pexpect.spawn[str]:
    """A program there, at a terminal. variables: besides the host's."""
    command, *arguments = host.argv(words)
    return pexpect.spawn(
        command,
        arguments,
        env={**host.environment, "TERM": "dumb", "NO_COLOR": "1", **variables},
        timeout=timeout,
        encoding="utf-8",
        dimensions=(50, 200),
    )


def agents(host: Host) -> list[int]:
    """crdebug's processes there that have debuggers of another one's."""
    found = []
    for pid in host.pids():
        with contextlib.suppress(OSError):
            found += [pid] if "crdebug.hosts" in proc.command_line(pid) else []
    return found


def leavings(cluster: Cluster) -> list[Path]:
    """Scratch directories of jobs, as each host sees them."""
    return [
        path
        for host in cluster.hosts
        for place in ("dev/shm", "tmp")
        for path in (proc.root(host.first) / place).glob("crdebug-*")
        if re.fullmatch("crdebug-[0-9a-f]{16}", path.name)
    ]
