"""What a run directory has of a branch of history: what its ranks recorded, what it was sent."""

from __future__ import annotations

from pathlib import Path

from crdebug.job import clocks, standard_input


def copy(run: Path, to: Path) -> None:
    """Both as they are now, into a directory that has neither."""
    clocks.copy(run, to)
    standard_input.copy(run, to)


def replace(run: Path, by: Path, keep: Path) -> None:
    """Give a run directory both of another, and `keep` those that it had. As files: who has one
    open goes on with that."""
    clocks.replace(run, by, keep)
    standard_input.replace(run, by, keep)
