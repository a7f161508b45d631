"""crdebug: a checkpoint/restart-enabled, time-travelling parallel debugger for MPI.

As a library: `run`, `attach` and `restart` open a session, whose verbs are those of the console
(crdebug.session.Session):

    async with crdebug.run(["mpirun", "-n", "4", "./heat"]) as job:
        await job.add_breakpoint(job.ranks, "relax")
        await job.resume(job.ranks)
        answers = await job.evaluate(job.ranks, "step")
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from crdebug.base.version import VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from crdebug.base import errors, events
    from crdebug.base.events import Event
    from crdebug.base.settings import Settings
    from crdebug.session import Session

__all__ = ["Session", "Settings", "attach", "errors", "events", "restart", "run"]
__version__ = VERSION

# Imported when they are first asked for: `crdebug.app` runs in other people's programs, and must
# not bring all of crdebug into them.
_ELSEWHERE = {
    "Session": ("crdebug.session", "Session"),
    "Settings": ("crdebug.base.settings", "Settings"),
    "errors": ("crdebug.base.errors", ""),
    "events": ("crdebug.base.events", ""),
}


def __getattr__(name: str) -> object:
    try:
        module, member = _ELSEWHERE[name]
    except KeyError:
        raise AttributeError(f"module 'crdebug' has no attribute '{name}'") from None
    found = importlib.import_module(module)
    return getattr(found, member) if member else found


@asynccontextmanager
async def run(
    argv: Sequence[str],
    *,
    name: str | None = None,
    stop_at_main: bool = True,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: Path | int | None = None,
    settings: Settings | None = None,
    subscriber: Callable[[Event], None] | None = None,
) -> AsyncIterator[Session]:
    """A job that is started under the debugger; it is ended with the block, unless it was detached
    from. See `Session.run` for the arguments, and for what is raised."""
    from crdebug.base.settings import Settings as Defaults
    from crdebug.session import Session

    session = await Session.run(
        argv,
        name=name,
        stop_at_main=stop_at_main,
        env=env,
        cwd=cwd,
        stdin=stdin,
        settings=settings or Defaults(record=None),
        subscriber=subscriber,
    )
    try:
        yield session
    finally:
        await session.close()


@asynccontextmanager
async def attach(
    job: str,
    *,
    settings: Settings | None = None,
    subscriber: Callable[[Event], None] | None = None,
) -> AsyncIterator[Session]:
    """A job that runs already, by name or PID; it runs on after the block. See `Session.attach`."""
    from crdebug.session import Session

    session = await Session.attach(job, settings=settings, subscriber=subscriber)
    try:
        yield session
    finally:
        if session.attached:
            await session.detach()
        else:
            await session.close()


@asynccontextmanager
async def restart(
    handle: str,
    *,
    settings: Settings | None = None,
    subscriber: Callable[[Event], None] | None = None,
) -> AsyncIterator[Session]:
    """A job that is brought back from a checkpoint (``JOB:N``); it is ended with the block, unless
    it was detached from. See `Session.restart_from`."""
    from crdebug.session import Session

    session = await Session.restart_from(handle, settings=settings, subscriber=subscriber)
    try:
        yield session
    finally:
        await session.close()
