"""What the record shows to be wrong."""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePath

from crdebug.base.errors import NotAvailable
from crdebug.base.ranks import RankSet
from crdebug.session.why import Why
from crdebug.timeline.check import Record, check
from crdebug.timeline.findings import concerning, merged, report, sites_of


class Checking(Why):
    """The verb that checks what MPI calls are on record."""

    async def check(self, ranks: RankSet) -> str:
        """What is wrong in the calls of these ranks, as lines.

        Raises NotAvailable if the job is not recorded.
        """
        past = self.history
        if past is None or not past.recorded:
            raise NotAvailable(
                "the MPI calls of this job are not recorded",
                hint="'crdebug run' records them where the MPI's mpicc is there",
            )
        recorded = past.traveller.recorded
        record = Record.of(recorded.matching(), recorded.logs(), len(self.ranks))
        found = concerning(check(record), ranks)
        sites: defaultdict[int, list[int]] = defaultdict(list)
        for rank, site in sorted(sites_of(found)):
            sites[rank].append(site)
        lines = {rank: await past.survey.lines(rank, each) for rank, each in sites.items()}
        told = merged(found, lambda rank, site: PurePath(lines.get(rank, {}).get(site, "")).name)
        return report(told, record.caveats())
