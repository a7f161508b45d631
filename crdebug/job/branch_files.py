"""The files of a branch of history in a run directory: the records of its ranks, and its input."""

from __future__ import annotations

from pathlib import Path

from crdebug.job import clocks, standard_input


def copy(run: Path, to: Path) -> None:
    """Both as they are now, into a directory that has neither."""
    clocks.copy(run, to)
    standard_input.copy(run, to)


def replace(run: Path, by: Path, keep: Path) -> None:
    """Replace both in a run directory with those of another, and move the old ones to `keep`. They
    are moved as files: a process that has one open goes on with it."""
    clocks.replace(run, by, keep)
    standard_input.replace(run, by, keep)
