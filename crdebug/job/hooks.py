"""Run the operator's programs before and after checkpoints and restarts.

They are the executables in the directory `hooks_home()` whose name is that of the moment, or begins
with it and a dot, in the order of their names: `before-checkpoint`, `before-checkpoint.10-flush`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from enum import Enum
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, Refused
from crdebug.base.events import Event, JobSays
from crdebug.base.settings import Settings, hooks_home
from crdebug.checkpoint.store import Checkpoint
from crdebug.job.incarnation import Incarnation
from crdebug.node import owners, programs


class When(Enum):
    """The moment of a hook; the value is the hooks' name."""

    BEFORE = "before-checkpoint"
    CONTINUE = "after-continue"
    RESTART = "after-restart"


def find(when: When) -> tuple[Path, ...]:
    """The hooks for a moment. Raises Refused if another user could have put them there."""
    directory = hooks_home()
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    wanted = [name for name in names if name == when.value or name.startswith(f"{when.value}.")]
    paths = tuple(
        path for path in (directory / name for name in wanted) if os.access(path, os.X_OK)
    )
    for path in paths:
        _require_own(path)
    return paths


def _require_own(path: Path) -> None:
    """Raises Refused if another user could put another program there."""
    owners.require_own(path, "only you and root may be able to write there, and above it")


async def run(when: When, job: Incarnation, settings: Settings, **more: str) -> None:
    """Run the hooks for a moment, one after the other, until one fails. Raises Refused.

    Environment: CRDEBUG_HOOK (the moment), CRDEBUG_JOB, CRDEBUG_INCARNATION, CRDEBUG_RANKS (words
    RANK:PID), and CRDEBUG_ with each name of `more`, in capitals. CRDEBUG_CHECKPOINT is a handle,
    CRDEBUG_OUTCOME "taken" or "failed".
    """
    environment = {
        **os.environ,
        "CRDEBUG_HOOK": when.value,
        "CRDEBUG_JOB": job.record.name,
        "CRDEBUG_INCARNATION": str(job.record.incarnation),
        "CRDEBUG_RANKS": " ".join(f"{hold.rank}:{hold.pid}" for hold in job.holds),
        **{f"CRDEBUG_{name.upper()}": value for name, value in more.items()},
    }
    for path in find(when):
        _require_own(path)  # the hook before it may have run for long
        done = await programs.run(
            [str(path)], Deadline(settings.hook), f"hook {path.name}", environment=environment
        )
        if done.status != 0:
            words = (done.err.strip() or done.out.strip()).splitlines()
            said = f": {words[-1]}" if words else ""
            raise Refused(
                f"hook {path.name} ended with status {done.status}{said}",
                hint=f"it is in {path.parent}",
            )


@contextlib.asynccontextmanager
async def around_checkpoint(
    job: Incarnation,
    settings: Settings,
    tell: Callable[[Event], None],
) -> AsyncIterator[list[Checkpoint]]:
    """Run the hooks before a checkpoint, which may refuse it, and those after it. The block takes
    the checkpoint, and puts it into the list. The hooks after it also run if it fails.
    """
    taken: list[Checkpoint] = []
    try:
        await run(When.BEFORE, job, settings)
        yield taken
    finally:
        handle = taken[0].handle if taken else ""
        outcome = "taken" if taken else "failed"
        await after(When.CONTINUE, job, settings, tell, checkpoint=handle, outcome=outcome)


async def after(
    when: When,
    job: Incarnation,
    settings: Settings,
    tell: Callable[[Event], None],
    **more: str,
) -> None:
    """`run` after the fact: reports the failure of a hook, which undoes nothing."""
    try:
        await run(when, job, settings, **more)
    except CrdebugError as error:
        tell(JobSays(str(error)))
