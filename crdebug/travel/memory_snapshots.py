"""Snapshots of the job in memory: the near ones of the states that can be brought back.

What the ranks write between a snapshot and its being put back is written again as they run on; so
the job's own output is taken back to the length that it had. It has come through the launcher,
which is not put back: a snapshot is taken only when nothing is on its way through it, nor in a
rank's standard input; so what the ranks have read since is what was sent since.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from crdebug.attached.job import AttendedJob
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, Refused
from crdebug.base.ranks import RankSet
from crdebug.debugger.job_snapshot import Snapshots
from crdebug.job import half_back
from crdebug.node import proc, process_tree
from crdebug.node.leaderless import leader_has_ended
from crdebug.travel.restore_points import Base

_MOST = 8
_PATIENCE = 2.0  # seconds for the launcher to pass on what the ranks have written


@dataclass(frozen=True, slots=True)
class _Kept:
    """output: how much the job had written.  input: and was sent.  bytes: what it takes that those
    before do not."""

    base: Base
    output: tuple[int, ...]
    input: int
    bytes: int


class Near:
    """The snapshots of one job, the oldest of which are given up for new ones. leaving: the ranks
    that leave their call when they go on, see Base."""

    def __init__(self, job: AttendedJob, leaving: Callable[[], frozenset[int]]) -> None:
        self._job = job
        self._leaving = leaving
        self._snapshots = Snapshots(job.group)
        self._kept: list[_Kept] = []
        self._count = 0
        self.why_not = ""  # why the last one could not be kept, for people

    def bases(self) -> list[Base]:
        incarnation = self._job.record.incarnation
        return [each.base for each in self._kept if each.base.incarnation == incarnation]

    def has(self, name: str) -> bool:
        """Is there a snapshot of that name, of this incarnation?"""
        return any(base.kept == name for base in self.bases())

    async def keep(self, cut: tuple[int, ...]) -> Base | None:
        """Keep the stopped job as it is; None if that cannot be, for the reason `why_not`."""
        for known in self.bases():
            if (known.cut, known.branch) == (cut, self._job.record.branch):
                return known
        await self._forget_old()
        self._count += 1
        record = self._job.record
        name = f"s{self._count}"
        base = Base(
            cut,
            kept=name,
            incarnation=record.incarnation,
            branch=record.branch,
            leaving=self._leaving(),
        )
        try:
            self._require_leaders()
            await self.drained()
            taken = await self._snapshots.keep(base.kept, self._deadline())
        except CrdebugError as error:
            self.why_not = error.clause()
            return None
        sizes = self._job.output_sizes(), self._job.input_size()
        self._kept.append(_Kept(base, *sizes, taken.changed))
        bound = proc.available_memory() // 4
        while len(self._kept) > 1 and sum(each.bytes for each in self._kept) > bound:
            await self._forget(self._kept[0])
        return base

    async def put_back(self, base: Base) -> None:
        """Raises Refused when the processes are not what they were, apart from their memory."""
        kept = next(each for each in self._kept if each.base == base)
        try:
            if kept.input != self._job.input_size():
                raise Refused("the job was sent input since that snapshot, and may have read it")
            self._require_leaders()
            await self.drained()
            await self._snapshots.put_back(
                base.kept, self._deadline(), lambda: self._half_back(kept)
            )
        except CrdebugError:
            await self._forget(kept)
            raise

    @contextlib.asynccontextmanager
    async def _half_back(self, kept: _Kept) -> AsyncIterator[None]:
        """Around the time in which ranks, or the output, are not what they were together."""
        half_back.begin(self._job.run_directory)
        yield
        await self._job.rewind_output(kept.output)
        half_back.done(self._job.run_directory)

    def _require_leaders(self) -> None:
        """Raises Refused when a rank's main thread has ended: the memory is read and written by it,
        and nothing but a checkpoint brings it back."""
        gone = RankSet.of(hold.rank for hold in self._job.holds if leader_has_ended(hold.pid))
        if gone:
            raise Refused("its main thread has ended (pthread_exit)", ranks=gone)

    async def _forget_old(self) -> None:
        incarnation = self._job.record.incarnation
        for kept in [each for each in self._kept if each.base.incarnation != incarnation]:
            await self._forget(kept)
        while len(self._kept) >= _MOST:
            await self._forget(self._kept[0])

    async def _forget(self, kept: _Kept) -> None:
        self._kept.remove(kept)
        await self._snapshots.forget(kept.base.kept, self._deadline())

    async def drained(self) -> None:
        """Until the launcher has nothing to do: what the ranks have written is where it belongs."""
        ranks = {hold.pid for hold in self._job.holds}
        others = [pid for pid in process_tree.of_job(self._job.record.pid) if pid not in ranks]

        def idle() -> bool:
            return all(thread.state == "S" for pid in others for thread in proc.threads(pid))

        try:
            await Deadline(_PATIENCE).until(idle, "the launcher to be idle")
        except ProcessLookupError:
            raise Refused("the job is ending") from None

    def _deadline(self) -> Deadline:
        return Deadline(self._job.settings.command)
