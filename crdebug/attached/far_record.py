"""The record of a job over hosts, as crdebug last saw it: copies of its logs, and its clocks.

Each host has its ranks' logs; nothing of them is read where it is written. `refresh` brings what
is new from all hosts at once, so that everything else reads it as that of a job on this host.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from crdebug.acquire import source_lines
from crdebug.attached.gdbs import raise_first
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, NotAvailable, StoreError
from crdebug.base.ranks import RankSet
from crdebug.job import clocks
from crdebug.job.call_lines import SECONDS
from crdebug.job.clocks import ClockHandle, RankClock
from crdebug.job.far_clocks import ClockLook, ClockWrite, FarClock
from crdebug.job.mirrored_logs import Copy, write_beside
from crdebug.job.record_here import (
    ClocksHere,
    Is,
    RankSeen,
    RecordHere,
    RecordNow,
    Wanted,
)
from crdebug.native.matcher.loading import load
from crdebug.native.recorder import clock as layout
from crdebug.node import owners

_MOST_RANKS = 1 << 20
_LOOK = 0.01  # seconds between two looks at clocks that are waited for


class HostRecord(Protocol):
    """A host that has ranks of the job."""

    async def record(self, wanted: Wanted) -> tuple[ClockLook, RecordNow]:
        """See RecordHere.answer; and when the clocks were looked at. Raises CrdebugError."""
        ...

    async def lines(self, sites: tuple[tuple[int, int], ...]) -> dict[tuple[int, int], str]:
        """By PID and return address, see source_lines.lines. Raises CrdebugError."""
        ...

    def write(self, write: ClockWrite) -> None:
        """Do it there, before everything that it is asked for afterwards."""
        ...

    async def cut(self, wanted: Wanted, compiler: str) -> None:
        """Forget what is on record there after the place of each of these ranks, which stand: see
        clocks.cut. compiler: see Settings. Raises CrdebugError."""
        ...


class ThisHostRecord:
    """The host of this process."""

    def __init__(self) -> None:
        self._here = RecordHere()

    async def record(self, wanted: Wanted) -> tuple[ClockLook, RecordNow]:
        return ClockLook(), await self.record_now(wanted)

    async def record_now(self, wanted: Wanted) -> RecordNow:
        """See RecordHere.answer."""
        return await asyncio.to_thread(self._here.answer, wanted)

    def close(self) -> None:
        self._here.close()

    async def lines(self, sites: tuple[tuple[int, int], ...]) -> dict[tuple[int, int], str]:
        return await source_lines.lines(sites, Deadline(SECONDS))

    def write(self, write: ClockWrite) -> None:
        """Clocks of this host are written to at once; this is one that is not there any more."""

    async def cut(self, wanted: Wanted, compiler: str) -> None:
        library, known = await load(compiler), ClocksHere(wanted.layer)
        try:
            for rank, pid in wanted.ranks.items():
                with contextlib.suppress(ProcessLookupError):
                    if (clock := known.of(rank, pid)) is not None:
                        clocks.cut(clock, Path(wanted.directory) / str(rank), library)
        except OSError as error:
            raise StoreError(f"the record cannot be cut: {error.strerror}") from None


class FarRecord:
    """at: gives what asks a host.  here: asks this one.  pids: of the ranks, by host and rank.
    layer: see Wanted.  there: the directory of the logs on each host.  compiler: see Settings.
    run: the copies are in this directory. Once all ranks have ended, and the copies are whole, they
    are where those of a job on one host are.
    """

    def __init__(
        self,
        at: Callable[[str], HostRecord],
        here: ThisHostRecord,
        pids: Mapping[str, Mapping[int, int]],
        layer: str,
        there: Path,
        run: Path,
        compiler: str,
    ) -> None:
        self._at = at
        self._here = here
        self._pids = pids
        self._layer = layer
        self._there = there
        self._compiler = compiler
        self.directory = run / "far"
        self._whole = clocks.logs(run)
        self._where = {rank: host for host, ranks in pids.items() for rank in ranks}
        self._clocks: dict[int, FarClock] = {}
        self._own = ClocksHere(layer)  # of the ranks on this host, which are looked at at once
        self._copies: dict[int, Copy] = {}
        self._agents: dict[str, HostRecord] = {}  # by host, whoever was asked last
        self._beside: dict[str, int] = {}  # by host, the number of the last answer with files
        self._complete: set[int] = set()  # ranks that have ended, and whose logs are here
        self.silent: dict[str, CrdebugError] = {}  # hosts whose part is old, and why
        self._busy = asyncio.Lock()
        shutil.rmtree(self.directory, ignore_errors=True)
        owners.make_private(self.directory)

    def let_go(self) -> None:
        """The job is about to be ended, or has ended: its logs on this host need not stay. (Those
        on others go with their agents.)"""
        self._here.close()

    def leave(self) -> None:
        """There will be no debugger: let the ranks run on wherever they are."""
        clocks.let_all_go(self.clocks)

    def close(self) -> None:
        """Remove the copies, unless they are whole: nobody knows what else the ranks do."""
        self.let_go()
        if self.directory != self._whole:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def clocks(self) -> tuple[ClockHandle, ...]:
        """Of the ranks whose MPI calls are counted. Those on other hosts are as of the last
        `refresh`, or of the last stop by their debugger if that was later."""
        found = sorted(self._clocks.values(), key=lambda each: each.rank)
        return tuple(
            self._at_once(each) or each for each in found if each.seen.status is not Is.UNCOUNTED
        )

    def _at_once(self, far: FarClock) -> RankClock | None:
        host = self._where[far.rank]
        if self._at(host) is not self._here:
            return None
        if far.seen.status is not Is.THERE:
            self._own.forget(far.rank)  # it may be another program now
            return None
        with contextlib.suppress(OSError, NotAvailable):
            return self._own.of(far.rank, self._pids[host][far.rank])
        return None

    def stands(self, rank: int, clock: bytes, look: ClockLook) -> None:
        """The debugger of a rank on another host has stopped it: see FarClock. Raises NotAvailable
        for what no crdebug says."""
        _require_clock(self._where.get(rank, ""), clock, look)
        if (known := self._clocks.get(rank)) is not None:
            known.stands(clock, look)

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Inside the block, in which ranks run, their clocks are looked at all the time."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            begun = time.monotonic()
            with contextlib.suppress(StoreError):
                await self.refresh(logs=False)
            # With many ranks it must not take their processors from them.
            await asyncio.sleep(max(_LOOK, 4 * (time.monotonic() - begun)))

    async def refresh(self, *, logs: bool = True, requests: bool = False) -> None:
        """See how the ranks are now. logs: bring their logs up to date, too; those of ranks that
        have ended are in any case.  requests: and the requests that they hold.

        What a host does not tell is as it was, and its clocks cannot be read. Raises StoreError if
        a copy cannot be written.
        """
        async with self._busy:
            asking = (self._ask(host, logs=logs, requests=requests) for host in self._pids)
            try:
                raise_first(await asyncio.gather(*asking, return_exceptions=True))
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                raise StoreError(f"the record cannot be copied to this host: {why}") from None
            living = {rank for ranks in self._pids.values() for rank in ranks}
            if self._complete == living and self.directory != self._whole:
                self.directory.rename(self._whole)
                self.directory = self._whole
                self.let_go()

    async def cut(self) -> None:
        """Forget what is on record after the place of each rank; all of them stand. Raises
        CrdebugError."""
        asking = [
            self._at(host).cut(Wanted(ranks, self._layer, str(self._there)), self._compiler)
            for host, ranks in self._pids.items()
        ]
        raise_first(await asyncio.gather(*asking, return_exceptions=True))
        await self.refresh()

    async def _ask(self, host: str, *, logs: bool, requests: bool) -> None:
        ranks = {rank: pid for rank, pid in self._pids[host].items() if rank not in self._complete}
        while ranks:
            copies = {r: copy for r, copy in self._copies.items() if self._where[r] == host}
            since = dict.fromkeys(ranks, 0) | {r: copy.number for r, copy in copies.items()}
            wanted = Wanted(
                ranks,
                self._layer,
                str(self._there),
                since if logs else None,
                self._beside.get(host, 0),
                requests,
            )
            try:
                agent = self._at(host)
                if self._agents.setdefault(host, agent) is not agent:
                    self._agents[host] = agent
                    self._has_another_agent(host)
                look, now = await agent.record(wanted)
                self._take(host, look, now)
            except CrdebugError as error:
                self._is_silent(host, error)
                return
            ended = {rank for rank in ranks if self._has_ended(rank)}
            if not now.more and (logs or not ended):
                self._complete |= ended if now.there else set()
                self.silent.pop(host, None)
                return
            logs = True

    def _has_ended(self, rank: int) -> bool:
        known = self._clocks.get(rank)
        return known is not None and known.seen.status is Is.ENDED

    def _take(self, host: str, look: ClockLook, now: RecordNow) -> None:
        """What a host says is taken for its own ranks, and for no others. Raises OSError,
        NotAvailable for what no crdebug says."""
        for rank in self._pids[host]:
            if (seen := now.seen.get(rank)) is not None:
                if seen.status is Is.THERE:
                    _require_clock(host, seen.clock, look)
                self._known(host, rank, seen).was_seen(seen, look)
        for rank, news in now.news.items():
            if not isinstance(rank, int) or not 0 <= rank < _MOST_RANKS:
                raise NotAvailable(f"{host} sends a log of no rank")
            if self._where.setdefault(rank, host) == host:  # one that had ended is nobody's yet
                if rank not in self._copies:
                    self._copies[rank] = Copy(self.directory / str(rank))
                self._copies[rank].take(news)
        its = [rank for rank, where in self._where.items() if where == host]
        write_beside(self.directory, now.beside, its)
        self._beside[host] = now.number

    def _known(self, host: str, rank: int, seen: RankSeen) -> FarClock:
        if rank not in self._clocks:
            self._clocks[rank] = FarClock(rank, seen, lambda write: self._at(host).write(write))
        return self._clocks[rank]

    def _has_another_agent(self, host: str) -> None:
        for rank, known in self._clocks.items():
            if self._where[rank] == host:
                known.has_another_agent()

    def _is_silent(self, host: str, error: CrdebugError) -> None:
        self.silent[host] = error
        silent = RankSeen(Is.UNREADABLE, problem=error.problem)
        for rank in self._pids[host]:
            known = self._known(host, rank, silent)
            if known.seen.status is not Is.ENDED:
                known.seen = silent

    def caveats(self) -> Iterator[str]:
        """What is old in the copies, as sentences."""
        for host, error in self.silent.items():
            ranks = RankSet.of(self._pids[host])
            yield f"what {ranks.words} did since is not known: {error.problem}"

    # ---- the lines of calls ---------------------------------------------------------------------

    def knows(self, rank: int) -> bool:
        """See CallLines."""
        known = self._clocks.get(rank)
        return known is not None and known.seen.status is Is.THERE

    async def of(self, sites: Iterable[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """See CallLines."""
        by_host: dict[str, dict[tuple[int, int], tuple[int, int]]] = {}
        for rank, site in sites:
            if self.knows(rank):
                host = self._where[rank]
                by_host.setdefault(host, {})[self._pids[host][rank], site] = rank, site

        async def ask(host: str) -> dict[tuple[int, int], str]:
            try:
                found = await self._at(host).lines(tuple(by_host[host]))
            except CrdebugError:
                return {}
            return {by_host[host][each]: line for each, line in found.items()}

        found: dict[tuple[int, int], str] = {}
        for part in await asyncio.gather(*map(ask, by_host)):
            found |= part
        return found


def _require_clock(host: str, clock: bytes, look: ClockLook) -> None:
    numbers = isinstance(look.number, int) and isinstance(look.written, int)
    if not numbers or not isinstance(clock, bytes) or len(clock) != layout.SIZE:
        raise NotAvailable(f"{host} sends a clock that is none")
