"""Snapshots of all ranks of a job at once, held by their GDBs; and all of them back.

Memory that ranks share is kept by the lowest rank that maps it for writing. What a process outside
the ranks (the launcher) may write too cannot be taken back under it: it has to be as it was.

What ranks have sent each other and not received yet is in the kernel, and would be lost, or come
twice: with anything in a socket or a pipe neither `keep` nor `put_back` is possible. What they have
written to files, terminals, or pipes that lead out of the job stays written: a job that is put back
writes it again as it runs on. What has come from outside in the meantime (standard input,
messages of the launcher) was received, and does not come again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, CrdebugError, GdbError, Refused
from crdebug.base.ranks import RankSet
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.target import KeptInfo, Target, TargetState
from crdebug.node import in_flight, proc, sharing

_LOG = "/run/crdebug/time/"  # what is recorded of a run stays recorded
_SHARE_TO_COPY = 4  # of the memory that is free, one part in so many, for all ranks together
_SHARED_MEMORY = ("/dev/shm/", "/dev/zero")


@dataclass(frozen=True, slots=True)
class KeptJob:
    """A snapshot of all ranks. ranks: by rank, what its part takes."""

    name: str
    ranks: Mapping[int, KeptInfo]

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.ranks.values())

    @property
    def changed(self) -> int:
        """What no snapshot before it shares: about what the memory of all GDBs grew by."""
        return sum(each.changed for each in self.ranks.values())

    @property
    def changed_most(self) -> int:
        """Of the rank that has changed most."""
        return max((each.changed for each in self.ranks.values()), default=0)

    @property
    def frozen(self) -> bool:
        """Is the part of each rank a frozen clone?"""
        return all(each.frozen for each in self.ranks.values())


class Snapshots:
    """The snapshots of a job's ranks. Verbs must not overlap; every rank has to be stopped."""

    def __init__(self, group: TargetGroup) -> None:
        self._group = group
        self._kept: dict[str, KeptJob] = {}

    @property
    def kept(self) -> tuple[KeptJob, ...]:
        """The oldest first. Whether one can still be put back, `obstacles` tells."""
        return tuple(self._kept.values())

    async def keep(self, name: str, deadline: Deadline) -> KeptJob:
        """Keep all ranks as they are, under a name; one of that name is replaced.

        Raises Refused, with nothing kept, when something is in flight or a rank cannot be kept.
        """
        targets = self._targets("keep a snapshot")
        pids = _pids(targets)
        problems = _in_flight(pids)
        if problems:
            raise Refused(f"cannot keep a snapshot: {'; '.join(problems)}")
        ranges = _ranges(pids)
        most = proc.available_memory() // _SHARE_TO_COPY // len(targets)
        answers = await asyncio.gather(
            *(each.keep(name, ranges[each.rank], deadline, most) for each in targets),
            return_exceptions=True,
        )
        kept: dict[int, KeptInfo] = {}
        for target, answer in zip(targets, answers, strict=True):
            if isinstance(answer, BaseException):
                await self._forget(name, deadline)
                raise answer
            kept[target.rank] = answer
        self._kept.pop(name, None)
        self._kept[name] = KeptJob(name, kept)
        return self._kept[name]

    def has(self, name: str) -> bool:
        """Do all ranks have it still? A checkpoint ends frozen ones."""
        return name in self._kept and all(
            self._group[rank].has_kept(name) for rank in self._group.ranks
        )

    async def obstacles(self, name: str, deadline: Deadline) -> tuple[str, ...]:
        """Why `put_back` would be refused now, as lines that name the rank; empty if it would not.

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
        return (*found, *_in_flight(_pids(targets)))

    async def put_back(
        self,
        name: str,
        deadline: Deadline,
        around: Callable[[], AbstractAsyncContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """Make all ranks what they were when the snapshot was kept.

        around: the time in which ranks may be at different times. All of them are held then, also
        if we and their GDBs die: by a SIGSTOP each, which is no part of what is put back.
        Raises Refused, with nothing done, if any of them cannot be; GdbError when it fails
        half-way: what is left of the job is of no use then.
        """
        problems = await self.obstacles(name, deadline)
        if problems:
            raise Refused(f"cannot go back in memory: {'; '.join(problems)}")
        targets, begun = self._targets("go back in memory"), False
        try:
            await _all(targets, lambda each: each.hold(deadline))
            async with around():
                begun = True
                await _all(targets, lambda each: each.put_memory_back(name, deadline))
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

    async def forget(self, name: str, deadline: Deadline) -> None:
        """Give its memory back. Raises BadInput if there is no snapshot of that name."""
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
    """A part of going back, by all ranks at once. Raises GdbError."""
    done = await asyncio.gather(*map(do, targets), return_exceptions=True)
    failed = {
        target.rank: outcome
        for target, outcome in zip(targets, done, strict=True)
        if isinstance(outcome, BaseException)
    }
    for outcome in failed.values():
        if isinstance(outcome, CrdebugError):
            raise GdbError(
                f"only part of the job was put back: {outcome.clause()}",
                "put-back",
                ranks=RankSet.of(failed),
                hint="restart it from a checkpoint",
            ) from outcome
        raise outcome


def _pids(targets: Iterable[Target]) -> dict[int, int]:
    return {each.rank: each.pid for each in targets if each.pid is not None}


def _ranges(pids: Mapping[int, int]) -> dict[int, tuple[str, ...]]:
    """By rank, the shared mappings that it keeps, as gdbscripts/snapshot/commands.py wants them.

    Raises Refused when a rank shares memory with a device, which is not to be read or written.
    """
    ours = set(pids.values())
    everybody = proc.processes_in_namespace_of(next(iter(pids.values())))
    outside = sharing.written_by(pid for pid in everybody if pid not in ours)
    taken: set[tuple[str, int, int, int]] = set()
    found: dict[int, tuple[str, ...]] = {}
    for rank, pid in sorted(pids.items()):
        ranges = []
        for each in sharing.shared_mappings(pid):
            if not each.writable or each.identity in taken or each.path.startswith(_LOG):
                continue
            if each.path.startswith("/dev/") and not each.path.startswith(_SHARED_MEMORY):
                raise Refused(
                    f"cannot keep a snapshot: memory of the device {each.path} is in use",
                    ranks=RankSet.of([rank]),
                )
            taken.add(each.identity)
            mark = "=" if each.file in outside else ""
            ranges.append(f"{mark}{each.start:x}-{each.end:x}")
        found[rank] = tuple(ranges)
    return found


def _in_flight(pids: Mapping[int, int]) -> tuple[str, ...]:
    """What lies in sockets and pipes of the ranks, as lines."""
    try:
        return tuple(
            f"rank {rank}: {channel}"
            for rank, pid in pids.items()
            for channel in in_flight.in_flight(pid)
        )
    except ProcessLookupError:
        return ("a rank has ended",)
