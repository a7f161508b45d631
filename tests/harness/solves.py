"""tests/programs/solves.py, its lines, and the MPIs that have an mpi4py to run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.mpis import MPIS, Mpi

SOLVES = Path(__file__).parents[1] / "programs" / "solves.py"
_LINES = {line.strip(): number for number, line in enumerate(SOLVES.read_text().splitlines(), 1)}
WHEELS = [mpi for mpi in MPIS if "mpi4py" in mpi.languages]
needs_mpi4py = pytest.mark.skipif(not WHEELS, reason="no mpi4py")


def number(line: str) -> int:
    """Of the line with this text."""
    return _LINES[line]


def at(line: str) -> str:
    """As a breakpoint has it."""
    return f"{SOLVES.name}:{number(line)}"


CALL = at("last = solver.relax(step)")


def command(mpi: Mpi, *arguments: object) -> list[str]:
    """The program on two ranks."""
    return [*mpi.launch(2), str(mpi.python), str(SOLVES), *map(str, arguments)]
