"""A checkpoint or a restart without a debugger, and what the protocol's instructions do then."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, DeadlineExpired, Refused
from crdebug.base.events import Event, Progress, RankRestored
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.checkpoint.driver import drive
from crdebug.checkpoint.protocol import Phase, Protocol
from crdebug.checkpoint.store import Checkpoint
from crdebug.job import app_requests, foreign_debuggers, half_back, hooks, standard_input
from crdebug.job.directory import JobDirectory, has_ended
from crdebug.job.ended_leaders import refuse_undumpable
from crdebug.job.ending import end
from crdebug.job.holds import Hold, await_held, refuse_traced, with_shims
from crdebug.job.holds import has_ended as rank_has_ended
from crdebug.job.imaging import Imaging
from crdebug.job.incarnation import Incarnation
from crdebug.job.ranks_there import await_ranks
from crdebug.job.recovery import recover
from crdebug.job.taking import Taking
from crdebug.job.without_container import require_container

_BLOCKED_FOR_GOOD = 0.5  # seconds
_REACTION = 2.0  # seconds that a launcher may take to end a job after a rank ended badly


class Undisturbed:
    """JobActions for a job without a debugger: only the CRS acts.

    number: of the checkpoint to bring back.  held: its ranks wait for a debugger then. Afterwards
    `job` is the incarnation that is there, and `checkpoint` is what was published.
    """

    def __init__(
        self,
        imaging: Imaging,
        job: Incarnation,
        tell: Callable[[Event], None],
        *,
        note: str = "",
        stop: bool = False,
        number: int | None = None,
        held: bool = False,
    ) -> None:
        self.job = job
        self._before = job
        self._imaging = imaging
        self._tell = tell
        self._taking = Taking(imaging, tell, note)
        self._stop = stop
        self._number = number
        self._held = held

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self._taking.checkpoint

    async def dump(self) -> None:
        await self._taking.dump(self.job, running=True, stop=self._stop)

    async def publish(self) -> None:
        await self._taking.publish(None)

    def close(self) -> None:
        self._taking.close()

    async def restore(self) -> None:
        assert self._number is not None
        manifest = self._imaging.store.load(self._number)
        self.job = await self._imaging.replace(
            manifest, self.job.record, debugger=self._held, end=self.retire, tell=self._tell
        )
        standard_input.give_again(self.job.run, self.job.record.pid)

    async def retire(self) -> None:
        await end(self._before.record, Deadline(self._imaging.settings.stop))


async def make_whole(job: Incarnation, settings: Settings) -> str:
    """Let a job that was interrupted on its way back in memory run on from a checkpoint. Callers
    hold its lock. Raises Refused, StoreError, CrsFailed."""
    directory, record = job.directory, job.record
    problem: CrdebugError = half_back.none_left(directory.name)
    for store, manifest in half_back.ways_out(directory, record):
        imaging = Imaging(directory, settings, store)
        actions = Undisturbed(imaging, job, _say_nothing, number=manifest.number)
        machine = Protocol(RankSet(), restart=True, debugger=False, replaces=True)
        await drive(machine, actions)
        if not machine.problems:
            kind = "an automatic checkpoint" if store is directory.history else "a checkpoint"
            return (
                f"crdebug died while it took job '{directory.name}' back in memory: it goes on "
                f"from {kind} ({manifest.number}), and repeats what was recorded since then"
            )
        problem = machine.problems[0]
    raise problem


def _say_nothing(event: Event) -> None:
    """The line that `make_whole` returns is what its users are told."""


async def checkpoint_undisturbed(
    directory: JobDirectory,
    note: str,
    progress: Callable[[Event], None],
    settings: Settings,
    *,
    kill: bool,
    stop: bool,
    held: bool,
) -> Checkpoint:
    """`jobs.take_checkpoint`, of a job that no session is attached to."""
    async with directory.lock_within("checkpoint", Deadline(settings.stop)):
        record = directory.read()  # others may have had it until now
        require_container(record, "take a checkpoint")
        try:
            half_back.require_whole(directory, record)
            now = await await_ranks(directory, record, Deadline(settings.launch))
            await _outlived(now)
        except ProcessLookupError:
            raise has_ended(directory) from None
        imaging = Imaging(directory, settings)
        actions = Undisturbed(imaging, now, progress, note=note, stop=stop)
        wanted = now.holds if not (kill or stop) else ()
        async with (
            hooks.around_checkpoint(now, settings, progress) as taken,
            foreign_debuggers.let_go(wanted, Deadline(settings.herd)) as let_go,
        ):
            waiting = now.ranks if held else let_go
            await _prepare(directory.name, now.holds, waiting)
            async with app_requests.around_checkpoint(
                now, settings, progress, held=bool(waiting), stop=stop
            ):
                machine = Protocol(now.ranks, restart=False, debugger=False)
                with contextlib.closing(actions):
                    await drive(machine, actions, progress=_teller("checkpoint", progress))
                if machine.problems:
                    raise machine.problems[0]
                assert actions.checkpoint is not None
                taken.append(actions.checkpoint)
        if kill:
            await end(record, Deadline(settings.stop))
    return taken[0]


async def _outlived(job: Incarnation) -> None:
    """Do the others go on without the ranks that have ended? A launcher ends them all when one has
    ended badly, and a checkpoint of ranks that are about to be ended is of no use. Raises
    Refused."""
    if not job.ended:
        return
    with contextlib.suppress(DeadlineExpired):
        limit = Deadline(_REACTION)
        await limit.until(lambda: any(rank_has_ended(hold.pid) for hold in job.holds), "")
        raise Refused("it has ended, and the others are about to", ranks=job.ended)


async def _prepare(job: str, holds: Sequence[Hold], held: RankSet) -> None:
    """The protocol's variables for a checkpoint without a debugger. Raises Refused.

    held: ranks that may wait for a debugger.
    Also when a thread blocks the signal: the CRS would break its system call off, and nothing
    could have it make that again; nor could the checkpoint be restarted with a debugger.
    """
    shims = with_shims(holds)
    # pthread_create(3) blocks all signals for a moment, so one look does not tell.
    with contextlib.suppress(DeadlineExpired):
        limit = Deadline(_BLOCKED_FOR_GOOD)
        await limit.until(lambda: not any(shim.blockers() for shim in shims), "")
    for hold in holds:
        if not hold.has_shim:
            raise Refused(
                "no shim is in it, and without one its system calls would end with EINTR",
                ranks=RankSet.of([hold.rank]),
                hint=f"take the checkpoint under a debugger: 'crdebug attach {job}'",
            )
    for shim in shims:
        refuse_traced(shim.pid, shim.rank)
        refuse_undumpable(shim.pid, shim.rank)
        if shim.rank in held and shim.waits_for_debugger():
            continue
        shim.refuse_blockers()
        if shim.waiting():
            raise Refused(
                "threads wait for a debugger that is not there",
                ranks=RankSet.of([shim.rank]),
                hint=f"'crdebug attach {job}' or 'crdebug release {job}' first",
            )
        shim.set_with_checkpoint(0)
        shim.set_gate(0)


async def bring_back(
    directory: JobDirectory,
    number: int,
    progress: Callable[[Event], None],
    settings: Settings,
    *,
    held: bool,
) -> None:
    """`jobs.restart`, of a job that no session is attached to."""
    async with directory.lock_within("restart", Deadline(settings.stop)):
        record = await recover(directory, settings)
        before = Incarnation(directory, record)
        imaging = Imaging(directory, settings)
        actions = Undisturbed(imaging, before, progress, number=number, held=held)
        machine = Protocol(RankSet(), restart=True, debugger=False, replaces=before.alive)
        await drive(machine, actions, progress=_teller("restart", progress))
        if machine.problems:
            raise machine.problems[0]
        for hold in actions.job.holds if held else ():
            await await_held(hold, Deadline(settings.herd))
            progress(RankRestored(hold.rank, hold.entry.host, hold.pid))
        when = hooks.When.RESTART
        handle = f"{directory.name}:{number}"
        await hooks.after(when, actions.job, settings, progress, checkpoint=handle)


def _teller(what: str, tell: Callable[[Event], None]) -> Callable[[Phase, RankSet], None]:
    return lambda phase, ranks: tell(Progress(what, phase.value, ranks))
