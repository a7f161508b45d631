"""Jobs without a debugger: in the shell, `crdebug run --no-debugger` stands in for the launcher."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import click

from crdebug.base.settings import Settings
from crdebug.detached import batch, jobs
from crdebug.detached.mpir_frontend import Front
from crdebug.detached.values import Given, Upkeep
from crdebug.ui.output import Relay
from crdebug.ui.printable import echo
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
    """Start a job; returns its exit status. front: set if an MPIR tool starts it."""
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
    """Inside the block, pass crdebug's own standard input on to the job, unless it was
    restarted."""
    if not wanted or job.incarnation > 1:
        yield
        return
    relay = asyncio.create_task(jobs.relay_input(job.name, 0))
    relay.add_done_callback(_input_ended)
    try:
        yield
    finally:
        relay.cancel()
        await asyncio.gather(relay, return_exceptions=True)


def _input_ended(relay: asyncio.Task[None]) -> None:
    if not relay.cancelled() and (error := relay.exception()) is not None:
        echo(f"crdebug: standard input is no longer passed on: {error}", err=True)


async def restart_detached(handle: str, care: Upkeep, settings: Settings, screen: Screen) -> int:
    """Restart a job; returns its exit status."""
    with screen.busy():
        whole = await batch.handle_of(handle, care.stage, screen.event)
        job = await jobs.restart(whole, screen.event, settings)
    return await _follow(job, care, settings)


async def _follow(job: jobs.JobInfo, care: Upkeep, settings: Settings) -> int:
    """Show the job's output and return its status; Ctrl-C ends the job."""
    click.echo(f"crdebug: job {job.name}", err=True)
    try:
        return await batch.attend(job.name, care, Relay(), settings)
    except asyncio.CancelledError:
        await jobs.kill(job.name)
        raise
