"""Carry out the protocol's instructions for a checkpoint or a restart under the debugger."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import msgspec

from crdebug.attached.gdbs import Launch, attach_gdb, end_job, mark_gone, replace_gdb
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, GdbDied
from crdebug.base.events import Event, JobSays, RankRestored, RankStopped
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.checkpoint.driver import RankLost
from crdebug.checkpoint.manifest import Manifest, ThreadRecord
from crdebug.checkpoint.store import Checkpoint
from crdebug.debugger import checkpoint_commands
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.target import Target, TargetState
from crdebug.gdbscripts.wire import NO_CALL, Thread, was_interrupted
from crdebug.job.directory import JobDirectory
from crdebug.job.ended_leaders import refuse_undumpable
from crdebug.job.holds import (
    Hold,
    await_held,
    has_ended,
    hold_of,
    refuse_traced,
    who_ended,
)
from crdebug.job.imaging import Imaging, Stand
from crdebug.job.incarnation import Incarnation
from crdebug.job.taking import Taking
from crdebug.job.waitpoint import who_blocks
from crdebug.node import proc, ptrace


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The places of a rank's threads when it was herded.

    They are kept in a file while the threads are held, so that another crdebug can lead them out if
    this one dies. TIDs are those inside the job.

    selected: the TID of the debugger's selected thread.
    """

    threads: tuple[ThreadRecord, ...]
    selected: int = 0


def calls_to_make_again(threads: tuple[ThreadRecord, ...]) -> dict[int, int]:
    """By TID, the number of the system call that a stop interrupted, or NO_CALL."""
    return {
        each.tid: each.orig_rax if was_interrupted(each.rax, each.orig_rax) else NO_CALL
        for each in threads
    }


async def note_threads(target: Target, deadline: Deadline) -> Whereabouts:
    """The state of each thread, as the rank's GDB sees it."""
    told = await checkpoint_commands.threads(target, deadline)
    inner = {thread.tid: thread.inner for thread in proc.threads(target.pid or 0)}
    threads = tuple(
        ThreadRecord(
            inner[each.tid], each.pc, each.sp, each.rax, each.orig_rax, each.signal.hex(), each.told
        )
        for each in told.all
    )
    return Whereabouts(threads, inner.get(told.selected, 0))


async def lead_out(
    target: Target,
    hold: Hold,
    before: Whereabouts,
    stop: RankStopped | None,
    deadline: Deadline,
) -> None:
    """Make the rank's GDB lead its threads out of the waitpoint, to their places `before`.

    Threads outside the waitpoint stay where they are, and will pass it.
    """
    outer = {thread.inner: thread.tid for thread in proc.threads(hold.pid)}
    inside = hold.inside()
    threads = [
        Thread(outer[each.tid], each.pc, each.sp, each.rax, each.orig_rax, each.told, each.siginfo)
        for each in before.threads
        if each.tid in inside & outer.keys()
    ]
    await target.walk_out(threads, outer.get(before.selected, 0), stop, deadline)
    if hold.waiting() or hold.expected():
        # The rank is still before main, where only the gate holds it; or a thread that did not
        # come has not taken the signal yet.
        hold.open()


async def _find_again(target: Target, before: Whereabouts, deadline: Deadline) -> None:
    """For a rank that SIGSTOP held: verify that every thread is where it was, or just before its
    system call. Raises CrdebugError."""
    now = {each.tid: each for each in (await note_threads(target, deadline)).threads}
    for was in before.threads:
        thread = now.get(was.tid)
        if thread is None or thread.sp != was.sp or thread.pc not in (was.pc, was.pc - 2):
            at = "has ended" if thread is None else f"is at {thread.pc:#x}"
            raise CrdebugError(f"thread {was.tid} was at {was.pc:#x} before and {at}")
    for each in await target.threads(deadline):
        if each.tid == before.selected:
            await target.select_thread(each.number, deadline)


def save_herd(directory: JobDirectory, herd: Mapping[int, Whereabouts]) -> None:
    unfinished = directory.herd.with_name(f".{directory.herd.name}")
    unfinished.write_bytes(msgspec.json.encode(herd))
    unfinished.rename(directory.herd)


def load_herd(directory: JobDirectory) -> dict[int, Whereabouts]:
    """The threads that a crdebug noted before it died; empty if the file cannot be read."""
    try:
        return msgspec.json.decode(directory.herd.read_bytes(), type=dict[int, Whereabouts])
    except (FileNotFoundError, msgspec.MsgspecError):
        return {}


