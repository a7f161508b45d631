"""Start a job over hosts with all of its ranks held before main, and find those ranks; also those
of such a job that has lost its debugger."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path

from crdebug.acquire.discovery import FoundJob
from crdebug.acquire.mpir import ProcDesc, is_here
from crdebug.attached.far_record import FarRecord, HostRecord, ThisHostRecord
from crdebug.attached.gdbs import SetGate, raise_first
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, NotAvailable
from crdebug.base.events import Event
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.group import TargetGroup
from crdebug.hosts.attach import Agents, gather_all
from crdebug.hosts.starting import Start
from crdebug.job import gathering, over_hosts
from crdebug.job.directory import JobDirectory, JobRecord
from crdebug.job.gathering import Gathered
from crdebug.job.launch import layer_for, mpicc_for
from crdebug.job.over_hosts import Named, Spread
from crdebug.job.ranks_there import why_ended
from crdebug.job.starter_events import note_ranks, starter_events
from crdebug.native.build import build
from crdebug.node import bare, proc, programs
from crdebug.node.launchers import NAMES
from crdebug.node.probes import mpi_family
from crdebug.node.slurm import host_names

_PAUSE = 0.05  # seconds between two questions for the ranks that have begun


async def spread_of(
    argv: Sequence[str],
    named: Named,
    environment: Mapping[str, str],
    place: Path,
    deadline: Deadline,
) -> tuple[Sequence[str], Spread | None]:
    """How a launcher's command spreads a job over hosts; None if all of it is here. Then the
    command line is as it has to be, too.

    Raises BadInput, NotAvailable.
    """
    launcher = argv[0] if argv else ""
    by_slurm = Path(launcher).name == "srun"
    wanted = bool(named.hosts or named.file)
    if not over_hosts.may_spread(argv, named, environment):
        return argv, None
    known = by_slurm or Path(launcher).name in NAMES
    if not known and not wanted:
        return argv, None  # a script would start the job: nobody knows where
    told = ("", "")
    if known and not by_slurm:
        ran = await programs.run([launcher, "--version"], deadline, "the launcher's version")
        told = mpi_family(ran.out + ran.err)
    family = over_hosts.family_of(launcher, told)

    def is_program(word: str) -> bool:
        return shutil.which(place / word if "/" in word else word) is not None

    hosts = over_hosts.hosts_named(argv, family, named, environment, host_names, place, is_program)
    if not hosts or (not by_slurm and all(map(_is_here, hosts))):
        return over_hosts.with_hosts(argv, family, named), None
    return argv, Spread(hosts, family, named, bare.new_mark())


class LauncherEnded(CrdebugError):
    """Before all ranks were there; with its last words."""


class OverHosts:
    """The agents of a job over hosts, on the way to its ranks.

    hosts: those that the job may use.  mark: the job's.
    start: starts an agent.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        mark: str,
        settings: Settings,
        subscriber: Callable[[Event], None] | None,
        start: Start,
    ) -> None:
        self._hosts = hosts
        self._mark = mark
        self._settings = settings
        self._subscriber = subscriber
        self._agents = Agents(settings, subscriber or (lambda event: None), start)
        self._here = os.uname().nodename
        self._shim = ""
        self._held: tuple[ProcDesc, ...] = ()

    @property
    def _away(self) -> list[str]:
        return [host for host in self._hosts if not _is_here(host)]

    async def prepare(self, argv: Sequence[str], place: Path, *, hold: bool = True) -> None:
        """Make ranks that begin on other hosts wait for their debuggers (if `hold`), and record
        their MPI calls where that is possible. argv: the launcher's command.  place: the directory
        in which it is run. Raises NotAvailable."""
        self._shim = str((await build(self._settings.compiler, self._limit)).shim)
        limit = self._limit
        layer = str(await layer_for(argv, place, self._settings.record, limit) or "")
        mpicc = (await mpicc_for(argv, place, limit) or "") if layer else ""

        async def one(host: str) -> None:
            node = await self._agents.on(host)
            there = await node.prepare(self._mark, layer, mpicc, hold=hold)
            for path, own in ((there.shim, self._shim), (there.layer, layer)):
                if path != own:
                    raise NotAvailable(
                        f"{host} has crdebug's part for the ranks in another place: {path}, here "
                        f"it is {own}",
                        hint="$CRDEBUG_CACHE, the C compiler and the MPI must be the same on all "
                        "hosts",
                    )

        await gather_all(map(one, self._away))

    def records(self, found: FoundJob, record: JobRecord, run: Path) -> FarRecord | None:
        """Of these ranks; None if nothing is recorded."""
        if not record.layer:
            return None
        pids: dict[str, dict[int, int]] = {}
        for entry in found.everywhere:
            pids.setdefault(entry.host, {})[entry.rank] = entry.pid
        here = ThisHostRecord()

        def at(host: str) -> HostRecord:
            return here if host == self._here else self._agents.of(host)

        logs = over_hosts.logs_of(self._mark)
        far = FarRecord(at, here, pids, record.layer, logs, run, self._settings.compiler)
        self._agents.layer, self._agents.on_clock = record.layer, far.stands
        for host in pids.keys() - {self._here}:
            self._agents.of(host).on_clock = far.stands
        return far

    @property
    def _limit(self) -> Deadline:
        return Deadline(self._settings.launch)

    async def _ask(self) -> Gathered:
        """All of its ranks that have begun so far."""

        async def there(host: str) -> Gathered:
            return await (await self._agents.on(host)).gather(self._mark, self._shim)

        parts = await gather_all(map(there, self._away))
        parts.append(await asyncio.to_thread(gathering.gather, self._mark, self._shim, self._here))
        entries = sorted((each for p in parts for each in p.entries), key=lambda each: each.rank)
        return Gathered(tuple(entries), max(part.size for part in parts))

    async def all_ranks(self, directory: JobDirectory, record: JobRecord) -> FoundJob:
        """Wait until all ranks have begun. Raises LauncherEnded, DeadlineExpired."""
        limit = self._limit
        events = directory.run(record.incarnation) / "events"
        while True:
            found = await self._ask()
            lives = proc.is_alive(record.pid, record.start)
            said = starter_events(events)
            if said.status is not None or said.failure or not lives:
                error = why_ended(directory, record)
                raise LauncherEnded(error.problem, hint=error.hint)
            if 0 < found.size <= len(found.entries):
                break
            if not limit.left:
                raise self._late(found, limit)
            await asyncio.sleep(_PAUSE)
        over_hosts.end_holding(self._mark)
        note_ranks(events, found.size)
        return self._found(found, directory, record)

    def _late(self, found: Gathered, limit: Deadline) -> Exception:
        there = RankSet.of(each.rank for each in found.entries)
        missing = RankSet.span(found.size) - there
        error = limit.expired(f"all ranks to start on {', '.join(self._hosts)}", ranks=missing)
        error.hint = "does the job have ranks on other hosts? name all: --hosts n1,n2"
        return error

    async def ranks_now(self, directory: JobDirectory, record: JobRecord) -> FoundJob:
        """The ranks of a job that has been there for a while: those that are left."""
        self._shim = record.shim
        found = await self._ask()
        if not found.entries:
            raise NotAvailable(
                f"job '{directory.name}' has no ranks on {', '.join(self._hosts)}",
                hint="they have not begun yet, or have ended",
            )
        return self._found(found, directory, record)

    def _found(self, found: Gathered, directory: JobDirectory, record: JobRecord) -> FoundJob:
        self._held = found.entries
        here = tuple(each for each in found.entries if each.host == self._here)
        elsewhere = tuple(each for each in found.entries if each.host != self._here)
        size = max(found.size, max(each.rank for each in found.entries) + 1)
        ended = RankSet.span(size) - RankSet.of(each.rank for each in found.entries)
        return FoundJob(record.pid, f"job {directory.name}", here, size, ended, elsewhere)

    async def attach(self, found: FoundJob) -> TargetGroup:
        """Attach a GDB to each of these ranks. The group ends the agents."""
        return await self._agents.attach(found, found.ended, self._subscriber)

    def gates(self) -> dict[int, SetGate]:
        """Of the ranks that were found, by rank."""
        return {entry.rank: self._gate(entry) for entry in self._held}

    def _gate(self, entry: ProcDesc) -> SetGate:
        async def set_gate(value: int) -> None:
            if entry.host == self._here:
                gathering.set_gate(entry, self._shim, value)
            else:
                await (await self._agents.on(entry.host)).set_gate(entry, self._shim, value)

        return set_gate

    async def let_go(self, record: JobRecord) -> tuple[RankSet, bool]:
        """Let all ranks run on without a debugger. Returns those that did not run, and whether one
        has left the record. Those on a host that cannot be reached stay as they are: then raises
        NotAvailable, once the others run."""
        over_hosts.end_holding(self._mark)
        own = self._mark, record.shim, record.layer

        async def diverges(host: str) -> bool:
            return await (await self._agents.on(host)).diverges(*own)

        # Before any rank runs: a rank that repeats the record may wait for one that has left it.
        told = await asyncio.gather(*map(diverges, self._away), return_exceptions=True)
        another = gathering.diverges(*own) or any(each is True for each in told)

        async def let_go(host: str) -> RankSet:
            return await (await self._agents.on(host)).let_go(*own, another=another)

        here = gathering.let_go(*own, another=another)
        outcomes = await asyncio.gather(here, *map(let_go, self._away), return_exceptions=True)
        let = reduce(or_, (each for each in outcomes if isinstance(each, RankSet)), RankSet())
        for each in outcomes:
            if isinstance(each, CrdebugError) and let:
                each.outcome = f"{let.words} let go nevertheless"
        raise_first(outcomes)
        return let, another

    async def close(self) -> None:
        """End the agents; before `attach`, or if that has failed."""
        await self._agents.close()


def _is_here(host: str) -> bool:
    return is_here(host.rpartition("@")[2])
