"""Pseudo-terminals that a test has to itself: their numbers are taken by nobody else."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def own_terminals() -> Iterator[None]:
    """Whoever opens one while the block runs gets it from an instance of devpts of its own
    (filesystems/devpts.rst of the kernel), in this process's mount namespace."""
    with ExitStack() as stack:

        def mount(at: str, *arguments: str) -> None:
            subprocess.run(["mount", *arguments, at], check=True)
            stack.callback(subprocess.run, ["umount", "--lazy", at], check=True)

        mount("/dev/pts", "-t", "devpts", "-o", "ptmxmode=666,mode=620,gid=5", "devpts")
        if not Path("/dev/ptmx").is_symlink():
            mount("/dev/ptmx", "--bind", "/dev/pts/ptmx")
        yield
