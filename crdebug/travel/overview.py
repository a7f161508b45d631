"""The whole of a job's history at once: for `when`, `info timeline` and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crdebug.base.errors import CrdebugError
from crdebug.base.instant import Cut
from crdebug.charts.pages import save
from crdebug.timeline.branches import Branch
from crdebug.timeline.calls import Call, entered_last
from crdebug.timeline.page import Picture, page
from crdebug.timeline.text import Place, Site
from crdebug.travel.call_sites import Sites
from crdebug.travel.restore_points import Base, below
from crdebug.travel.seek import Traveller
from crdebug.travel.under_way import in_words, under_way


@dataclass(frozen=True, slots=True)
class Overview:
    """A job's history in numbers.

    here: where the ranks stand; ends: where their records end.  focus: the rank that it is seen
    from.  before: the nearest of the checkpoints that are not after `here`; earliest: the one with
    which history begins, of all that one can go back to. keeps: will there be automatic
    checkpoints?  in_memory: there are only snapshots.
    branches: of history.  logs: the ranks' calls.
    """

    focus: int
    here: Cut
    ends: Cut
    checkpoints: tuple[Place, ...] = ()
    automatic: tuple[Place, ...] = ()
    marks: tuple[Place, ...] = ()
    before: Place | None = None
    earliest: Place | None = None
    keeps: bool = True
    in_memory: bool = False
    branches: tuple[Branch, ...] = ()
    logs: Mapping[int, Sequence[Call]] = field(default_factory=dict, repr=False)


class Survey:
    """Collects overviews. The job stands, or has ended."""

    def __init__(self, traveller: Traveller) -> None:
        self._traveller = traveller
        self._sites = Sites(traveller.job.group)

    def overview(
        self, focus: int, marks: Sequence[Place], keeps: bool, branches: Sequence[Branch] = ()
    ) -> Overview:
        """For marks, keeps and branches see Overview. Raises NotAvailable when the job is not
        recorded."""
        recorded = self._traveller.recorded
        logs = recorded.logs()  # before the clocks: where a rank ended, its log says
        here = recorded.cut()
        in_memory = self._traveller.job.has_no_checkpoints
        bases = sorted(
            (base for base in self._traveller.bases() if base.number or in_memory),
            key=lambda base: (sum(base.cut), base.number),
        )
        return Overview(
            focus,
            here,
            recorded.tails(),
            tuple(_place(base) for base in bases if base.number and not base.history),
            tuple(_place(base) for base in bases if base.history),
            tuple(marks),
            next(map(_place, below(bases, here)), None),
            next(map(_place, bases), None),
            keeps,
            in_memory,
            tuple(branches),
            {rank: log.calls for rank, log in logs.items()},
        )

    async def calls(self) -> list[str]:
        """The calls that ranks are in, and that are not on record yet, those alike in one line."""
        return await in_words(self._traveller.recorded)

    async def picture(self, overview: Overview) -> tuple[Picture, Site]:
        """The overview with all calls and messages, and the lines of the calls."""
        logs = overview.logs
        sites = {rank: log.sites for rank, log in self._traveller.recorded.logs().items()}
        now = {each.asked.rank: each.call for each in await under_way(self._traveller.recorded)}
        lines = {}
        for rank in logs:
            more = (now[rank].site,) if rank in now else ()
            lines[rank] = await self.lines(rank, (*sites.get(rank, ()), *more))

        def site(rank: int, tick: int) -> str:
            call = now.get(rank)
            if call is None or tick < call.tick:
                call = entered_last(logs[rank], tick)
            return lines[rank].get(call.site, "") if call is not None else ""

        picture = Picture(
            f"{self._traveller.job.name}: timeline",
            logs,
            self._traveller.recorded.matching(),
            overview.ends,
            overview.here,
            (*overview.checkpoints, *overview.automatic),
            overview.marks,
            overview.branches,
            now,
            overview.focus,
        )
        return picture, site

    async def save(self, overview: Overview, path: Path) -> None:
        """Write it as a page. Raises BadInput or Refused when that cannot be."""
        picture, site = await self.picture(overview)
        save(page(picture, site), path)

    async def lines(self, rank: int, sites: Sequence[int]) -> dict[int, str]:
        """By site. If the rank can no longer be asked, those that are known from before."""
        try:
            found = await self._sites.find(rank, sites)
        except CrdebugError:
            found = self._sites.known(rank)
        return {site: f"{at.file}:{at.line}" for site, at in found.items() if at.file}


def _place(base: Base) -> Place:
    return Place(base.name if base.number else "", base.cut)
