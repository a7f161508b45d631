"""What the places of a job's history are measured from: how far it has come, on which branch."""

from __future__ import annotations

from crdebug.base.instant import Cut, beginning
from crdebug.travel.restore_points import is_before


class Position:
    """The position of one job in its history. The verbs note what happens to the job."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._furthest: Cut = ()
        self._branch_start = beginning(ranks)
        self._change = ""
        self._ways = 0

    @property
    def furthest(self) -> Cut:
        """How far the ranks have come on this branch, () before their first run. A rank before that
        is in the past."""
        return self._furthest

    @property
    def branch_start(self) -> Cut:
        """Where the present branch of history begins."""
        return self._branch_start

    @property
    def change(self) -> str:
        """The line by which the user has changed the state, so that no recorded future fits it; ""
        if there is no change."""
        return self._change

    @property
    def ways(self) -> int:
        """How often the job was brought elsewhere."""
        return self._ways

    def is_behind(self, cut: Cut) -> bool:
        """Is any rank of this place in the past?"""
        return any(now < known for now, known in zip(cut, self._furthest, strict=False))

    def is_on_branch(self, cut: Cut) -> bool:
        """Is this place on the present branch, and not before its start?"""
        return is_before(self._branch_start, cut)

    # ---- what has happened ----------------------------------------------------------------------

    def advance(self, cut: Cut) -> None:
        """The user's own run has ended at this cut."""
        self._furthest = tuple(map(max, self._furthest or cut, cut))

    def return_to(self, cut: Cut) -> None:
        """The job is on a branch again on which it had come as far as this cut."""
        self._furthest = cut

    def begin_branch(self, cut: Cut) -> None:
        """A new branch begins at this cut, where the job stands."""
        self._branch_start = self._furthest = cut

    def change_branch(self, start: Cut) -> None:
        """The job is on another branch, which begins there. (): the first one."""
        self._branch_start = start or beginning(self._ranks)

    def changed_by_user(self, line: str) -> None:
        """By this line the user has changed memory, registers or the place of a rank."""
        self._change = line

    def change_is_over(self) -> None:
        """A state without the user's change was brought back, or a branch begins with the
        change."""
        self._change = ""

    def brought_elsewhere(self) -> None:
        """The job is about to be brought to another place, by other means than the user's run."""
        self._ways += 1
