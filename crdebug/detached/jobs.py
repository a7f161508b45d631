"""Jobs without a debugger: what operators and batch scripts do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT

from crdebug.base.deadline import FOR_EVER, Deadline
from crdebug.base.errors import BadInput, CrdebugError, DeadlineExpired, Refused, StoreError
from crdebug.base.events import Event, Progress, RankRestored
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.checkpoint import staging
from crdebug.checkpoint.driver import drive
from crdebug.checkpoint.protocol import Phase, Protocol
from crdebug.checkpoint.store import Checkpoint, describe
from crdebug.detached.checkpoint import Undisturbed, make_whole
from crdebug.job import app_requests, clocks, foreign_debuggers, half_back, hooks
from crdebug.job.control_socket import Request, ask, is_attended
from crdebug.job.directory import (
    JobDirectory,
    JobRecord,
    all_jobs,
    has_ended,
    is_alive,
    parse_handle,
)
from crdebug.job.ended_leaders import refuse_undumpable
from crdebug.job.holds import Hold, await_held, refuse_traced, with_shims
from crdebug.job.holds import has_ended as rank_has_ended
from crdebug.job.imaging import Imaging, stop_all
from crdebug.job.incarnation import Incarnation
from crdebug.job.launch import Given, await_ranks, end, launch, why_ended
from crdebug.job.output import OutputRelay
from crdebug.job.recovery import end_remains, recover, take_over
from crdebug.job.told import note_killed, told
from crdebug.node import proc, process_tree, signals

EXIT_KILLED = 128 + 15  # as if SIGTERM had ended it
_BLOCKED_FOR_GOOD = 0.5  # seconds
_REACTION = 2.0  # seconds that a launcher may take to end a job of which a rank ended badly


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job, for a list of them.

    state: "running", "held" (threads wait for a debugger that is not there, or a rank is stopped by
    SIGSTOP), "stopped" (all of it, as `checkpoint --stop` leaves it), "debugged", "ended",
    "damaged" (its record cannot be read).
    pid: of PID 1 of its container.  started: seconds since 1970.  status: the launcher's exit
    status once it has ended, None if it was killed.
    """

    name: str
    state: str
    ranks: int
    incarnation: int
    pid: int
    argv: tuple[str, ...]
    started: float
    checkpoints: int
    status: int | None


async def _info(directory: JobDirectory) -> JobInfo:
    record = directory.read()
    said = told(directory.run(record.incarnation) / "events")
    return JobInfo(
        name=record.name,
        state=await _state(directory, record),
        ranks=said.ranks or 0,
        incarnation=record.incarnation,
        pid=record.pid,
        argv=record.argv,
        started=record.created,
        checkpoints=len(directory.store.numbers()),
        status=said.status,
    )


async def _state(directory: JobDirectory, record: JobRecord) -> str:
    if not is_alive(record):
        return "ended"
    if await is_attended(directory.session_socket):
        return "debugged"
    if proc.is_stopped(record.pid):
        return "stopped"
    if told(directory.run(record.incarnation) / "events").ranks is None:
        return "running"  # its ranks are not there yet
    try:
        holds = (await await_ranks(directory, record, Deadline(1.0))).holds
        waiting = any(map(_held, holds)) or bool(clocks.held(holds, record.layer))
    except (CrdebugError, OSError):
        return "running"  # its ranks are not there any more
    return "held" if waiting else "running"


async def run_detached(
    argv: Sequence[str],
    name: str | None,
    settings: Settings,
    given: Given | None = None,
    *,
    hold: bool = False,
) -> JobInfo:
    """Start a job that can be checkpointed; returns when its launcher runs.

    hold: every rank waits before main until it is let go.
    """
    directory, _ = await launch(argv, name=name, hold=hold, settings=settings, given=given)
    return await _info(directory)


def followed(job: str) -> AbstractContextManager[None]:
    """While the block runs, what the job has written stays, also once it has ended."""
    return JobDirectory(job).followed()


