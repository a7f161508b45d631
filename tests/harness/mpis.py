"""The MPIs that are here: Debian's two, and those of PyPI that scripts/setup --test has put
below $CRDEBUG_DATA/mpi, each with mpi4py in a virtual environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crdebug.config import data_home
from crdebug.node.probes import mpi_family

_COLUMNS = (
    *("C", "Fortran", "mpi4py", "launchers"),
    *("exact", "signals", "2 x 2", "faults", "attach"),
)
_NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Mpi:
    """name: with its version's first two numbers. origin: which package it is of.
    directory, suffix: where its tools are, and how their names end."""

    name: str
    origin: str
    directory: Path
    suffix: str

    def tool(self, name: str) -> str:
        return str(self.directory / f"{name}{self.suffix}")

    @property
    def python(self) -> Path:
        """That has mpi4py with this MPI, if it is there."""
        beside = self.directory / "python"
        return (
            data_home() / "mpi" / f"debian{self.suffix}" / "bin/python" if self.suffix else beside
        )

    @property
    def languages(self) -> tuple[str, ...]:
        has = {"C": self.tool("mpicc"), "Fortran": self.tool("mpifort"), "mpi4py": self.python}
        return tuple(each for each, path in has.items() if os.access(path, os.X_OK))

    def launch(self, ranks: int) -> list[str]:
        """The launcher with its options: as many ranks, on however few processors."""
        return [self.tool("mpirun"), *self.crowded, "-n", str(ranks)]

    @property
    def crowded(self) -> tuple[str, ...]:
        """Its options for more ranks than processors."""
        # No binding: Open MPI binds ranks to processors by default, and two jobs side by side, or
        # a rank's own threads, would share one processor while others are idle.
        return ("--map-by", ":OVERSUBSCRIBE", "--bind-to", "none") if "Open" in self.name else ()


def _installed() -> Iterator[Mpi]:
    for family in ("openmpi", "mpich"):
        beside = shutil.which(f"mpicc.{family}")
        if beside is not None:
            yield _told(f"Debian's {family}", Path(beside).parent, f".{family}")
    for family in ("openmpi", "mpich"):
        directory = data_home() / "mpi" / family / "bin"
        if (directory / "mpicc").exists():
            yield _told(f"PyPI's {family}", directory, "")


def _told(origin: str, directory: Path, suffix: str) -> Mpi:
    asked = [str(directory / f"mpirun{suffix}"), "--version"]
    ran = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
    family, version = mpi_family(ran.stdout + ran.stderr)
    return Mpi(f"{family} {'.'.join(version.split('.')[:2])}", origin, directory, suffix)


MPIS = tuple(_installed())

# ---- the one in use -----------------------------------------------------------------------------

_in_use: list[Mpi] = []


@contextmanager
def using(mpi: Mpi) -> Iterator[Mpi]:
    """Programs are built with this one and started by it, while the block runs."""
    _in_use.append(mpi)
    try:
        yield mpi
    finally:
        _in_use.pop()


def name() -> str:
    """Of the MPI in use."""
    return _in_use[-1].name


def tool(name: str) -> str:
    """Of the MPI in use: by default the machine's, by its usual name."""
    return _in_use[-1].tool(name) if _in_use else name


def launch(ranks: int | None) -> list[str]:
    """The launcher of the MPI in use, with its options; by default of Open MPI 4.1.

    ranks: if a test does not say, as many as two processors can run without long delays.
    """
    if _in_use:
        # Who waits for a message in MPICH does not let others have the processor meanwhile.
        return _in_use[-1].launch(ranks or (2 if "MPICH" in _in_use[-1].name else 4))
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks or 4)]


# ---- the page -----------------------------------------------------------------------------------

_outcomes: dict[tuple[str, str], set[str]] = {}  # by an MPI's name and a column

