"""Bring a job back from an image, with or without a debugger."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path

from crdebug.acquire.binaries import build_id
from crdebug.acquire.mpir import ProcDesc, acquire
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrsFailed, NotAvailable, Refused, StoreError
from crdebug.base.events import Event, Progress
from crdebug.base.settings import Settings
from crdebug.checkpoint import ghosts, shared_memory
from crdebug.checkpoint.commit import Plan
from crdebug.checkpoint.criu import Criu
from crdebug.checkpoint.crs import Crs
from crdebug.checkpoint.image_edits import link
from crdebug.checkpoint.images import require_open
from crdebug.checkpoint.manifest import Manifest
from crdebug.checkpoint.open_files import RollBack
from crdebug.checkpoint.store import CheckpointStore
from crdebug.job import (
    app_requests,
    clocks,
    host_resources,
    native_parts,
    saved_logs,
    standard_input,
)
from crdebug.job.directory import JobDirectory, JobRecord, is_alive
from crdebug.job.holds import find_holds
from crdebug.job.incarnation import Incarnation
from crdebug.job.restored_variables import set_variables
from crdebug.node import container, memory, owners, proc, process_tree, programs
from crdebug.node.container import Container
from crdebug.node.criu_program import find_criu
from crdebug.node.ptrace import Held, held_container

OUTPUT = ("stdout", "stderr", "events")
NO_MEMORY_FOR_BOTH = Progress("restart", "end the job first: there is no memory for both")
SAME_PLACE = Progress("restart", "end the job first: it comes back under its old PIDs")
_TO_BIND = 60.0  # seconds; it takes none, unless a file server does not answer
_SPARE = 64 << 20  # bytes of memory, for the CRS and for everything that the estimate leaves out


def find_crs(directory: JobDirectory, record: JobRecord) -> Crs:
    """The CRS that works here, with the job's own starter. Raises NotAvailable, StoreError."""
    program = find_criu()
    if program is None:
        raise NotAvailable(
            "there is no CRIU that works on this kernel",
            hint="'crdebug doctor' says why; 'crdebug setup' installs one",
        )
    return Criu(program, native_parts.starter(directory, record))


