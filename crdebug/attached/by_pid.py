"""Attach debuggers to ranks that crdebug did not start, or to a part of a job's ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from crdebug.acquire.discovery import FoundJob, find_job
from crdebug.attached.gdbs import attach_group
from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused
from crdebug.base.events import Event, JobSays
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.group import TargetGroup
from crdebug.job.control_socket import is_attended
from crdebug.job.directory import JobDirectory, all_jobs, attended_already, is_of
from crdebug.job.holds import refuse_traced
from crdebug.job.ranks_there import await_ranks
from crdebug.node import proc


async def attach_found(
    found: FoundJob,
    settings: Settings,
    subscriber: Callable[[Event], None] | None,
    ended: RankSet,
) -> TargetGroup:
    """Attach a GDB to each of the chosen ranks, and report how they were found.

    ended: those of the chosen ranks that have ended.

    Raises Refused if another debugger holds one.
    """
    for entry in found.entries:
        refuse_traced(entry.pid, entry.rank)
    if subscriber is not None:
        subscriber(JobSays(f"the ranks are those of {found.how}"))
        for sentence in _unreadable(found):
            subscriber(JobSays(sentence))
    return await attach_group(found.entries, 0, settings, subscriber, ended)


def _unreadable(found: FoundJob) -> Iterator[str]:
    """Root may not read all that users may: see exports(5), root_squash."""
    ranks: dict[str, list[int]] = {}
    for entry in found.entries:
        if why := proc.why_unreadable(entry.pid):
            ranks.setdefault(why, []).append(entry.rank)
    for why, theirs in ranks.items():
        yield (
            f"{RankSet.of(theirs).words}: {why}, so its functions and variables have no names "
            "here; attach as the user who started it"
        )


async def choose(job: str, ranks: str, settings: Settings) -> tuple[str, FoundJob | None]:
    """Find the job that a user names, or that has a process with this PID.

    Returns the name of one of our jobs, and None if all of its ranks are wanted; otherwise a name
    to call it by, and its ranks. Raises BadInput, NotAvailable.
    """
    if job.isdecimal() and not JobDirectory(job).exists():
        ours = [each.name for each in all_jobs() if is_of(each, int(job))]
        if not ours:
            return job, find_job(int(job))
        job = ours[0]
    return job, await _part_of(JobDirectory(job), settings) if ranks else None


async def _part_of(directory: JobDirectory, settings: Settings) -> FoundJob:
    """A job of ours of which only some ranks are wanted.

    Raises Refused if a debugger is attached to it.
    """
    if await is_attended(directory.session_socket):
        raise attended_already(directory)
    record = directory.read()
    found = await await_ranks(directory, record, Deadline(settings.attach))
    held = RankSet.of(hold.rank for hold in found.holds if hold.waiting())
    if held:
        raise Refused(
            "threads wait for a debugger",
            ranks=held,
            hint=f"attach to all ranks, or 'crdebug release {directory.name}' first",
        )
    entries = tuple(hold.entry for hold in found.holds)
    ended = found.ended
    size = len(entries) + len(ended)
    return FoundJob(record.pid, f"job {directory.name}", entries, size, ended)
