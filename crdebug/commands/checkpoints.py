"""Checkpoints: checkpoint, restart, info checkpoints."""

from __future__ import annotations

from collections.abc import Iterable

from crdebug.base.errors import BadInput
from crdebug.commands.arguments import rest, word
from crdebug.commands.context import Context
from crdebug.commands.registry import Call, Group, Requires
from crdebug.commands.results import Checkpoints, CheckpointTaken, Restarted, Result

CHECKPOINTS = Group("checkpoints", "Checkpoints")


def _numbers(context: Context) -> Iterable[str]:
    return (str(each.number) for each in context.session.checkpoints() if not each.problem)


NOTE = rest("NOTE", "a note to recognise it by", default="")
HANDLE = word("N", "the checkpoint's number, or its handle JOB:N", default="", candidates=_numbers)


@CHECKPOINTS.command(
    "checkpoint",
    """
Take a checkpoint of the stopped job.

Afterwards every thread of every rank is where it was. The checkpoint outlives the session: it
can be restarted here, or later with 'crdebug restart JOB:N', with a debugger or without one.
""",
    aliases=("ch",),  # as it was before there was `check`
    arguments=(NOTE,),
)
async def checkpoint(call: Call) -> Result:
    return CheckpointTaken(await call.context.session.checkpoint(call[NOTE]))


@CHECKPOINTS.command(
    "restart",
    """
Bring the job back to a checkpoint; without a number, to the newest.

All ranks are then stopped where they were when it was taken, under a new incarnation of the job;
files that were open for writing are as they were. Breakpoints stay as they are now.
""",
    arguments=(HANDLE,),
    requires=Requires.ANY,
)
async def restart(call: Call) -> Result:
    session = call.context.session
    number = checkpoint_number(call[HANDLE], session.job)
    taken = await session.restart(number)
    return Restarted(taken, session.incarnation, session.info_ranks())


def checkpoint_number(text: str, job: str) -> int | None:
    """Read ``N`` or ``JOB:N``; None for an empty text. Raises BadInput."""
    if not text:
        return None
    name, colon, digits = text.rpartition(":")
    if not digits.isascii() or not digits.isdigit() or (colon and not name):
        raise BadInput(f"'{text}' is not a checkpoint", hint=f"write N or {job}:N")
    if colon and name != job:
        raise BadInput(
            f"{text} is a checkpoint of another job, and this session is on {job}",
            hint=f"quit, and run 'crdebug restart {text}'",
        )
    return int(digits)


@CHECKPOINTS.command(
    "info checkpoints",
    "Show the job's checkpoints, oldest first.",
    requires=Requires.ANY,
)
async def info_checkpoints(call: Call) -> Result:
    return Checkpoints(call.context.session.checkpoints())
