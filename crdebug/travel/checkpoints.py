"""The checkpoints of a job with the clocks of its ranks, which are read once."""

from __future__ import annotations

from crdebug.base.instant import cut_of
from crdebug.job.directory import JobDirectory
from crdebug.travel.restore_points import Base


class Checkpoints:
    """Those of one job."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory
        self._known: dict[tuple[bool, int], Base | None] = {}

    def all(self) -> list[Base]:
        """Those of all branches; none of jobs that are not recorded."""
        numbers = [(True, number) for number in self._directory.history.numbers()]
        numbers += [(False, number) for number in self._directory.store.numbers()]
        for key in numbers:
            if key not in self._known:
                self._known[key] = self._base(*key)
        return [base for key in numbers if (base := self._known[key]) is not None]

    def _base(self, history: bool, number: int) -> Base | None:
        manifest = (self._directory.history if history else self._directory.store).load(number)
        if not manifest.layer:
            return None
        cut = cut_of(*(rank.now for rank in manifest.ranks))
        return Base(cut, number=number, history=history, branch=manifest.branch)
