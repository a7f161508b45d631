"""The job and the session: detach, kill, quit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from crdebug.base.errors import BadInput, Refused
from crdebug.commands.arguments import Completes, flag, rest
from crdebug.commands.context import Context
from crdebug.commands.registry import Call, Group, Requires
from crdebug.commands.results import Killed, Left, Nothing, Result, Text
from crdebug.commands.script import play, read_script
from crdebug.node import programs

JOB = Group("job", "The job and the session")

SHELL_LINE = rest("LINE", "what you would type at the shell's prompt")


@JOB.command(
    "detach",
    """
Let the job run on without a debugger, and end the session.

'crdebug attach JOB' comes back to it.
""",
)
async def detach(call: Call) -> Result:
    context = call.context
    await _detach(context)
    return Left(context.session.job, detached=True)


async def _detach(context: Context) -> None:
    try:
        await context.session.detach()
    finally:
        context.over = not context.session.attached  # even if a rank could not be let go


@JOB.command(
    "info launch",
    """
Show how the job was started, and the variables set for it, with the reasons.

These are variables in the launcher's environment; those that you set yourself are left alone.
""",
    requires=Requires.ANY,
)
async def info_launch(call: Call) -> Result:
    record, why = call.context.session.info_launch()
    lines = [shlex.join(record.argv), f"in {record.directory}"]
    lines += [f"{name}={value}: by --env" for name, value in record.environment.items()]
    lines += [f"standard input: {record.stdin}"] if record.stdin else []
    lines.append(f"recorded by {record.layer}" if record.layer else "MPI calls are not recorded")
    lines += [f"{name}={value}: {why[name]}" for name, value in record.added.items()]
    return Text("\n".join(lines))


TEXT = rest("TEXT", "a line of input", default="")
EOF = flag("--eof", "no more follows: end its standard input")


@JOB.command(
    "send",
    """
Send the job a line on its standard input, which the launcher passes to rank 0.

    send 42
    send --eof

Input waits until it is read, so send it before 'continue'. For GDB's 'run < FILE' there is
'crdebug run --stdin FILE', after which nothing more can be sent.

A job that goes back in time reads the same input again. Input that is sent after 'restart', before
the job runs, replaces what was sent after that checkpoint: a new branch of history begins.
""",
    arguments=(EOF, TEXT),
    requires=Requires.ALIVE,
    changes=True,
)
async def send(call: Call) -> Result:
    session = call.context.session
    if not call[EOF]:
        size = await session.send(f"{call[TEXT]}\n")
        return Text(f"{size} bytes sent")
    if call[TEXT]:
        await session.send(f"{call[TEXT]}\n")
    await session.send_end()
    return Text("the end of its input was sent")


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


PATH = rest("FILE|off", "the file; off ends the log", default="", completes=Completes.FILE)


@JOB.command(
    "log",
    """
Append everything typed and shown to a file.

    log heat.log
    log off

Without FILE, show which file that is.
""",
    arguments=(PATH,),
    requires=Requires.ANY,
    of_cores=True,
)
async def log(call: Call) -> Result:
    transcript = call.context.transcript
    match call[PATH]:
        case "":
            pass
        case "off":
            transcript.end()
        case path:
            transcript.begin(Path(path).expanduser())
    kept = transcript.path
    return Text(f"the transcript goes to {kept}" if kept else "no transcript is kept")


SCRIPT = rest("FILE", "a file of commands", completes=Completes.FILE)


@JOB.command(
    "source",
    """
Run the commands of a file, one a line, up to the first error.

Lines that begin with # are skipped; one that ends with a backslash continues on the next.
""",
    arguments=(SCRIPT,),
    requires=Requires.ANY,
    of_cores=True,
)
async def source(call: Call) -> Result:
    context, file = call.context, call[SCRIPT]
    if file in context.sourcing:
        way = " -> ".join((*context.sourcing, file))
        raise BadInput(f"script {file} is already running", hint=way)

    async def run(line: str, block: Sequence[str]) -> Result:
        result = await call.registry.run(context, line, block)
        if context.interrupted:
            context.show(result)
            raise Refused("interrupted")
        return result

    lines, before = read_script(file), context.sourcing
    context.sourcing = (*before, file)
    try:
        await play(lines, run, call.registry, context.echo, context.show)
    finally:
        context.sourcing, context.repeat = before, ""
    return Nothing()


@JOB.command(
    "quit",
    """
End the session.

A job that was started or restarted here is killed (its checkpoints stay); a job that was
attached to runs on. At the prompt Ctrl-D does the same.
""",
    aliases=("q", "exit"),
    requires=Requires.ANY,
    of_cores=True,
)
async def quit_(call: Call) -> Result:
    return await leave(call)


@JOB.command(
    "shell",
    """
Run a line in your shell ($SHELL, else sh), as !LINE does.

It does not concern the ranks, and its output is not in the transcript.

    shell make heat
    !ls -l
""",
    arguments=(SHELL_LINE,),
    requires=Requires.ANY,
    of_cores=True,
)
async def shell(call: Call) -> Result:
    status = await programs.shell(call[SHELL_LINE])
    return Text(f"the shell's exit status is {status}") if status else Nothing()


async def leave(call: Call) -> Result:
    """quit, after a question if the job lives: what happens to it is said before it happens."""
    context = call.context
    session = context.session
    if session.ended is not None or session.of_cores:
        context.over = True
        return Left(session.job, detached=False)
    fate = "will be killed" if context.owns_job else "will run on without a debugger"
    if not await context.confirm(f"The job {session.job} is attached and {fate}. Quit anyway?"):
        return Nothing()
    if not context.owns_job:
        await _detach(context)
    context.over = True
    return Left(session.job, detached=not context.owns_job)
