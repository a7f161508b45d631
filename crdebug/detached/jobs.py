"""Jobs without a debugger: what operators and batch scripts do.

What starts jobs, and takes and restores images, is imported by who does so: jobs are more often
looked at, and that takes a third of the time without it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT
from typing import TYPE_CHECKING

from crdebug.base.deadline import FOR_EVER, Deadline
from crdebug.base.errors import BadInput, CrdebugError, Refused, StoreError
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.checkpoint import staging
from crdebug.checkpoint.store import Checkpoint, describe
from crdebug.job import half_back
from crdebug.job.control_socket import Request, ask, is_attended
from crdebug.job.directory import (
    JobDirectory,
    JobRecord,
    all_jobs,
    has_ended,
    is_alive,
    parse_handle,
    sweep_ended_jobs,
)
from crdebug.job.ending import end
from crdebug.job.holds import Hold
from crdebug.job.ranks_there import await_ranks, why_ended
from crdebug.job.starter_events import note_killed, starter_events
from crdebug.node import proc, process_tree, signals

if TYPE_CHECKING:
    from crdebug.base.events import Event
    from crdebug.job.given import Given

EXIT_KILLED = 128 + 15  # as if SIGTERM had ended it


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job, for a list of them.

    state: "running", "held" (threads wait for a debugger that is not there, or a rank is stopped by
    SIGSTOP), "stopped" (all of it, as `checkpoint --stop` leaves it), "debugged", "ended",
    "damaged" (its record cannot be read).
    pid: of its starter.  started: seconds since 1970.  status: the launcher's exit
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
    said = starter_events(directory.run(record.incarnation) / "events")
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
    if record.hosts or starter_events(directory.run(record.incarnation) / "events").ranks is None:
        return "running"  # its ranks are not here, or not there yet
    try:
        holds = (await await_ranks(directory, record, Deadline(1.0))).holds
        waiting = any(map(_held, holds)) or _is_held_in_the_past(holds, record)
    except (CrdebugError, OSError):
        return "running"  # its ranks are not there any more
    return "held" if waiting else "running"


def _is_held_in_the_past(holds: Sequence[Hold], record: JobRecord) -> bool:
    if not record.layer:
        return False
    from crdebug.job import clocks

    return bool(clocks.held(holds, record.layer))


async def run_detached(
    argv: Sequence[str],
    name: str | None,
    settings: Settings,
    given: Given | None = None,
    *,
    hold: bool = False,
    here: bool = False,
) -> JobInfo:
    """Start a job; returns when its launcher runs, or, of a job over hosts, when all ranks do.

    hold: every rank waits before main until it is let go.  here: all are on this host.
    """
    from crdebug.job.given import Given
    from crdebug.job.launch import launch
    from crdebug.job.over_hosts import may_spread

    given = given or Given()
    if not here and may_spread(argv, given.hosts, {**os.environ, **given.environment}):
        from crdebug.detached.over_hosts import start_there

        argv, over_hosts = await start_there(argv, name, settings, given)
        if over_hosts is not None:
            return await _info(over_hosts)
    directory, _ = await launch(argv, name=name, hold=hold, settings=settings, given=given)
    return await _info(directory)


async def relay_input(job: str, source: int) -> None:
    """Send a job everything that comes from a descriptor, until the job takes no more."""
    from crdebug.job import standard_input

    await standard_input.relay(JobDirectory(job), source)


def followed(job: str) -> AbstractContextManager[None]:
    """Inside the block the job's output stays readable, also once it has ended."""
    return JobDirectory(job).followed()


async def follow(
    job: str,
    subscriber: Callable[[Event], None],
    since: Path | None = None,
    *,
    told_before: Mapping[Path, int] | None = None,
) -> int:
    """Pass on a job's output until it has ended; returns the launcher's status.

    since: the directory of the checkpoint that it was brought back from.  told_before: how much of
    it a session has passed on. The status is EXIT_KILLED if `kill` ended it, 137 if anything else
    killed it. Raises NotAvailable when it could not be started at all.
    """
    from crdebug.job.output import OutputRelay

    directory = JobDirectory(job)
    record = directory.read()
    run = directory.run(record.incarnation)
    try:
        with directory.followed():
            relay = OutputRelay(
                run,
                subscriber,
                from_now=False,
                since=since,
                told=told_before,
                labelled=record.labelled,
            )
            try:
                await signals.ended(record.last, Deadline(FOR_EVER), f"job '{job}' to end")
                relay.catch_up()
                said = starter_events(run / "events")
            finally:
                await relay.stop()
        if said.failure:
            raise why_ended(directory, record)
        by_kill = said.killed and relay.ended != 0  # a launcher that is told to end has a status
        if relay.ended is not None and not by_kill:
            return relay.ended
        return EXIT_KILLED if said.killed else 128 + 9
    finally:
        directory.forget_if_over()


