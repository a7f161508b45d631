"""A second job beside a session's: the end of another branch, in a container of its own.

It is restored from a checkpoint of that branch, taken to the branch's end, looked at, and ended.
The session's job stands still meanwhile. Files that both have open for writing are the session's
job's: the second one gets copies of them as they were, by their names.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from crdebug.attached.gdbs import launch_group
from crdebug.attached.job import AttendedJob
from crdebug.base.events import Event
from crdebug.base.instant import Cut
from crdebug.base.ranks import RankSet
from crdebug.checkpoint.manifest import Manifest
from crdebug.checkpoint.store import CheckpointStore
from crdebug.debugger.group import TargetGroup
from crdebug.job import branch_files, clocks
from crdebug.job.directory import BESIDE, JobDirectory
from crdebug.job.incarnation import Incarnation
from crdebug.native.matcher.library import Library
from crdebug.node import owners
from crdebug.travel.call_sites import show_callers
from crdebug.travel.replay import Replay


class _Directory(JobDirectory):
    """The second job's directory: inside the first one's, with the same checkpoints."""

    def __init__(self, first: JobDirectory) -> None:
        super().__init__(first.name)
        self.path = first.path / BESIDE

    @property
    def has_own_files(self) -> bool:
        return True


@contextlib.asynccontextmanager
async def beside(
    job: AttendedJob,
    library: Library,
    manifest: Manifest,
    store: CheckpointStore,
    logs: Path,
    cut: Cut,
) -> AsyncIterator[TargetGroup]:
    """The ranks of a second job that stand at a cut. library: reads its record.  logs: the
    branch's, in a run directory.

    Raises Refused when there is no memory for it beside the first one, CrdebugError.
    """
    directory = _Directory(job.directory)
    shutil.rmtree(directory.path, ignore_errors=True)
    directory.create()
    async with contextlib.AsyncExitStack() as undo:
        undo.callback(shutil.rmtree, directory.path, ignore_errors=True)
        record = replace(job.record, incarnation=0, pid=0, start=0, boot="")
        directory.write(record)
        owners.make_private(directory.run(0))
        await asyncio.to_thread(branch_files.copy, logs, directory.run(0))
        ranks = RankSet.of(rank.rank for rank in manifest.ranks)
        group = await launch_group(ranks, manifest.signal, job.settings)
        undo.push_async_callback(group.close)
        second = AttendedJob(group, Incarnation(directory, record), job.settings, _deaf)
        undo.push_async_callback(second.end)
        await second.restart(manifest, store)
        await second.give_input_again()
        found = clocks.find(second.holds, record.layer)
        await Replay(second, library, found, cut, None).run()
        await show_callers(group, group.ranks, record.layer)
        yield group


def _deaf(event: Event) -> None:
    """Nobody hears of the second job's events."""
