"""A job over hosts without a debugger."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from crdebug.attached.far_record import FarRecord
from crdebug.base.deadline import Deadline
from crdebug.base.errors import DeadlineExpired, NotAvailable
from crdebug.base.settings import Settings
from crdebug.hosts import ssh
from crdebug.hosts.launch import LauncherEnded, OverHosts, spread_of
from crdebug.job.clocks import LEFT_THE_RECORD
from crdebug.job.directory import JobDirectory, JobRecord
from crdebug.job.ending import end
from crdebug.job.given import Given
from crdebug.job.launch import launch


async def start_there(
    argv: Sequence[str], name: str | None, settings: Settings, given: Given
) -> tuple[Sequence[str], JobDirectory | None]:
    """Start a job over hosts; returns when all ranks have begun, or the launcher has ended. If all
    of its hosts are this one, nothing is done but that the command line names them. Raises
    NotAvailable, BadInput; then nothing of the job is left."""
    place, limit = (given.directory or Path.cwd()).resolve(), Deadline(settings.launch)
    known = {**os.environ, **given.environment}
    argv, spread = await spread_of(argv, given.hosts, known, place, limit)
    if spread is None:
        return argv, None
    agents = OverHosts(spread.hosts, spread.mark, settings, None, ssh.starter(settings))
    try:
        await agents.prepare(argv, place, hold=False)
        directory, record = await launch(
            argv, name=name, hold=False, settings=settings, given=given, spread=spread
        )
        try:
            # Ranks that come later, or elsewhere, only find nobody who removes their files.
            with contextlib.suppress(LauncherEnded, DeadlineExpired):
                await agents.all_ranks(directory, record)
        except BaseException:
            await end(record, Deadline(settings.stop))
            directory.forget_if_over()
            raise
    finally:
        await agents.close()
    return argv, directory


async def release_there(record: JobRecord, settings: Settings) -> tuple[str, ...]:
    """Let all ranks run on, on any host, because their debugger has died, or has left them stopped.
    Returns lines: one for each that did not run."""
    agents = OverHosts(record.hosts, record.mark, settings, None, ssh.starter(settings))
    try:
        let, another = await agents.let_go(record)
        lines = [f"rank {rank} let go" for rank in let]
        return (*lines, LEFT_THE_RECORD) if another else tuple(lines)
    finally:
        await agents.close()


@contextlib.asynccontextmanager
async def record_there(
    directory: JobDirectory, record: JobRecord, settings: Settings
) -> AsyncIterator[FarRecord]:
    """The record of the job as it is now. Nothing is stopped for it. Raises NotAvailable."""
    agents = OverHosts(record.hosts, record.mark, settings, None, ssh.starter(settings))
    with tempfile.TemporaryDirectory() as place:
        try:
            found = await agents.ranks_now(directory, record)
            far = agents.records(found, record, Path(place))
            if far is None:
                raise NotAvailable(f"job '{directory.name}' does not record its MPI calls")
            await far.refresh()
            yield far
        finally:
            await agents.close()
