"""Take a job's image, with or without a debugger; see crdebug.job.restoring."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from crdebug.acquire.binaries import build_id, mapped_programs
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrsFailed, OfTheMoment
from crdebug.base.ranks import RankSet
from crdebug.checkpoint import shared_memory
from crdebug.checkpoint.crs import Crs
from crdebug.checkpoint.hashing import RunningHashes
from crdebug.checkpoint.images import memory
from crdebug.checkpoint.manifest import VERSION, Base, Binary, Manifest, RankRecord, ThreadRecord
from crdebug.checkpoint.open_files import SavedFile, copy_ahead, find_open_files, save, size_of
from crdebug.checkpoint.store import Checkpoint, Draft
from crdebug.job import clocks, host_resources, saved_logs, standard_input
from crdebug.job import incremental_parent as bases
from crdebug.job.holds import with_shims
from crdebug.job.incarnation import Incarnation
from crdebug.job.restored_variables import broken_calls
from crdebug.job.restoring import OUTPUT, Restoring, find_crs, memory_of
from crdebug.node import files_used, proc, process_tree, signals, unprivileged
from crdebug.node.container import Container

P = ParamSpec("P")
T = TypeVar("T")

_MUCH = 256 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Stand:
    """A rank's stop as its debugger saw it. TIDs are those inside the job.

    selected: the TID of the debugger's selected thread.
    """

    threads: tuple[ThreadRecord, ...]
    selected: int
    location: str


@dataclass(frozen=True, slots=True)
class Frozen:
    """State outside of the images, noted while the whole job was frozen.

    inside: by rank, its PID in the job's namespace.
    now: by rank, its clock, if it has one.
    programs: the files that are mapped as code.
    first: the PID of the job's first process, in its namespace.
    mounts: see Manifest.
    """

    inside: Mapping[int, int]
    now: Mapping[int, int]
    saved: tuple[SavedFile, ...]
    programs: tuple[str, ...]
    first: int
    mounts: dict[str, str]


@dataclass(frozen=True, slots=True)
class Image:
    """The facts about a dump in a draft, besides the images themselves.

    ended: the ranks that had ended.
    taken: seconds since 1970; later work of the job may be lost.
    bases: the checkpoints that the images build on.
    tracked: the next images may build on these.
    memory: bytes that a restart needs.
    began: when the CRS began (time.monotonic).
    paused: seconds that it took.
    copied: bytes of files that were copied meanwhile.
    """

    job: Incarnation
    draft: Draft
    crs: str
    frozen: Frozen
    ended: tuple[RankRecord, ...]
    hashes: Mapping[Path, tuple[int, str]]
    taken: float
    bases: tuple[Base, ...]
    tracked: bool
    memory: int
    began: float
    paused: float
    copied: int

    @property
    def told(self) -> str:
        """A note about files that kept the job stopped for long; "" if none did."""
        if self.copied < _MUCH:
            return ""
        return (
            f"{self.copied >> 20} MiB of files that the job has open for writing were copied "
            f"while it was stopped, {self.paused:.0f} s in all"
        )


_NOT_SEEN = Stand((), 0, "")


class Imaging(Restoring):
    """Dumps and restores of one job. store: the checkpoints' place, if not the job's usual one."""

    async def dump(
        self,
        job: Incarnation,
        *,
        running: bool,
        stop: bool = False,
    ) -> Image:
        """Write the images into a fresh draft; the job goes on afterwards.

        running: its threads do not wait for a debugger, so the job may also end meanwhile.
        stop: leave it stopped by SIGSTOP, in the state that the image has, until SIGCONT.
        Raises Refused, CrsFailed or StoreError, after removing the draft.
        """
        record = job.record
        if record.adopted:
            host_resources.require_dumpable(process_tree.of_job(record.pid))
        elif os.geteuid() != 0:
            unprivileged.refuse_what_cannot_be_saved(process_tree.of_job(record.pid))
        crs = await asyncio.to_thread(find_crs, self.directory, record)
        # Automatic checkpoints are not deleted in the order in which they were taken.
        own = self.store is not self.directory.store
        tracked = crs.tracks and self.settings.full_every > 1 and not own
        every = self.settings.full_every
        base = await asyncio.to_thread(bases.find, job.run, self.store, every) if tracked else None
        dump = functools.partial(self._dump, job, crs, running=running, stop=stop, tracked=tracked)
        try:
            return await dump(base)
        except CrsFailed:
            if base is None or not job.alive:
                raise
        except OfTheMoment:
            if not running:
                raise
        return await dump(None)  # a full one, which builds on no other

    async def _dump(
        self,
        job: Incarnation,
        crs: Crs,
        base: Manifest | None,
        *,
        running: bool,
        stop: bool,
        tracked: bool,
    ) -> Image:
        store, record = self.store, job.record
        pids = process_tree.of_job(record.pid)
        open_now = find_open_files(pids, container=not record.adopted)
        copied = size_of(open_now)
        if self._goes_elsewhere:
            copied += saved_logs.size_of(job.run)
        within = Container(record.keeper) if record.keeper else None
        if within is not None:
            copied += shared_memory.size_of(within.shared_memory)
        store.require_space(memory_of(pids) + copied)
        draft = store.begin()
        ahead: dict[str, Path] = {}

        async def while_frozen(pid: int) -> Frozen:
            pids = process_tree.of_job(pid)
            frozen = await self._look(job, pids, draft, ahead)
            if running:
                # The CRS has interrupted system calls in the job itself, not only in the image.
                calls = broken_calls(draft.images)
                for shim in with_shims(job.holds):
                    if not shim.waits_for_debugger():
                        shim.make_calls_again(calls)
            if stop:
                signals.kill_all(pids, signals.STOP)
            return frozen

        try:
            if running:  # copying before the job stops does not delay it
                ahead = await _whole(copy_ahead, open_now, draft.files)
                copied -= size_of(file for file in open_now if file.path in ahead)
            hashing = RunningHashes(draft.images)
            taken, began = time.time(), time.monotonic()
            if tracked:  # the dump resets the kernel's record of changes, even if it fails
                bases.forget(job.run)
            try:
                frozen = await crs.dump(
                    record.pid,
                    draft.images,
                    while_frozen,
                    Deadline(self.settings.dump),
                    container=within,
                    track=tracked,
                    base=store.path(base.number) / "images" if base is not None else None,
                )
                paused = time.monotonic() - began
                size = await asyncio.to_thread(memory, draft.images)
            finally:
                hashes = await asyncio.to_thread(hashing.finish)
        except BaseException:
            store.discard(draft)
            raise
        chain = (Base(base.number, base.identity), *base.bases) if base is not None else ()
        return Image(
            job=job,
            draft=draft,
            crs=crs.name,
            frozen=frozen,
            ended=_ended(job),
            hashes=hashes,
            taken=taken,
            bases=chain,
            tracked=tracked,
            memory=size,
            began=began,
            paused=paused,
            copied=copied,
        )

    @property
    def _goes_elsewhere(self) -> bool:
        """Are these checkpoints copied to a second place?"""
        return self.directory.stage is not None and self.store is self.directory.store

    async def _look(
        self, job: Incarnation, pids: Sequence[int], draft: Draft, ahead: Mapping[str, Path]
    ) -> Frozen:
        """Save the state of these frozen processes that is not in the images. ahead: by path,
        copies of open files that were made while the processes still ran."""
        record = job.record
        _refuse_files_of_threads(job, pids)
        files = find_open_files(pids, container=not record.adopted)
        saved = await _whole(save, files, draft.files, ahead)
        if record.adopted:
            noted = host_resources.note(pids, [file.path for file in saved])
            host_resources.write(noted, draft.run)
        else:
            root = Container(record.keeper).shared_memory
            await _whole(shared_memory.sweep_aside, pids, root)
            await _whole(shared_memory.save, root, draft.shared)
        frozen = Frozen(
            inside={hold.rank: proc.inner_pid(hold.pid) for hold in job.holds},
            now={each.rank: int(each.read().now) for each in clocks.find(job.holds, record.layer)},
            saved=saved,
            programs=mapped_programs(pids),
            first=proc.inner_pid(record.pid),
            mounts=host_resources.mounts_in_use(pids),
        )
        for name in OUTPUT:
            shutil.copyfile(job.run / name, draft.run / name)
        standard_input.save(job.run, draft.run)
        if self._goes_elsewhere:
            await _whole(saved_logs.save, job.run, draft.run)
        return frozen

    async def publish(
        self,
        image: Image,
        *,
        note: str,
        stands: Mapping[int, Stand] | None,
    ) -> Checkpoint:
        """Turn a dump into a checkpoint. stands: by rank; None without a debugger."""
        record, frozen = image.job.record, image.frozen
        ranks = [*image.ended]
        for hold in image.job.holds:
            stand = (stands or {}).get(hold.rank, _NOT_SEEN)
            ranks.append(
                RankRecord(
                    rank=hold.rank,
                    pid=frozen.inside[hold.rank],
                    executable=hold.entry.executable,
                    location=stand.location,
                    threads=stand.threads,
                    selected=stand.selected,
                    now=frozen.now.get(hold.rank, 0),
                )
            )
        system = os.uname()
        manifest = Manifest(
            version=VERSION,
            job=record.name,
            number=image.draft.number,
            time=image.taken,
            note=note,
            debugger=stands is not None,
            incarnation=record.incarnation,
            argv=record.argv,
            directory=record.directory,
            host=system.nodename,
            kernel=system.release,
            crs=image.crs,
            shim=record.shim,
            layer=record.layer,
            branch=record.branch,
            signal=record.signal,
            added=record.added,
            first=frozen.first,
            mounts=frozen.mounts,
            ranks=tuple(sorted(ranks, key=lambda each: each.rank)),
            binaries=tuple(Binary(path, build_id(path)) for path in frozen.programs),
            saved=frozen.saved,
            files={},
            bases=image.bases,
            memory=image.memory,
            paused=image.paused,
            latency=0.0,
        )
        store = self.store
        taken = await asyncio.to_thread(
            store.publish, image.draft, manifest, image.hashes, image.began
        )
        if image.tracked:
            bases.note(image.job.run, taken.number)
        return taken


def _refuse_files_of_threads(job: Incarnation, pids: Sequence[int]) -> None:
    """Raises OfTheMoment. CRIU 4.2.1 saves such a file, and then fails to open it: it makes the
    threads of a process after that."""
    for pid in pids:
        for name in files_used.of_threads(pid):
            raise OfTheMoment(
                f"a file of a thread is open ({name}), which no restart could open again",
                ranks=RankSet.of(hold.rank for hold in job.holds if hold.pid == pid),
                hint="most are open for microseconds, as in pthread_setname_np(3): go on a little",
            )


def _ended(job: Incarnation) -> tuple[RankRecord, ...]:
    """A checkpoint's records of the ranks that have ended."""
    logs = clocks.logs(job.run)
    ends = {rank: int(clocks.end(logs / str(rank))) for rank in job.ended}
    return tuple(RankRecord(rank, 0, "", "ended", (), 0, end) for rank, end in ends.items())


async def _whole(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Run a function in a thread, and wait for its end even when cancelled, because it writes into
    a draft that is then removed."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments, **options))
    try:
        return await asyncio.shield(work)
    finally:
        await asyncio.wait({work})
