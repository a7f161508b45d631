"""Snapshots of all ranks of a job at once, held by their GDBs.

The lowest rank that maps shared memory for writing keeps it. We cannot put back memory that a
process outside the ranks (the launcher) may write too: it must be unchanged.

Data that ranks have sent each other and not received yet is in the kernel, and would be lost, or
come twice. Of TCP connections between ranks it is kept, and sent again (connections.py); neither
`keep` nor `put_back` is possible while there is anything in another socket or a pipe.
Data that ranks have written to terminals, or to pipes that lead out of the job, stays written: a
job that is put back writes it again as it runs on. (Regular files go back, see
gdbscripts/snapshot/files.py.) Data that has come from outside in the meantime (standard input,
messages of the launcher) was received, and does not come again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, CrdebugError, GdbError, Refused
from crdebug.base.ranks import RankSet
from crdebug.debugger.connections import Connections, OnTheirWay, places_of
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.rank_host import HostRoom
from crdebug.debugger.target import KeptInfo, Target, TargetState

_LOG = "/dev/shm/crdebug/time/"  # the record of a run stays as it is
_SHARE_TO_COPY = 4  # copies of all ranks take at most one part in so many of the free memory


@dataclass(frozen=True, slots=True)
class KeptJob:
    """A snapshot of all ranks.

    ranks: by rank, the size of its part.  on_their_way: what their connections had.
    """

    name: str
    ranks: Mapping[int, KeptInfo]
    on_their_way: OnTheirWay = field(default_factory=lambda: OnTheirWay({}, {}))

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.ranks.values()) + self.on_their_way.bytes

    @property
    def changed(self) -> int:
        """The memory that it shares with no earlier snapshot: about as much as it takes."""
        return sum(each.changed for each in self.ranks.values()) + self.on_their_way.bytes

    @property
    def changed_most(self) -> int:
        """`changed` of the rank that has changed most."""
        return max((each.changed for each in self.ranks.values()), default=0)

    @property
    def frozen(self) -> bool:
        """Is the part of each rank a frozen clone?"""
        return all(each.frozen for each in self.ranks.values())


class Snapshots:
    """The snapshots of a job's ranks. Verbs must not overlap, and every rank must be stopped.

    logs: how the paths of the record begin, which stays as it is.
    """

    def __init__(self, group: TargetGroup, logs: str | None = None) -> None:
        self._group = group
        self._logs = logs or _LOG
        self._kept: dict[str, KeptJob] = {}

    @property
    def kept(self) -> tuple[KeptJob, ...]:
        """The oldest first. `obstacles` says whether one can still be put back."""
        return tuple(self._kept.values())

    async def keep(
        self,
        name: str,
        deadline: Deadline,
        others: Mapping[str, Collection[int]] | None = None,
    ) -> KeptJob:
        """Take a snapshot of all ranks, under a name; it replaces one of that name. others: the
        job's other processes by host ("": this one), if they are known.

        Raises Refused, with nothing kept, when something is in flight that cannot be kept (see
        Connections.kept), or a rank cannot be.
        """
        targets = self._targets("keep a snapshot")
        places = places_of(targets)
        on_their_way = await Connections(places).kept()
        ranges: dict[int, tuple[str, ...]] = {}
        most: dict[int, int] = {}
        for place in places:
            known = others.get(place.name) if others is not None else None
            ranges |= await place.host.ranges(place.pids, known, self._logs)
            free = await place.host.available()
            most |= dict.fromkeys(place.pids, free // _SHARE_TO_COPY // len(place.pids))
        answers = await asyncio.gather(
            *(each.keep(name, ranges[each.rank], deadline, most[each.rank]) for each in targets),
            return_exceptions=True,
        )
        kept: dict[int, KeptInfo] = {}
        for target, answer in zip(targets, answers, strict=True):
            if isinstance(answer, BaseException):
                await self._forget(name, deadline)
                raise answer
            kept[target.rank] = answer
        self._kept.pop(name, None)
        self._kept[name] = KeptJob(name, kept, on_their_way)
        return self._kept[name]

    async def rooms(self) -> tuple[HostRoom, ...]:
        """How much memory there is on each host. Raises Refused."""
        places = places_of(self._targets("look at the memory"))
        return tuple(await asyncio.gather(*(place.host.room(place.pids) for place in places)))

    def has(self, name: str) -> bool:
        """Do all ranks still have it? A checkpoint ends frozen ones."""
        return name in self._kept and all(
            name in self._group[rank].kept for rank in self._group.ranks
        )

    async def obstacles(self, name: str, deadline: Deadline) -> tuple[str, ...]:
        """The reasons why `put_back` would be refused now, each with the rank; empty if none.

        Raises BadInput if there is no snapshot of that name.
        """
        self._require(name)
        targets = self._targets("go back in memory")

        async def one(target: Target) -> tuple[str, ...]:
            try:
                return await target.put_back_obstacles(name, deadline)
            except BadInput as error:  # it has another GDB, or is another process
                return (error.problem,)

        told = await asyncio.gather(*map(one, targets))
        found = [
            f"rank {target.rank}: {problem}"
            for target, problems in zip(targets, told, strict=True)
            for problem in problems
        ]
        connections = Connections(places_of(targets))
        return (*found, *await connections.obstacles(self._kept[name].on_their_way))

    async def put_back(
        self,
        name: str,
        deadline: Deadline,
        around: Callable[[], AbstractAsyncContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """Make all ranks what they were when the snapshot was kept.

        around: a context for the time in which ranks may be at different moments of their history.
        During that time each rank has a pending SIGSTOP, which putting back does not remove, so
        that it stays stopped even if we and its GDB die.
        Raises Refused, with nothing done, if a rank cannot be put back; GdbError when it fails
        half-way: then the job cannot be used any more.
        """
        problems = await self.obstacles(name, deadline)
        if problems:
            raise Refused(f"cannot go back in memory: {'; '.join(problems)}")
        targets, begun = self._targets("go back in memory"), False
        try:
            await _all(targets, lambda each: each.hold(deadline))
            connections = Connections(places_of(targets))
            async with around():
                begun = True
                with _half_way():
                    await connections.clear()
                await _all(targets, lambda each: each.put_memory_back(name, deadline))
                with _half_way():
                    await connections.send(self._kept[name].on_their_way)
        except CrdebugError:
            if not begun:
                with contextlib.suppress(CrdebugError):
                    await _all(targets, lambda each: each.settle(deadline))
            raise
        await _all(targets, lambda each: each.show_put_back(name, deadline))

    async def sizes(self, deadline: Deadline) -> dict[str, int]:
        """By name, the bytes that only that snapshot holds now."""
        targets = self._targets("look at snapshots")
        told = await asyncio.gather(*(each.kept_sizes(deadline) for each in targets))
        return {name: sum(sizes.get(name, 0) for sizes in told) for name in self._kept}

    async def most_alone(self, name: str, deadline: Deadline) -> int:
        """The bytes that only this snapshot holds now, of the rank with the most. Ranks may run."""
        targets = [self._group[rank] for rank in self._group.ranks]
        told = await asyncio.gather(*(each.kept_sizes(deadline) for each in targets))
        return max((sizes.get(name, 0) for sizes in told), default=0)

    async def forget(self, name: str, deadline: Deadline) -> None:
        """Free its memory. Raises BadInput if there is no snapshot of that name."""
        self._require(name)
        del self._kept[name]
        await self._forget(name, deadline)

    async def _forget(self, name: str, deadline: Deadline) -> None:
        targets = [self._group[rank] for rank in self._group.ranks]
        for target in targets:
            if not target.dead:
                with contextlib.suppress(BadInput):
                    await target.forget(name, deadline)

    def _require(self, name: str) -> None:
        if name not in self._kept:
            raise BadInput(f"there is no snapshot '{name}'")

    def _targets(self, verb: str) -> list[Target]:
        others = self._group.ranks - self._group.in_state(TargetState.STOPPED)
        if others:
            raise Refused(f"cannot {verb}: not every rank is stopped", ranks=others)
        return [self._group[rank] for rank in self._group.ranks]


async def _all(targets: Sequence[Target], do: Callable[[Target], Awaitable[object]]) -> None:
    """One step of going back, on all ranks at once. Raises GdbError."""
    done = await asyncio.gather(*map(do, targets), return_exceptions=True)
    failed = {
        target.rank: outcome
        for target, outcome in zip(targets, done, strict=True)
        if isinstance(outcome, BaseException)
    }
    for outcome in failed.values():
        if isinstance(outcome, CrdebugError):
            raise _only_a_part(outcome, RankSet.of(failed)) from outcome
        raise outcome


@contextlib.contextmanager
def _half_way() -> Iterator[None]:
    """What fails here has to be called what it is: Refused would say that nothing is done."""
    try:
        yield
    except CrdebugError as error:
        raise _only_a_part(error, error.ranks) from error


def _only_a_part(error: CrdebugError, ranks: RankSet | None) -> GdbError:
    return GdbError(
        f"only part of the job was put back: {error.clause()}",
        "put-back",
        ranks=ranks,
        hint="'restart' brings back a checkpoint; a job without any can only be ended: 'kill'",
    )