class Restoring:
    """Restores of one job. store: the checkpoints' place, if not the job's usual one."""

    def __init__(
        self, directory: JobDirectory, settings: Settings, store: CheckpointStore | None = None
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.store = store or directory.store

    def check(self, manifest: Manifest, record: JobRecord) -> None:
        """Can this checkpoint be restarted here and now? Raises StoreError, naming the file."""
        native_parts.put_back(self.directory, record)
        for binary in manifest.binaries:
            now = build_id(binary.path)
            if now != binary.build_id:
                what = "is missing" if not now else "has changed since the checkpoint"
                raise StoreError(
                    f"{binary.path} {what}",
                    hint="put the old one back: an image only works with the programs of its job",
                )
        self.store.verify(manifest)
        home = self.store.path(manifest.number)
        require_open(home / "images", manifest.saved)
        if manifest.layer:
            old = self.directory.run(record.incarnation)
            saved_logs.require(home / "images", home / "run", old)
        self._require_mounts(manifest)

    def _require_mounts(self, manifest: Manifest) -> None:
        """Raises StoreError if a mount is gone on which the job has files open."""
        now = {mount.point for mount in proc.mounts(os.getpid())}
        if gone := sorted(manifest.mounts.keys() - now):
            raise StoreError(
                f"the job uses {', '.join(gone)}, where nothing is mounted now",
                hint=f"mount {'it' if len(gone) == 1 else 'them'} again, as at the checkpoint",
            )

    def why_end_first(self, manifest: Manifest, record: JobRecord) -> Progress | None:
        """Why a checkpoint's processes cannot be brought back beside the present ones; None if they
        can.

        Raises Refused if there is not enough memory for them even without the present ones.
        """
        if record.adopted:
            return SAME_PLACE
        needed, free = manifest.memory, memory.available()
        if needed + _SPARE <= free:
            return None
        pids = process_tree.of_job(record.pid) if is_alive(record) else ()
        free += memory_of(pids)
        if needed > free:
            raise Refused(
                f"a restart needs {needed >> 20} MiB of memory, "
                f"but only {free >> 20} MiB is available",
                hint="end other programs first",
            )
        return NO_MEMORY_FOR_BOTH

    async def before_the_end(self, manifest: Manifest, record: JobRecord) -> None:
        """Make all checks that are possible while the job that will be replaced still exists.

        Raises StoreError, Refused; then nothing is lost.
        """
        await asyncio.to_thread(self.check, manifest, record)
        if record.adopted:
            needed = host_resources.read(self.store.path(manifest.number) / "run")
            own = is_alive(record)
            await host_resources.require(needed, process_tree.of_job(record.pid) if own else ())

    async def replace(
        self,
        manifest: Manifest,
        record: JobRecord,
        *,
        debugger: bool,
        end: Callable[[], Awaitable[None]],
        tell: Callable[[Event], None],
    ) -> Incarnation:
        """`restore`, after the `end` of the present incarnation if both cannot exist at once."""
        why = self.why_end_first(manifest, record)
        if why is not None:
            await self.before_the_end(manifest, record)
            tell(why)
            await end()
        return await self.restore(manifest, record, debugger=debugger)

    async def restore(
        self, manifest: Manifest, record: JobRecord, *, debugger: bool
    ) -> Incarnation:
        """Bring a checkpoint back as the next incarnation, instead of the present one.

        The old one is stopped meanwhile. Once the new one is complete, another process ends the old
        one, rolls back its files, and makes the new one the job; we need not survive for that. On
        failure everything is as before, unless the old one has been ended by then: then we try once
        more, and if that fails too, the job has ended.

        debugger: threads wait for one; otherwise they run.
        Raises CrsFailed, StoreError, Refused.
        """
        await asyncio.to_thread(self.check, manifest, record)
        crs = await asyncio.to_thread(find_crs, self.directory, record)
        if record.adopted:
            await host_resources.require(
                host_resources.read(self.store.path(manifest.number) / "run")
            )
        had_one = is_alive(record)
        try:
            new = await self._replace(manifest, record, crs, debugger)
        except CrsFailed:
            now = self.directory.read()
            passed = now.incarnation != record.incarnation or (had_one and not is_alive(now))
            if not passed:
                raise
            new = await self._replace(manifest, now, crs, debugger)
        self.directory.forget_runs(new.record.incarnation)
        return new

    async def _replace(
        self, manifest: Manifest, record: JobRecord, crs: Crs, debugger: bool
    ) -> Incarnation:
        async with self._standing_still(record) as old:
            try:
                return await self._bring_back(manifest, record, crs, debugger)
            finally:
                if old is not None and not is_alive(record):
                    old.kill()  # it was ended: nothing must be resumed

    @contextlib.asynccontextmanager
    async def _standing_still(self, record: JobRecord) -> AsyncIterator[Held | None]:
        if not is_alive(record):
            yield None
            return
        async with held_container(record.pid, Deadline(self.settings.stop)) as held:
            yield held

    async def _bring_back(
        self, manifest: Manifest, record: JobRecord, crs: Crs, debugger: bool
    ) -> Incarnation:
        home = self.store.path(manifest.number)
        incarnation = record.incarnation + 1
        run = self.directory.run(incarnation)
        rollback = RollBack(manifest.saved, home / "files", self.directory.made(incarnation))

        async def once_whole(pid: int) -> tuple[Path, Incarnation]:
            entries = entries_of(manifest) if record.adopted else acquire(pid)
            holds = find_holds(entries, manifest.shim, adopted=record.adopted)
            set_variables(holds, manifest, home / "images", debugger=debugger)
            if not debugger:
                clocks.let_go(holds, manifest.layer)
            if self.store is self.directory.store:  # no program sees automatic checkpoints
                times = 0 if debugger and manifest.layer else record.incarnation
                app_requests.brought_back(holds, manifest.shim, times, manifest.number)
            new = replace(
                record,
                incarnation=incarnation,
                keeper=within.keeper if within is not None else 0,
                pid=pid,
                start=proc.started(pid),
                boot=proc.boot_id(),
                branch=manifest.branch,
            )
            old = _all_of(record) if is_alive(record) else ()
            steps = () if self.directory.has_own_files else rollback.steps()
            record_of = self.directory.write_next(new)
            plan = Plan({each: proc.started(each) for each in old}, steps, record_of)
            return plan.write(run / "final"), Incarnation(self.directory, new, holds)

        within: Container | None = None
        async with contextlib.AsyncExitStack() as undo:
            rollback.give_up()  # files that an earlier crdebug created before it died
            self.directory.new_run(incarnation)
            undo.callback(self._forget_run, incarnation)
            for name in OUTPUT:
                shutil.copyfile(home / "run" / name, run / name)
                (run / name).chmod(0o600)  # as the starter made it; the CRS compares
            standard_input.bring_back(home / "run", self.directory.run(record.incarnation), run)
            if manifest.layer:
                saved_logs.bring_back(home / "run", self.directory.run(record.incarnation), run)
            if not self.directory.has_own_files:
                undo.callback(self._give_up, rollback, incarnation)
                await _to_its_end(rollback.prepare)
            undo.callback(_forget_ghosts, home / "images", record)
            began = proc.started_now()
            undo.push_async_callback(
                container.end_all,
                lambda: _begun(record, run, home / "run", began),
                Deadline(self.settings.restore + self.settings.stop),
            )
            paths = {file.path for file in manifest.saved}
            images = link(home / "images", run / "images", paths)
            limit = Deadline(self.settings.restore)
            if record.adopted:
                told = host_resources.read(home / "run").pipes
                with open(run / "stdout", "ab") as output:
                    instead = dict.fromkeys(told, output.fileno())
                    new = await crs.restore(
                        images, once_whole, limit, container=None, instead=instead
                    )
            else:
                starter = native_parts.starter(self.directory, record)
                async with container.for_restore(
                    starter, manifest.first, manifest.host, run, limit
                ) as (within, passed):
                    shared = home / "run" / shared_memory.DIRECTORY
                    await asyncio.to_thread(shared_memory.put_back, shared, within.shared_memory)
                    if self.directory.has_own_files:
                        plan = await asyncio.to_thread(_binds, rollback, run)
                        await _bind(starter, within, plan)
                    new = await crs.restore(
                        images, once_whole, limit, container=within, passed=passed
                    )
            undo.pop_all()
        for hold in new.holds if not debugger else ():
            if not hold.has_shim:  # nothing inside the rank can do that
                hold.open()
        shutil.rmtree(run / "images", ignore_errors=True)
        for name in ("final", "made"):
            (run / name).unlink(missing_ok=True)
        return new

    def _give_up(self, rollback: RollBack, incarnation: int) -> None:
        if not self._is_final(incarnation):
            rollback.give_up()

    def _forget_run(self, incarnation: int) -> None:
        if not self._is_final(incarnation):  # else the job may be brought back from there
            shutil.rmtree(self.directory.run(incarnation), ignore_errors=True)

    def _is_final(self, incarnation: int) -> bool:
        """Has it become the job?"""
        return self.directory.read().incarnation == incarnation


def _binds(rollback: RollBack, run: Path) -> Path:
    """Copy the files for a job that needs its own, and write the plan that binds them into its
    view."""
    inside = Path(container.JOB_DIRECTORY) / "files"
    copies = rollback.copy_into(run / "files")
    return Plan(binds={path: str(inside / copies[path].name) for path in copies}).write(
        run / "begun"
    )


async def _bind(starter: Path, within: Container, plan: Path) -> None:
    """Carry out a plan inside a container. Raises StoreError."""
    command = container.entering(starter, within.keeper, [str(starter), "--carry-out", str(plan)])
    done = await programs.run(command, Deadline(_TO_BIND), "the job's files to be put in place")
    if done.status != 0:
        raise StoreError(done.err.strip() or f"{plan} could not be carried out")


def _all_of(record: JobRecord) -> tuple[int, ...]:
    """All processes of a job; its container's keeper comes first, and ends after all others."""
    keeper = (record.keeper,) if record.keeper else ()
    return (*keeper, *process_tree.of_job(record.pid))


def _forget_ghosts(images: Path, record: JobRecord) -> None:
    with contextlib.suppress(StoreError):  # the earlier failure says why
        ghosts.forget(images, container=not record.adopted)


def _begun(record: JobRecord, run: Path, noted: Path, began: int) -> tuple[int, ...]:
    """PIDs left behind by a failed restart. Without a container they are the noted ones, of which
    strangers may have taken some: began: when the restart did, see proc.started."""
    if not record.adopted:
        return container.containers_of(run)
    return tuple(pid for pid in host_resources.read(noted).numbers if _is_new(pid, began))


def _is_new(pid: int, began: int) -> bool:
    """Is it a process of this user's, rather than a thread, that started since then?"""
    try:
        ours = owners.users_of(pid) == {os.geteuid()} and proc.status(pid)["Tgid"] == str(pid)
        return ours and proc.started(pid) >= began and proc.is_alive(pid)
    except (ProcessLookupError, KeyError):
        return False


def entries_of(manifest: Manifest) -> tuple[ProcDesc, ...]:
    """The ranks of a job without a container: they come back with the PIDs that they had."""
    return tuple(
        ProcDesc(rank.rank, manifest.host, rank.executable, rank.pid)
        for rank in manifest.ranks
        if rank.pid
    )


async def _to_its_end(work: Callable[[], None]) -> None:
    """Run a function beside the event loop, and wait for it even when cancelled: it cannot be
    interrupted."""
    task = asyncio.create_task(asyncio.to_thread(work))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def memory_of(pids: Iterable[int]) -> int:
    """Bytes of the memory of processes; those that are gone have none."""
    total = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            total += proc.memory(pid)
    return total