class Operation:
    """JobActions and RankActions for a job with one GDB per rank.

    launch: starts a GDB for a rank.
    manifest: the checkpoint to restart from; None to take one.
    Afterwards `job` is the present incarnation, and `checkpoint` is the published checkpoint.
    """

    def __init__(
        self,
        group: TargetGroup,
        imaging: Imaging,
        job: Incarnation,
        *,
        launch: Launch,
        tell: Callable[[Event], None],
        note: str = "",
        manifest: Manifest | None = None,
    ) -> None:
        self.job = job
        self._before = job
        self._group = group
        self._imaging = imaging
        self._settings: Settings = imaging.settings
        self._launch = launch
        self._tell = tell
        self._taking = Taking(imaging, tell, note)
        self._manifest = manifest
        self._where: dict[int, Whereabouts] = {}
        self._stops: dict[int, RankStopped | None] = {}
        self._herded: set[int] = set()  # the ranks whose threads will come out where `_where` says
        if manifest is not None:
            self._herded = set(manifest.alive)
            self._where = {
                rank.rank: Whereabouts(rank.threads, rank.selected)
                for rank in manifest.ranks
                if rank.rank in self._herded
            }

    def _target(self, rank: int) -> Target:
        return self._group[rank]

    @contextlib.asynccontextmanager
    async def _hold(self, rank: int) -> AsyncIterator[Hold]:
        """The rank's hold, for the block. If something in the block fails and the rank has ended,
        that is the reason, so this raises RankLost."""
        hold = hold_of(self.job.holds, rank)
        try:
            if not proc.is_alive(hold.pid):
                raise ProcessLookupError
            yield hold
        except (CrdebugError, OSError) as error:
            if not has_ended(hold.pid):
                raise
            target = self._target(rank)
            # A GDB that still traces an ended process would only keep it as a zombie.
            with contextlib.suppress(CrdebugError):
                await target.close(Deadline(self._settings.stop))
            target.mark_ended("")
            told, ranks = who_ended(self.job.holds)
            raise RankLost(told, ranks=ranks) from error

    # ---- into the waitpoint -------------------------------------------------------------------

    async def record_threads(self, rank: int) -> None:
        async with self._hold(rank) as hold:
            target = await self._attached(rank, hold)
            refuse_undumpable(hold.pid, rank)
            hold.refuse_obstacles()
            hold.refuse_without_stack()
            # Clear what an interrupt may have left behind: once the waitpoint signal is queued, no
            # thread may run before its GDB detaches.
            await target.interrupt(Deadline(self._settings.command))
            self._stops[rank] = target.last_stop
            self._where[rank] = await note_threads(target, Deadline(self._settings.command))

    async def herd(self, rank: int) -> None:
        async with self._hold(rank) as hold:
            save_herd(self._imaging.directory, self._where)
            threads = self._where[rank].threads
            held = {each.tid: each.signal_number for each in threads if each.signal}
            blockers = hold.close(calls_to_make_again(threads), held)
            try:
                if blockers:
                    they = who_blocks(blockers, self.job.record.signal)
                    self._tell(
                        JobSays(
                            f"rank {rank}: {they}: unblocked for the checkpoint, and blocked "
                            "again when it goes on"
                        )
                    )
                    await checkpoint_commands.unblock(
                        self._target(rank),
                        self.job.record.signal,
                        (thread.tid for thread in blockers),
                        Deadline(self._settings.command),
                    )
                hold.lead_in()
                self._require_held(rank, hold)
            except BaseException:
                hold.call_off(blockers)
                raise
            self._herded.add(rank)

    def _require_held(self, rank: int, hold: Hold) -> None:
        """Raises GdbDied unless the rank has been stopped ever since its threads were noted:
        otherwise the notes are wrong, and nobody could lead the threads back."""
        held_by = self._target(rank).gdb_pid
        if any(thread.tracer != held_by for thread in proc.threads(hold.pid)):
            raise GdbDied("gdb has let the rank go", "checkpoint", None, ranks=RankSet.of([rank]))

    async def detach(self, rank: int) -> None:
        async with self._hold(rank) as hold:
            target = self._target(rank)
            if not hold.has_shim:
                command = Deadline(self._settings.command)
                await checkpoint_commands.put_before_calls(target, command)
                await target.detach(command)
                return
            try:
                await target.lend(self.job.record.signal, Deadline(self._settings.command))
            except CrdebugError:
                # Whatever is wrong with it: a GDB that ends lets go, and the rank is herded.
                await target.close(Deadline(self._settings.stop))
                refuse_traced(hold.pid, rank)

    async def await_waitpoint(self, rank: int) -> None:
        async with self._hold(rank) as hold:
            await await_held(hold, Deadline(self._settings.herd))
            if self._manifest is None and hold.has_shim:  # on a restart, the image had them
                await self._queue_signals(rank, hold)

    async def _queue_signals(self, rank: int, hold: Hold) -> None:
        """Queue the signals that the rank's GDB holds back, so that the image has them. They are
        blocked in the waitpoint, and each thread finds its own when it is led out.

        Faults are an exception: the kernel prefers them to other traps, blocked or not
        (kernel/signal.c, dequeue_synchronous_signal), and the CRS waits for a trap of its own.
        """
        threads = self._where[rank].threads
        held = {each.tid: each for each in threads if each.signal and not each.is_fault}
        wanted = {}
        for thread in proc.threads(hold.pid):
            if thread.inner in held:
                record = held[thread.inner]
                ptrace.queue_signal(thread.tid, record.siginfo)
                wanted[thread.tid] = 1 << (record.signal_number - 1)
        await Deadline(self._settings.herd).until(
            lambda: all(proc.queued(hold.pid, tid) & bit for tid, bit in wanted.items()),
            "signals to be queued",
            ranks=RankSet.of([rank]),
        )

    # ---- the image ----------------------------------------------------------------------------

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self._taking.checkpoint

    async def dump(self) -> None:
        await self._taking.dump(self.job, running=False)

    async def publish(self) -> None:
        await self._taking.publish(
            {
                rank: Stand(where.threads, where.selected, _place(self._stops.get(rank)))
                for rank, where in self._where.items()
            }
        )

    def close(self) -> None:
        self._taking.close()

    async def restore(self) -> None:
        assert self._manifest is not None
        self.job = await self._imaging.replace(
            self._manifest, self.job.record, debugger=True, end=self.retire, tell=self._tell
        )
        save_herd(self._imaging.directory, self._where)

    async def retire(self) -> None:
        await end_job(self._group, self._before.record)

    async def announce(self) -> None:
        assert self._manifest is not None
        mark_gone(self._group, self._manifest.ended, self._tell)
        for hold in self.job.holds:
            self._tell(RankRestored(hold.rank, hold.entry.host, hold.pid))

    # ---- out of it ----------------------------------------------------------------------------

    async def attach(self, rank: int) -> None:
        async with self._hold(rank) as hold:
            await self._attached(rank, hold)

    async def _attached(self, rank: int, hold: Hold) -> Target:
        """The rank's debugger, attached to the rank; a new one if the old one cannot attach."""
        target = self._target(rank)
        if target.lent and not target.dead:
            # If it cannot, it has lost track of its process; a new one will not.
            with contextlib.suppress(CrdebugError):
                await target.take_back(Deadline(self._settings.command))
        if target.lent or target.dead or target.pid not in (None, hold.pid):
            target = await replace_gdb(self._group, rank, self._launch)
            if rank not in self._herded:  # it ran on
                self._where.pop(rank, None)
                self._stops.pop(rank, None)
        if target.state is not TargetState.STOPPED:
            await attach_gdb(self._group, rank, hold.pid, self._launch, self._tell)
        return self._target(rank)

    async def walk_out(self, rank: int) -> None:
        async with self._hold(rank) as hold:
            where = self._where.get(rank, Whereabouts(()))
            # If it fails and another debugger tries, threads that came out have run on.
            stop = self._stops.pop(rank, None)
            deadline = Deadline(self._settings.command)
            if not hold.has_shim:
                await _find_again(self._target(rank), where, deadline)
                return
            await lead_out(self._target(rank), hold, where, stop, deadline)


def _place(stop: RankStopped | None) -> str:
    return str(stop.location) if stop is not None and stop.location is not None else ""


def refused_operation(
    problems: list[CrdebugError], held: RankSet, job: str, taken: Checkpoint | None = None
) -> CrdebugError:
    """One error for an operation that failed: the first problem, which caused the others, with the
    checkpoint that was taken even so, and the ranks that are held."""
    error = problems[0]
    outcomes = []
    if taken is not None:
        outcomes.append(f"checkpoint {taken.handle} was taken nevertheless")
    if held:
        one = len(held) == 1
        outcomes.append(f"rank{'' if one else 's'} {held} could not be led out of the waitpoint")
        error.hint = (
            f"'detach' lets {'it' if one else 'them'} go on, and so does 'crdebug release {job}'"
        )
    error.outcome = "; ".join(outcomes)
    return error
