"""Where the job is in its history."""

from __future__ import annotations

from dataclasses import dataclass

from crdebug.base.instant import Cut
from crdebug.timeline.branches import MAIN


@dataclass(frozen=True, slots=True)
class Moment:
    """A place in the history of the job, seen from one rank.

    cut: where every rank is.  focus: the rank whose place is exact.
    recorded: how many of its MPI calls have been recorded. note: what else the user should know of
    it. branch: of the history.
    """

    focus: int
    cut: Cut
    recorded: int
    note: str = ""
    branch: str = MAIN

    @property
    def tick(self) -> int:
        """How many counted MPI calls the focused rank has completed."""
        return self.cut[self.focus].tick