_PAGE = """\
# MPIs

<!-- Written by tests/criu/test_works_with.py (CRDEBUG_WRITE_DOCS=1) from what was tried. -->

What the tests of the tier `criu` have tried. `-` is not in the package.

| MPI | from | {columns} |
| --- | --- |{rule}
{rows}

- **C**, **Fortran**, **mpi4py**, as one session each: start, stop at a breakpoint, look, take a
  checkpoint, go to the sender of a message that was received from anybody, restart, go back by a
  line, run to the end, restart, and come to the same end again.
- **launchers**: `mpiexec` with a hostfile that names this machine and two programs (`:`), with a
  checkpoint and a restart; all others use `mpirun`.
- **exact**: after a checkpoint and a restart every thread is where it was, with the same registers
  and memory: at breakpoints and watchpoints, inside the MPI library, in blocking calls.
- **signals** that are yet to come when a checkpoint is taken come once.
- **2 x 2**: checkpoints with and without a debugger are restarted with and without one.
- **faults**: CRIU fails, is killed or hangs, the disk is full; a rank, a GDB and crdebug itself are
  killed in each phase of a checkpoint and of a restart.
- **attach**: a job that crdebug did not start is attached to by the PID of its launcher, of what is
  between, or of a rank, ten times, also in part, and is as before.

`make test` runs each test of exact, signals, 2 x 2 and faults with the first MPI of the table and
with one of the others, by turns; `make test PYTEST_OPTIONS=--every-mpi` runs all of them with all.
Open MPI 4.1 is what all other tests use, and they show much more.

`crdebug run` takes the MPI of the launcher that it is given, by its path or name
(`mpirun.mpich`), and compiles what records MPI calls with the `mpicc` beside it. `info launch`
shows what was set for the launcher in its environment, and why. What MPI 4 adds is
recorded where the MPI has it: posted exchanges (`MPI_Isendrecv`), persistent collectives, messages
of partitions, large counts. What ends the recording instead is in [limits.md](limits.md).

MPICH's launcher ends when a CRIU is killed whose code is in it (see [limits.md](limits.md)), and so
the job does; Open MPI's does not. When a rank dies, MPICH's launcher ends all others at once, and a
checkpoint that fails of it names all of them. mpi4py of PyPI does not find Debian's MPICH by its
name: `scripts/setup --test` makes a `libmpi.so.12` for it in its virtual environment.
"""


def note(mpi: Mpi, column: str, outcome: str) -> None:
    """A test of this column has "passed", "failed" or was "skipped" with this MPI."""
    _outcomes.setdefault((mpi.name, column), set()).add(outcome)


def page() -> str:
    """docs/mpis.md, by what was tried."""
    rows = (f"| {mpi.name} | {mpi.origin} | {' | '.join(_cells(mpi))} |" for mpi in MPIS)
    columns, rule = " | ".join(_COLUMNS), " --- |" * len(_COLUMNS)
    return _PAGE.format(columns=columns, rule=rule, rows="\n".join(rows))


def different(text: str) -> list[str] | None:
    """What the page says otherwise than what was tried, as lines to read; None if nothing was."""
    if not _outcomes:
        return None
    told = []
    for mpi in MPIS:
        (row,) = (line for line in text.splitlines() if line.startswith(f"| {mpi.name} |"))
        written = [cell.strip() for cell in row.split("|")[3:-1]]
        for column, tried, said in zip(_COLUMNS, _cells(mpi), written, strict=True):
            if tried not in (said, _NOT_TRIED):
                told.append(f"{mpi.name}, {column}: {tried}, and the page says '{said}'")
    return told


def _cells(mpi: Mpi) -> list[str]:
    def cell(column: str) -> str:
        outcomes = _outcomes.get((mpi.name, column), set())
        if not outcomes:
            return "-" if column == "Fortran" and column not in mpi.languages else _NOT_TRIED
        return "works" if outcomes == {"passed"} else "fails"

    return [cell(column) for column in _COLUMNS]
