"""Ask a program a question: run it to its end, with a time limit, and read its output.

For short questions only (probes, compilers' versions). Other modules of crdebug.node start programs
that run for longer, or with a Deadline of the caller.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crdebug.base.settings import data_home

# No probe takes a second on an idle machine; this only keeps a hanging program from hanging us.
PATIENCE = 60.0

# criu is here; a login shell's PATH may lack it.
SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


@dataclass(frozen=True, slots=True)
class Ran:
    """A program's end. status: None if it could not be started, or did not end in time."""

    status: int | None
    out: str
    err: str

    @property
    def ok(self) -> bool:
        return self.status == 0


def run(argv: Sequence[str], *, cwd: str | None = None) -> Ran:
    """Run a program to its end, with no input and untranslated messages."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            env={**os.environ, "LC_ALL": "C"},
            cwd=cwd,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ran(None, "", f"no answer within {PATIENCE:g} s")
    except OSError as error:
        return Ran(None, "", error.strerror or str(error))
    return Ran(done.returncode, done.stdout, done.stderr)


def first_line(text: str) -> str:
    """The first line with a word in it; Open MPI begins its messages with a row of dashes."""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if any(map(str.isalnum, line))), "")


def find_program(name: str) -> str | None:
    """The absolute path of a program in PATH or the system's sbin directories."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *SBIN])
    found = shutil.which(name, path=path)
    return str(Path(found).absolute()) if found else None


def gdb_program(chosen: str) -> str:
    """The GDB to start: the one in PATH, else the one that `crdebug setup` installed."""
    private = data_home() / "gdb" / "bin" / "gdb"
    if chosen == "gdb" and find_program(chosen) is None and private.exists():
        return str(private)
    return chosen


def not_found(name: str) -> str:
    return f"no program '{name}' in PATH"
