"""A history without a job: it is where a test says, and notes what was asked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from crdebug.base.instant import cut_of
from crdebug.base.ranks import RankSet
from crdebug.timeline.branches import Branches
from crdebug.timeline.text import Place
from crdebug.travel.auto_checkpoints import EVERY, Bound
from crdebug.travel.memory_snapshots import Stock
from crdebug.travel.moment import Moment
from crdebug.travel.overview import Overview
from crdebug.travel.snapshot_cost import Costs

STOCK = Stock((), 0, 0, "", 0.0, 0.02, 0.0, 0.0, 2.0)
VIEW = Overview(0, here=cut_of(20, 20, 20, 19), ends=cut_of(40, 40, 40, 39))


@dataclass(slots=True)
class FakeSurvey:
    """saved: the files that were asked for. under_way: the lines of calls."""

    saved: list[Path] = field(default_factory=list)
    under_way: list[str] = field(default_factory=list)

    async def calls(self) -> list[str]:
        return self.under_way

    async def save(self, overview: Overview, path: Path) -> None:
        self.saved.append(path)


@dataclass(slots=True)
class FakeBranching:
    branches: Branches = field(default_factory=Branches)


@dataclass(slots=True)
class FakeAutomatic:
    bound: Bound = field(default_factory=Bound)


class FakeHistory:
    """The face of crdebug.travel.history.History that commands see. view: the whole of it."""

    def __init__(self) -> None:
        self.recorded = True
        self.every = EVERY
        self.automatic = FakeAutomatic()
        self.costs = Costs()
        self.survey = FakeSurvey()
        self.branching = FakeBranching()
        self.marks: dict[str, Moment] = {}
        self.view = VIEW
        self.snapshots = STOCK
        self.last = 0

    def focus(self, ranks: RankSet) -> int:
        return self.last if self.last in ranks else ranks.first

    def brief(self, ranks: RankSet) -> str:
        return f"rank {self.focus(ranks)} at tick 10"

    async def refresh(self) -> None:
        pass

    async def overview(self, focus: int) -> Overview:
        marks = tuple(Place(name, moment.cut) for name, moment in self.marks.items())
        return replace(self.view, focus=focus, marks=marks, keeps=bool(self.every))

    async def stock(self) -> Stock:
        return self.snapshots

    async def mark(self, name: str, focus: int) -> None:
        self.marks[name] = Moment(focus, self.view.here, self.view.ends[focus].tick)