async def list_jobs() -> tuple[JobInfo, ...]:
    """Every job that left something here, by name. Drafts of those that have ended are removed."""
    known = tuple([await _info_or_damage(directory) for directory in all_jobs()])
    sweep_ended_jobs()  # after that: one that is listed as ended has none
    return known


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
    held: ranks that wait for a debugger go on waiting; it is the debugger that asks.
    kill: end the job afterwards. stop: leave it stopped where the checkpoint has it, until
    `release`. Raises Refused, CrsFailed, StoreError; the job runs on then.
    """
    settings = settings or Settings()
    if job.isdecimal() and not JobDirectory(job).exists():
        # They take time to load, and few need them.
        from crdebug.attached.by_pid import choose
        from crdebug.session import checkpoint_once

        job, found = await choose(job, "", settings)
        if found is not None and stop:
            raise Refused(
                "crdebug did not start this job, and has no checkpoint of it yet",
                hint="take one without --stop first",
            )
        if found is not None:
            found.require_here("checkpoint")
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
    from crdebug.detached.checkpoint import checkpoint_undisturbed

    return await checkpoint_undisturbed(
        directory, note, progress, settings, kill=kill, stop=stop, held=held
    )


async def restart(
    handle: str,
    progress: Callable[[Event], None],
    settings: Settings | None = None,
    *,
    held: bool = False,
) -> JobInfo:
    """Bring a job back from a checkpoint, to run without a debugger.

    held: its ranks wait for another debugger than crdebug's, and are announced as soon as they do.
    If the job still runs, that incarnation is ended once the new one is there.
    """
    settings = settings or Settings()
    directory, number = parse_handle(handle)
    directory.read()
    if await is_attended(directory.session_socket):
        raise Refused(
            f"job '{directory.name}' is under a debugger", hint="use 'restart' at its prompt"
        )
    from crdebug.detached.checkpoint import bring_back

    await bring_back(directory, number, progress, settings, held=held)
    return await _info(directory)


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


def set_kept(handle: str, kept: bool) -> None:
    """Keep a checkpoint whatever else is deleted, or stop keeping it. Raises BadInput,
    StoreError."""
    directory, number = parse_handle(handle)
    directory.read()
    directory.store.keep(number, kept)


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
    """A rank that a debugger holds ends only once the debugger takes note of its death."""
    asked = Deadline(3 * settings.stop)
    if await ask(directory.session_socket, Request(kill=True), asked) is None:
        from crdebug.job.recovery import end_remains

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
    from crdebug.job import clocks
    from crdebug.job.recovery import take_over

    lines = []
    async with directory.lock_within("release it", Deadline(settings.stop)):
        record = directory.read()  # others may have had it until now
        if record.hosts and half_back.is_half_back(directory, record):
            raise half_back.none_left(job)
        if proc.is_stopped(record.pid):
            signals.kill_all(process_tree.of_job(record.pid), SIGCONT)
            lines.append(f"job '{job}' goes on")
        if record.hosts:
            from crdebug.detached.over_hosts import release_there

            return (*lines, *await release_there(record, settings))
        now = await take_over(directory, settings)
        record, holds = now.record, now.holds
        if half_back.was_on_its_way(directory, record):
            from crdebug.detached.checkpoint import make_whole

            return (*lines, await make_whole(now, settings))
        past = clocks.held(holds, record.layer)
        another = clocks.let_go(holds, record.layer)
        lines += [f"rank {rank} let go" for rank in past]
        if another:
            lines.append(clocks.LEFT_THE_RECORD)
        for hold in holds:
            stopped = proc.is_stopped(hold.pid)  # it cannot be seen for a moment after the release
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
