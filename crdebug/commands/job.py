"""The job and the session: detach, kill, quit."""

from __future__ import annotations

from crdebug.commands.registry import Call, Group, Requires
from crdebug.commands.results import Killed, Left, Nothing, Result

JOB = Group("job", "The job and the session")


@JOB.command(
    "detach",
    """
Let the job run on without a debugger, and end the session.

'crdebug attach JOB' comes back to it.
""",
)
async def detach(call: Call) -> Result:
    context = call.context
    await context.session.detach()
    context.over = True
    return Left(context.session.job, detached=True)


@JOB.command(
    "kill",
    "End the job. Its checkpoints stay, and 'restart' brings it back.",
    aliases=("k",),
    requires=Requires.ALIVE,
)
async def kill(call: Call) -> Result:
    context = call.context
    job = context.session.job
    if not await context.confirm(f"Kill the job {job}?"):
        return Nothing()
    await context.session.kill()
    return Killed(job)


@JOB.command(
    "quit",
    """
End the session.

A job that was started or restarted here is killed (its checkpoints stay); a job that was
attached to runs on. At the prompt Ctrl-D does the same.
""",
    aliases=("q", "exit"),
    requires=Requires.ANY,
)
async def quit_(call: Call) -> Result:
    return await leave(call)


async def leave(call: Call) -> Result:
    """quit, after a question if the job lives: what happens to it is said before it happens."""
    context = call.context
    session = context.session
    if session.ended is not None:
        context.over = True
        return Left(session.job, detached=False)
    fate = "will be killed" if context.owns_job else "will run on without a debugger"
    if not await context.confirm(f"The job {session.job} is attached and {fate}. Quit anyway?"):
        return Nothing()
    if not context.owns_job:
        await session.detach()
    context.over = True
    return Left(session.job, detached=not context.owns_job)
