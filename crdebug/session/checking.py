"""What the record shows to be wrong."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath

from crdebug.base.errors import BadInput, NotAvailable
from crdebug.base.ranks import RankSet
from crdebug.session.the_past import past
from crdebug.session.why import Why
from crdebug.timeline.check import Record, check, in_races
from crdebug.timeline.findings import (
    NO_RACE,
    Finding,
    Merged,
    concerning,
    merged,
    report,
    sites_of,
)
from crdebug.timeline.races import Race, races
from crdebug.timeline.requests import Communicator, communicators, held_requests
from crdebug.travel.other_choice import choose_another
from crdebug.travel.recorded_job import RecordedJob


class Checking(Why):
    """The verbs that check what MPI calls are on record."""

    async def check(self, ranks: RankSet) -> str:
        """What is wrong in the calls of these ranks, as lines.

        Raises NotAvailable if the job is not recorded.
        """
        record = await self._record()
        return await self._told(check(record), ranks, [*record.caveats(), *self._what_is_old()])

    async def races(self, ranks: RankSet) -> str:
        """The receives and probes that could have got another message, as lines.

        Raises NotAvailable if the job is not recorded, or not from its beginning.
        """
        _, found = await self._races(ranks)
        return report(found, nothing=NO_RACE, numbered=True)

    async def try_another(self, number: int, source: int | None, ranks: RankSet) -> None:
        """Go to where a receive of `races`, by its number there, is about to be called, and begin a
        branch on which it gets another message: of this rank, or of the first that is named.

        Raises NotAvailable like `races`, BadInput, Refused.
        """
        found, numbered = await self._races(ranks)
        if not numbered:
            raise BadInput(NO_RACE)
        if number > len(numbered):
            last = len(numbered)
            raise BadInput(f"there are {last} such receives, not {number}", hint="'info races'")
        at = numbered[number - 1].first
        race = next(each for each in found if (each.call.rank, each.call.tick) == at[:2])
        senders = [sender for sender, _ in race.others]
        if source is not None and source not in senders:
            raise BadInput(
                f"a message of rank {source} could not have come first",
                hint=f"one of {RankSet.of(senders).words} could",
            )
        other = senders[0] if source is None else source
        await choose_another(past(self.history), race.call, other)

    async def _races(self, ranks: RankSet) -> tuple[list[Race], list[Merged]]:
        """All of them, and those that concern these ranks as they are shown."""
        record = await self._record()
        if not record.whole:
            raise NotAvailable(
                "the record does not have all calls from the beginning of the job",
                hint="what could have come first is found from all of them",
            )
        found = [*races(record.matching, record.calls)]
        return found, await self._merged(in_races(record, found), ranks)

    async def requests(self, ranks: RankSet) -> str:
        """The requests that these ranks hold where they are, as lines.

        Raises NotAvailable if the job is not recorded.
        """
        recorded = await self._recorded(requests=True)
        matching, logs = recorded.matching(), recorded.logs()
        calls = {rank: log.calls for rank, log in logs.items()}
        held = {}
        for clock in recorded.clocks():
            if clock.rank in ranks and clock.rank in logs:
                with contextlib.suppress(ProcessLookupError, NotAvailable):
                    held[clock.rank] = clock.requests()
        found = await self._merged(held_requests(matching, calls, recorded.cut(), held), ranks)
        return "\n".join(each.text for each in found) or "no rank holds a request"

    async def communicators(self) -> tuple[Communicator, ...]:
        """The communicators and windows that the ranks have made up to where they are.

        Raises NotAvailable if the job is not recorded.
        """
        recorded = await self._recorded()
        matching, logs = recorded.matching(), recorded.logs()
        places = {rank: log.records for rank, log in logs.items()}
        places |= {rank: state.cursor for rank, state in recorded.states()}
        return tuple(communicators(matching, logs, places, recorded.cut()))

    def _what_is_old(self) -> Iterator[str]:
        """Of the record of a job over hosts."""
        far = self._attended.far if self._attended is not None else None
        return far.caveats() if far is not None else iter(())

    async def _record(self) -> Record:
        recorded = await self._recorded()
        return Record.of(recorded.matching(), recorded.logs(), len(self.ranks))

    async def _recorded(self, *, requests: bool = False) -> RecordedJob:
        past = self.history
        if past is None or not past.recorded:
            raise NotAvailable(
                "the MPI calls of this job are not recorded",
                hint="'crdebug run' records them where the MPI's mpicc is there",
            )
        await past.refresh(requests=requests)
        return past.traveller.recorded

    async def _told(
        self,
        findings: Iterable[Finding],
        ranks: RankSet,
        caveats: Sequence[str] = (),
    ) -> str:
        return report(await self._merged(findings, ranks), caveats)

    async def _merged(self, findings: Iterable[Finding], ranks: RankSet) -> list[Merged]:
        """Equal ones as one, with the lines of the calls."""
        found = concerning(findings, ranks)
        sites: defaultdict[int, list[int]] = defaultdict(list)
        for rank, site in sorted(sites_of(found)):
            sites[rank].append(site)
        lines: dict[int, Mapping[int, str]] = {}
        if self.history is not None:
            survey = self.history.survey
            lines = {rank: await survey.lines(rank, each) for rank, each in sites.items()}
        return merged(found, lambda rank, site: PurePath(lines.get(rank, {}).get(site, "")).name)
