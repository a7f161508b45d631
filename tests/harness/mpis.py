"""The MPIs that are here: Debian's two, and those of PyPI that scripts/setup --test has put
below $CRDEBUG_DATA/mpi, each with mpi4py in a virtual environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from crdebug.config import data_home
from crdebug.node.probes import mpi_family

LANGUAGES = ("C", "Fortran", "mpi4py")
CHECKS = ("exact", "2 x 2", "faults", "attach")


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
        """That has mpi4py with this MPI."""
        return self.directory / "python"

    @property
    def languages(self) -> tuple[str, ...]:
        has = {"C": "mpicc", "Fortran": "mpifort"}
        found = [each for each, tool in has.items() if os.access(self.tool(tool), os.X_OK)]
        return (*found, *(("mpi4py",) if not self.suffix else ()))

    def launch(self, ranks: int) -> list[str]:
        """The launcher with its options: as many ranks, on however few processors."""
        more = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"] if "Open" in self.name else []
        return [self.tool("mpirun"), *more, "-n", str(ranks)]


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

_PAGE = """\
# MPIs

<!-- Written by tests/criu/test_every_mpi.py (CRDEBUG_WRITE_DOCS=1) from what it tried. -->

Tried by a test, as one session each: start, stop at a breakpoint, look, take a checkpoint, go to
the sender of a message that was received from anybody, restart, go back by a line, run to the end,
restart, and come to the same end again. `-` is not in the package.

| MPI | from | C | Fortran | mpi4py | exact | 2 x 2 | faults | attach |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

The last four, in C: after a checkpoint and a restart every thread is where it was, with the same
registers and memory, at a breakpoint, inside the MPI library and in blocking calls; checkpoints
with and without a debugger are restarted with and without one; CRIU fails at the dump and at the
restore, and a rank, a GDB and crdebug itself are killed on the way; a job that crdebug did not
start is attached to, left, and attached to again. Of Open MPI 4.1 all other tests show much more.

`crdebug run` takes the MPI of the launcher that it is given, by its path or name
(`mpirun.mpich`), and compiles what records MPI calls with the `mpicc` beside it. `info launch`
shows what was set for the launcher in its environment, and why. What MPI 4 adds is
recorded where the MPI has it: posted exchanges (`MPI_Isendrecv`), persistent collectives, messages
of partitions, large counts. What ends the recording instead is in [limits.md](limits.md).
"""


def page(works: Mapping[str, Set[str]]) -> str:
    """docs/mpis.md. works: by an MPI's name, CHECKS, and the languages that came to the end."""

    def cell(mpi: Mpi, language: str) -> str:
        if language not in mpi.languages:
            return "-" if mpi.suffix == "" or language != "mpi4py" else "not tried"
        return "works" if language in works.get(mpi.name, ()) else "fails"

    def row(mpi: Mpi) -> str:
        does = works.get(mpi.name, ())
        checks = ["works" if check in does else "fails" for check in CHECKS]
        return " | ".join([mpi.name, mpi.origin, *(cell(mpi, each) for each in LANGUAGES), *checks])

    rows = (f"| {row(mpi)} |" for mpi in MPIS)
    return _PAGE.format(rows="\n".join(rows))