async def follow(
    job: str,
    subscriber: Callable[[Event], None],
    since: Path | None = None,
    *,
    told_before: Mapping[Path, int] | None = None,
) -> int:
    """Tell what a job writes until it has ended; returns the launcher's status.

    since: the directory of the checkpoint that it was brought back from.  told_before: up to
    where a session has told it. The status is EXIT_KILLED
    if `kill` ended it, 137 if anything else killed it. Raises NotAvailable when it could not be
    started at all.
    """
    directory = JobDirectory(job)
    record = directory.read()
    run = directory.run(record.incarnation)
    try:
        with directory.followed():
            relay = OutputRelay(run, subscriber, from_now=False, since=since, told=told_before)
            try:
                await signals.ended(record.pid, Deadline(FOR_EVER), f"job '{job}' to end")
                relay.catch_up()
                said = told(run / "events")
            finally:
                await relay.stop()
        if said.failure:
            raise why_ended(directory, record)
        if relay.ended is not None:
            return relay.ended
        return EXIT_KILLED if said.killed else 128 + 9
    finally:
        directory.forget_if_over()


async def list_jobs() -> tuple[JobInfo, ...]:
    """Every job that left something here, by name."""
    return tuple([await _info_or_damage(directory) for directory in all_jobs()])


async def _info_or_damage(directory: JobDirectory) -> JobInfo:
    try:
        return await _info(directory)
    except StoreError:  # one that cannot be read does not hide the others
        numbers = directory.store.numbers()
        return JobInfo(directory.name, "damaged", 0, 0, 0, (), 0.0, len(numbers), None)


async def list_checkpoints(job: str | None) -> tuple[Checkpoint, ...]:
    """Of one job, or of all. Raises BadInput when there is no such job."""
    if job is not None:
        JobDirectory(job).read()
        return _everywhere(JobDirectory(job))
    return tuple(each for directory in all_jobs() for each in _everywhere(directory))


def _everywhere(directory: JobDirectory) -> tuple[Checkpoint, ...]:
    return staging.everywhere(directory.store, directory.stage)


async def take_checkpoint(
    job: str,
    note: str,
    kill: bool,
    progress: Callable[[Event], None],
    settings: Settings | None = None,
    *,
    stop: bool = False,
    held: bool = False,
) -> Checkpoint:
    """Take a checkpoint of a running job; the session that is attached to it does so, if any.

    job: its name, or the PID of one of its processes, whoever started it.
    held: ranks that wait for a debugger stay so; it is the one that asks.
    kill: end the job afterwards.  stop: it stands where the checkpoint has it, until `release`.
    Raises Refused, CrsFailed, StoreError; the job runs on then.
    """
    settings = settings or Settings()
    if job.isdecimal() and not JobDirectory(job).exists():
        # They take time to load, and are for few.
        from crdebug.attached.by_pid import choose
        from crdebug.session import checkpoint_once

        job, found = await choose(job, "", settings)
        if found is not None and stop:
            raise Refused(
                "crdebug did not start this job, and has no checkpoint of it yet",
                hint="take one without --stop first",
            )
        if found is not None:
            return await checkpoint_once(job, note, kill, progress, settings)
    directory = JobDirectory(job)
    record = directory.read()
    if not is_alive(record):
        raise has_ended(directory)
    if stop and await is_attended(directory.session_socket):
        raise Refused(f"job '{job}' is under a debugger", hint="use 'interrupt' at its prompt")
    number = await ask(directory.session_socket, Request(note), Deadline(settings.dump))
    if number is not None:
        checkpoint = describe(directory.store.load(number))
        if kill:
            await _end(directory, record, settings)
        return checkpoint
    if proc.is_stopped(record.pid):
        raise Refused(f"job '{job}' is stopped", hint=f"'crdebug release {job}' lets it go on")
    async with directory.lock_within("checkpoint", Deadline(settings.stop)):
        record = directory.read()  # others may have had it until now
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
            await _prepare(job, now.holds, waiting)
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
    ended badly, and what it is about to end is of no use in a checkpoint. Raises Refused."""
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


async def restart(
    handle: str,
    progress: Callable[[Event], None],
    settings: Settings | None = None,
    *,
    held: bool = False,
) -> JobInfo:
    """Bring a job back from a checkpoint, to run without a debugger.

    held: its ranks wait for one that is not crdebug's, and are told of as soon as they do.
    If the job still runs, that incarnation is ended once the new one is there.
    """
    settings = settings or Settings()
    directory, number = parse_handle(handle)
    directory.read()
    if await is_attended(directory.session_socket):
        raise Refused(
            f"job '{directory.name}' is under a debugger", hint="use 'restart' at its prompt"
        )
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
        await hooks.after(when, actions.job, settings, progress, checkpoint=handle)
    return await _info(directory)


def _teller(what: str, tell: Callable[[Event], None]) -> Callable[[Phase, RankSet], None]:
    return lambda phase, ranks: tell(Progress(what, phase.value, ranks))


async def delete(handle: str) -> None:
    """Remove a checkpoint. Raises BadInput or StoreError when there is none."""
    directory, number = parse_handle(handle)
    directory.read()
    async with directory.lock_within("delete a checkpoint", Deadline(Settings().stop)):
        remove(directory, number)
        directory.forget_while_locked()


def remove(directory: JobDirectory, number: int) -> None:
    """Delete a checkpoint wherever it is. Callers hold the job's lock. Raises StoreError."""
    place = directory.stage
    staged = place is not None and number in staging.numbers(directory.name, place)
    if not staged or number in directory.store.numbers():
        directory.store.delete(number)
    if staged and place is not None:
        staging.forget(directory.name, number, place)


