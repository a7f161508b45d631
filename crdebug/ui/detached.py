"""Jobs without the debugger, as the command line runs them: it is the launcher's stand-in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import click

from crdebug.base.settings import Settings
from crdebug.checkpoint.retention import Upkeep
from crdebug.detached import batch, jobs
from crdebug.detached.mpir_frontend import Front
from crdebug.job import standard_input
from crdebug.job.directory import JobDirectory
from crdebug.job.launch import Given
from crdebug.ui.output import Relay
from crdebug.ui.screen import Screen


async def run_detached(
    argv: Sequence[str],
    name: str | None,
    resume: bool,
    care: Upkeep,
    settings: Settings,
    screen: Screen,
    front: Front | None,
    given: Given,
) -> int:
    """Start a job; returns the status that it ended with. front: what a tool has started."""
    with screen.busy():
        if front is None:
            job = await batch.start(argv, name, resume, care, settings, screen.event, given)
        else:
            job = await front.start(argv, name, settings, given)
    if front is None:
        async with _relayed(job, given.relayed):
            return await _follow(job, care, settings)
    async with front.shown(job.name, settings):
        return await _follow(job, care, settings)


@contextlib.asynccontextmanager
async def _relayed(job: jobs.JobInfo, wanted: bool) -> AsyncIterator[None]:
    """Inside the block, crdebug's own standard input is passed on to the job; not to one that was
    brought back."""
    if not wanted or job.incarnation > 1:
        yield
        return
    relay = asyncio.create_task(standard_input.relay(JobDirectory(job.name), 0))
    relay.add_done_callback(_input_ended)
    try:
        yield
    finally:
        relay.cancel()
        await asyncio.gather(relay, return_exceptions=True)


def _input_ended(relay: asyncio.Task[None]) -> None:
    if not relay.cancelled() and (error := relay.exception()) is not None:
        click.echo(f"crdebug: standard input is not passed on any more: {error}", err=True)


async def restart_detached(handle: str, care: Upkeep, settings: Settings, screen: Screen) -> int:
    """Bring a job back; returns the status that it ended with."""
    with screen.busy():
        whole = await batch.handle_of(handle, care.stage, screen.event)
        job = await jobs.restart(whole, screen.event, settings)
    return await _follow(job, care, settings)


async def _follow(job: jobs.JobInfo, care: Upkeep, settings: Settings) -> int:
    """Its output, its status, and Ctrl-C ends the job."""
    click.echo(f"crdebug: job {job.name}", err=True)
    try:
        return await batch.attend(job.name, care, Relay(), settings)
    except asyncio.CancelledError:
        await jobs.kill(job.name)
        raise
