"""Checkpoints on disk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint, as its manifest describes it.

    number: from 1, per job.  time: seconds since 1970.  note: the user's.
    size: bytes on disk.  debugger: a debugger was attached when it was taken.
    locations: by rank, where the first thread of each rank was, as text ("" if not known).
    """

    job: str
    number: int
    time: float
    note: str
    size: int
    debugger: bool
    incarnation: int
    locations: tuple[str, ...]

    @property
    def handle(self) -> str:
        return f"{self.job}:{self.number}"
