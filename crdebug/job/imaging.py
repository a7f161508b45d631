"""Taking a job's image and bringing it back, whatever debugger there is or is not."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crdebug.acquire.binaries import build_id, mapped_programs
from crdebug.acquire.mpir import ProcDesc, acquire
from crdebug.checkpoint.criu import Criu
from crdebug.checkpoint.crs import Crs
from crdebug.checkpoint.files import RollBack, SavedFile, find_open_files, save
from crdebug.checkpoint.hashing import RunningHashes
from crdebug.checkpoint.images import memory
from crdebug.checkpoint.manifest import VERSION, Base, Binary, Manifest, RankRecord, ThreadRecord
from crdebug.checkpoint.store import Checkpoint, CheckpointStore, Draft
from crdebug.config import Settings
from crdebug.deadline import Deadline
from crdebug.errors import CrsFailed, NotAvailable, Refused, StoreError
from crdebug.events import Progress
from crdebug.job import app, bases, clocks, inputs, needs
from crdebug.job.ranks import RankShim, find_shims
from crdebug.job.record import JobDirectory, JobRecord, is_alive
from crdebug.job.variables import broken_calls, set_variables
from crdebug.node import container, family, proc, signals
from crdebug.node.criu_program import find_criu
from crdebug.node.ptrace import Held, held_container

_JOB_MOUNT = "crdebug-job"
OUTPUT = ("stdout", "stderr", "events")
NO_MEMORY_FOR_BOTH = Progress("restart", "end the job first: there is no memory for both")
SAME_PLACE = Progress("restart", "end the job first: it comes back under its old PIDs")
_SPARE = 64 << 20  # bytes of memory, for the CRS and for what its estimate leaves out


def find_crs(record: JobRecord) -> Crs:
    """The CRS that works here. Raises NotAvailable."""
    program = find_criu()
    if program is None:
        raise NotAvailable(
            "there is no CRIU that works on this kernel",
            hint="'crdebug doctor' says why; scripts/setup installs one",
        )
    return Criu(program, Path(record.starter))


@dataclass(frozen=True, slots=True)
class Image:
    """What a dump left in a draft, besides the images themselves.

    inside: by rank, its PID in the job's namespace.  now: by rank, its clock, if it has one.
    programs: the files that are mapped as code.  taken: seconds since 1970; what the job did after
    that may be lost.  bases: what the images build on.  tracked: the next ones may build on these.
    memory: bytes that a restart needs.
    """

    draft: Draft
    mounts: Mapping[str, str]
    crs: str
    inside: Mapping[int, int]
    now: Mapping[int, int]
    saved: tuple[SavedFile, ...]
    programs: tuple[str, ...]
    hashes: Mapping[Path, tuple[int, str]]
    taken: float
    bases: tuple[Base, ...]
    tracked: bool
    memory: int


class Imaging:
    """Dumps and restores of one job. store: the checkpoints' place, if not the job's usual one."""

    def __init__(
        self, directory: JobDirectory, settings: Settings, store: CheckpointStore | None = None
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.store = store or directory.store

    # ---- checkpoint -------------------------------------------------------------------------

    async def dump(
        self,
        record: JobRecord,
        shims: Sequence[RankShim],
        *,
        running: bool,
        stop: bool = False,
    ) -> Image:
        """Write the images into a fresh draft; the job goes on afterwards.

        running: its threads do not wait for a debugger, so that it may also come to its end.
        stop: it is stopped by SIGSTOP where the image has it, and goes on at SIGCONT.
        Raises Refused, CrsFailed or StoreError; the draft is gone then.
        """
        if record.adopted:
            needs.require_dumpable(family.of_job(record.pid))
        crs = await asyncio.to_thread(find_crs, record)
        # What crdebug takes of itself comes and goes in another order than it was taken in.
        own = self.store is not self.directory.store
        tracked = crs.tracks and self.settings.full_every > 1 and not own
        run, every = self.directory.run(record.incarnation), self.settings.full_every
        base = await asyncio.to_thread(bases.find, run, self.store, every) if tracked else None
        dump = functools.partial(
            self._dump, record, shims, crs, running=running, stop=stop, tracked=tracked
        )
        try:
            return await dump(base)
        except CrsFailed:
            if base is None or not is_alive(record):
                raise
            return await dump(None)  # a full one does not depend on what it would build on

    async def _dump(
        self,
        record: JobRecord,
        shims: Sequence[RankShim],
        crs: Crs,
        base: Manifest | None,
        *,
        running: bool,
        stop: bool,
        tracked: bool,
    ) -> Image:
        store, run = self.store, self.directory.run(record.incarnation)
        store.require_space(sum(map(_resident, family.of_job(record.pid))))
        mounts = {} if record.adopted else _mounts_of(record)
        draft = store.begin()
        saved: tuple[SavedFile, ...] = ()
        programs: tuple[str, ...] = ()
        inside: dict[int, int] = {}
        now: dict[int, int] = {}

        async def frozen(pid: int) -> None:
            nonlocal saved, programs
            pids = family.of_job(pid)
            saved = save(find_open_files(pids, container=not record.adopted), draft.files)
            if record.adopted:
                needs.write(needs.note(pids, [file.path for file in saved]), draft.run)
            programs = mapped_programs(pids)
            inside.update((shim.rank, proc.inner_pid(shim.pid)) for shim in shims)
            now.update((each.rank, each.read().now) for each in clocks.find(shims, record.layer))
            for name in OUTPUT:
                shutil.copyfile(run / name, draft.run / name)
            inputs.save(run, draft.run)
            if running:
                # The CRS has broken off system calls in the job itself, not in the image only.
                calls = broken_calls(draft.images)
                for shim in shims:
                    if not shim.waits_for_debugger():
                        shim.make_calls_again(calls)
            if stop:
                stop_all(pids)

        hashing = RunningHashes(draft.images)
        taken = time.time()
        try:
            if tracked:  # from now on nobody knows what has changed since then
                bases.forget(run)
            try:
                await crs.dump(
                    record.pid,
                    draft.images,
                    mounts,
                    frozen,
                    Deadline(self.settings.dump),
                    container=not record.adopted,
                    track=tracked,
                    base=store.path(base.number) / "images" if base is not None else None,
                )
                size = await asyncio.to_thread(memory, draft.images)
            finally:
                hashes = await asyncio.to_thread(hashing.finish)
        except BaseException:
            store.discard(draft)
            raise
        chain = (Base(base.number, base.identity), *base.bases) if base is not None else ()
        return Image(
            draft=draft,
            mounts=mounts,
            crs=crs.name,
            inside=inside,
            now=now,
            saved=saved,
            programs=programs,
            hashes=hashes,
            taken=taken,
            bases=chain,
            tracked=tracked,
            memory=size,
        )

    async def publish(
        self,
        image: Image,
        record: JobRecord,
        shims: Sequence[RankShim],
        *,
        note: str,
        threads: Mapping[int, tuple[ThreadRecord, ...]] | None,
        selected: Mapping[int, int] | None = None,
        locations: Mapping[int, str] | None = None,
    ) -> Checkpoint:
        """Make a dump a checkpoint. threads: by rank; None without a debugger."""
        ranks = tuple(
            RankRecord(
                rank=shim.rank,
                pid=image.inside[shim.rank],
                executable=shim.entry.executable,
                location=(locations or {}).get(shim.rank, ""),
                threads=(threads or {}).get(shim.rank, ()),
                selected=(selected or {}).get(shim.rank, 0),
                now=image.now.get(shim.rank, 0),
            )
            for shim in shims
        )
        system = os.uname()
        manifest = Manifest(
            version=VERSION,
            job=record.name,
            number=image.draft.number,
            time=image.taken,
            note=note,
            debugger=threads is not None,
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
            mounts=dict(image.mounts),
            ranks=ranks,
            binaries=tuple(Binary(path, build_id(path)) for path in image.programs),
            saved=image.saved,
            files={},
            bases=image.bases,
            memory=image.memory,
        )
        store = self.store
        taken = await asyncio.to_thread(store.publish, image.draft, manifest, image.hashes)
        if image.tracked:
            bases.note(self.directory.run(record.incarnation), taken.number)
        return taken

    # ---- restart ----------------------------------------------------------------------------

    def check(self, manifest: Manifest) -> None:
        """Can this checkpoint be restarted here and now? Raises StoreError, naming the file."""
        for binary in manifest.binaries:
            now = build_id(binary.path)
            if now != binary.build_id:
                what = "is missing" if not now else "is another one than at the checkpoint"
                raise StoreError(
                    f"{binary.path} {what}",
                    hint="put the old one back; an image fits only the programs it was made of",
                )
        self.store.verify(manifest)

    def why_end_first(self, manifest: Manifest, record: JobRecord) -> Progress | None:
        """Why a checkpoint's processes cannot be brought back beside those that are there now.

        Raises Refused when there is no memory for them even without those.
        """
        if record.adopted:
            return SAME_PLACE
        needed, free = manifest.memory, proc.available_memory()
        if needed + _SPARE <= free:
            return None
        pids = family.of_job(record.pid) if is_alive(record) else ()
        free += sum(map(_resident, pids))
        if needed > free:
            raise Refused(
                f"a restart needs {needed >> 20} MiB of memory, {free >> 20} MiB can be had",
                hint="end other programs first",
            )
        return NO_MEMORY_FOR_BOTH

    async def before_the_end(self, manifest: Manifest, record: JobRecord) -> None:
        """All that can be looked at while the job that is to be replaced is still there.

        Raises StoreError, Refused; nothing is lost then.
        """
        await asyncio.to_thread(self.check, manifest)
        if record.adopted:
            needed = needs.read(self.store.path(manifest.number) / "run")
            own = is_alive(record)
            await needs.require(needed, family.of_job(record.pid) if own else ())

    async def restore(
        self, manifest: Manifest, record: JobRecord, *, debugger: bool
    ) -> tuple[JobRecord, tuple[RankShim, ...]]:
        """Bring a checkpoint back as the next incarnation, in the place of the one that is there.

        The old one stands still meanwhile, so that it writes into no file that is rolled back, and
        is killed once the new one is there. debugger: threads wait for one; else they run.
        On failure everything is as before. Raises CrsFailed, StoreError, Refused.
        """
        await asyncio.to_thread(self.check, manifest)
        crs = await asyncio.to_thread(find_crs, record)
        if record.adopted:
            await needs.require(needs.read(self.store.path(manifest.number) / "run"))
        async with self._standing_still(record) as old:
            new, shims = await self._bring_back(manifest, record, crs, debugger)
            if old is not None:
                old.kill()
                signals.kill(record.pid, record.start)
        self.directory.forget_runs(new.incarnation)
        return new, shims

    @contextlib.asynccontextmanager
    async def _standing_still(self, record: JobRecord) -> AsyncIterator[Held | None]:
        if not is_alive(record):
            yield None
            return
        async with held_container(record.pid, Deadline(self.settings.stop)) as held:
            yield held

    async def _bring_back(
        self, manifest: Manifest, record: JobRecord, crs: Crs, debugger: bool
    ) -> tuple[JobRecord, tuple[RankShim, ...]]:
        home = self.store.path(manifest.number)
        incarnation = record.incarnation + 1
        shims: tuple[RankShim, ...] = ()

        async def frozen(pid: int) -> None:
            nonlocal shims
            entries = entries_of(manifest) if record.adopted else acquire(pid)
            shims = find_shims(entries, manifest.shim, adopted=record.adopted)
            set_variables(shims, manifest, home / "images", debugger=debugger)
            if self.store is self.directory.store:  # what crdebug takes of itself, no program sees
                times = 0 if debugger and manifest.layer else record.incarnation
                app.brought_back(shims, manifest.shim, times, manifest.number)

        async with contextlib.AsyncExitStack() as undo:
            run = self.directory.new_run(incarnation)
            undo.callback(shutil.rmtree, run, ignore_errors=True)
            for name in OUTPUT:
                shutil.copyfile(home / "run" / name, run / name)
                (run / name).chmod(0o600)  # as the starter made it; the CRS compares
            inputs.bring_back(home / "run", self.directory.run(record.incarnation), run)
            if manifest.layer:
                clocks.take_along(self.directory.run(record.incarnation), run)
            rollback = RollBack(manifest.saved, home / "files", self.directory.undo(record))
            rollback.recover()
            await _to_its_end(rollback.apply)
            undo.push_async_callback(_to_its_end, rollback.undo)
            undo.push_async_callback(
                container.end_all,
                lambda: _begun(record, run, home / "run"),
                Deadline(self.settings.restore + self.settings.stop),
            )
            mounts = {
                name: str(run) if name == _JOB_MOUNT else point
                for point, name in manifest.mounts.items()
            }
            limit = Deadline(self.settings.restore)
            if record.adopted:
                told = needs.read(home / "run").pipes
                with open(run / "stdout", "ab") as output:
                    instead = dict.fromkeys(told, output.fileno())
                    pid = await crs.restore(home / "images", mounts, frozen, limit, instead)
            else:
                pid = await crs.restore(home / "images", mounts, frozen, limit)
            new = replace(
                record,
                incarnation=incarnation,
                pid=pid,
                start=proc.started(pid),
                boot=proc.boot_id(),
                branch=manifest.branch,
            )
            self.directory.write(new)
            undo.pop_all()
        rollback.forget()
        return new, shims


def stop_all(pids: Sequence[int], number: int = signal.SIGSTOP) -> None:
    """Stop processes, or have them go on (SIGCONT)."""
    for pid in pids:
        signals.kill(pid, None, number)


def _mounts_of(record: JobRecord) -> dict[str, str]:
    mounts = {mount.point: mount.point for mount in container.machine_mounts(record.pid)}
    return {**mounts, container.JOB_DIRECTORY: _JOB_MOUNT}


def _begun(record: JobRecord, run: Path, noted: Path) -> tuple[int, ...]:
    """What a restart that failed has left; without a container all had numbers that were free."""
    if not record.adopted:
        return container.containers_of(run)
    return tuple(number for number in needs.read(noted).numbers if proc.is_alive(number))


def entries_of(manifest: Manifest) -> tuple[ProcDesc, ...]:
    """The ranks of a job without a container: they come back with the PIDs that they had."""
    return tuple(
        ProcDesc(rank.rank, manifest.host, rank.executable, rank.pid) for rank in manifest.ranks
    )


async def _to_its_end(work: Callable[[], None]) -> None:
    """Do it beside the event loop, and wait for it even when cancelled: it cannot be broken off."""
    task = asyncio.create_task(asyncio.to_thread(work))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def _resident(pid: int) -> int:
    try:
        return proc.resident(pid)
    except (ProcessLookupError, PermissionError):
        return 0
