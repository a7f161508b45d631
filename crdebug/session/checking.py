"""What the record shows to be wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from crdebug.base.errors import NotAvailable
from crdebug.base.ranks import RankSet
from crdebug.session.why import Why
from crdebug.timeline.check import Record, check, in_races
from crdebug.timeline.findings import (
    NO_RACE,
    NOTHING,
    Finding,
    concerning,
    merged,
    report,
    sites_of,
)


class Checking(Why):
    """The verbs that check what MPI calls are on record."""

    async def check(self, ranks: RankSet) -> str:
        """What is wrong in the calls of these ranks, as lines.

        Raises NotAvailable if the job is not recorded.
        """
        record = self._record()
        return await self._told(check(record), ranks, record.caveats())

    async def races(self, ranks: RankSet) -> str:
        """The receives and probes that could have got another message, as lines.

        Raises NotAvailable if the job is not recorded, or not from its beginning.
        """
        record = self._record()
        if not record.whole:
            raise NotAvailable(
                "the record does not have all calls from the beginning of the job",
                hint="what could have come first is found from all of them",
            )
        return await self._told(in_races(record), ranks, nothing=NO_RACE)

    def _record(self) -> Record:
        past = self.history
        if past is None or not past.recorded:
            raise NotAvailable(
                "the MPI calls of this job are not recorded",
                hint="'crdebug run' records them where the MPI's mpicc is there",
            )
        recorded = past.traveller.recorded
        return Record.of(recorded.matching(), recorded.logs(), len(self.ranks))

    async def _told(
        self,
        findings: Iterable[Finding],
        ranks: RankSet,
        caveats: Sequence[str] = (),
        nothing: str = NOTHING,
    ) -> str:
        found = concerning(findings, ranks)
        sites: defaultdict[int, list[int]] = defaultdict(list)
        for rank, site in sorted(sites_of(found)):
            sites[rank].append(site)
        lines: dict[int, Mapping[int, str]] = {}
        if self.history is not None:
            survey = self.history.survey
            lines = {rank: await survey.lines(rank, each) for rank, each in sites.items()}
        told = merged(found, lambda rank, site: PurePath(lines.get(rank, {}).get(site, "")).name)
        return report(told, caveats, nothing)