async def kill(job: str, settings: Settings | None = None) -> None:
    """End a job; its checkpoints stay. A job that has ended already and left no checkpoint is
    forgotten."""
    settings = settings or Settings()
    directory = JobDirectory(job)
    record = directory.read()
    if is_alive(record):
        note_killed(directory.run(record.incarnation) / "events")
        await _end(directory, record, settings)
    elif directory.store.numbers():
        raise BadInput(
            f"job '{job}' has ended already", hint=f"'crdebug delete {job}:N' removes checkpoints"
        )
    directory.forget_if_over()


async def _end(directory: JobDirectory, record: JobRecord, settings: Settings) -> None:
    """A rank that a debugger holds ends only once the debugger takes note of it."""
    asked = Deadline(3 * settings.stop)
    if await ask(directory.session_socket, Request(kill=True), asked) is None:
        with contextlib.suppress(Refused), directory.lock("kill it"):
            record = await end_remains(directory, settings)
        await end(record, Deadline(settings.stop))


async def release(job: str, settings: Settings | None = None) -> tuple[str, ...]:
    """Open the gates of a job whose debugger died, and let one that was stopped go on.

    Returns a line for each rank that was held, and one for a job that was stopped. Every thread
    leaves its waitpoint by itself and goes on where it was, and so does a rank that SIGSTOP had
    stopped; a job half back in memory does from a checkpoint. Raises Refused under a debugger.
    """
    settings = settings or Settings()
    directory = JobDirectory(job)
    record = directory.read()
    if not is_alive(record):
        raise has_ended(directory)
    if await is_attended(directory.session_socket):
        raise Refused(f"job '{job}' is under a debugger", hint="use 'continue' or 'detach' there")
    lines = []
    async with directory.lock_within("release it", Deadline(settings.stop)):
        record = directory.read()  # others may have had it until now
        if proc.is_stopped(record.pid):
            stop_all(process_tree.of_job(record.pid), SIGCONT)
            lines.append(f"job '{job}' goes on")
        now = await take_over(directory, settings)
        record, holds = now.record, now.holds
        if half_back.was_on_its_way(directory, record):
            return (*lines, await make_whole(now, settings))
        past = clocks.held(holds, record.layer)
        another = clocks.let_go(holds, record.layer)
        lines += [f"rank {rank} let go" for rank in past]
        if another:
            lines.append(
                "they go another way than recorded; what was recorded from there on is gone"
            )
        for hold in holds:
            stopped = proc.is_stopped(hold.pid)  # not to be seen for a moment after the release
            try:
                waiting = await hold.release(Deadline(settings.herd))
            except PermissionError:
                raise Refused("a debugger still holds it", ranks=RankSet.of([hold.rank])) from None
            if waiting:
                lines.append(f"rank {hold.rank}: {waiting} threads let go")
            if stopped:
                signals.kill(hold.pid, None, SIGCONT)
                lines.append(f"rank {hold.rank} let go")
        still = RankSet.of(hold.rank for hold in holds)
        await Deadline(settings.herd).until(
            lambda: not any(map(_waits, holds)), "all threads to leave the waitpoint", ranks=still
        )
    return tuple(lines)


def _held(hold: Hold) -> bool:
    return _waits(hold) or proc.is_stopped(hold.pid)


def _waits(hold: Hold) -> bool:
    try:
        return hold.waiting() > 0
    except ProcessLookupError:
        return False
