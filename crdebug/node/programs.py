"""Run a program to its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.errors import NotAvailable


@dataclass(frozen=True, slots=True)
class Finished:
    """status: exit status, negative for a signal. out, err: its output."""

    status: int
    out: str
    err: str


async def run(
    argv: Sequence[str],
    deadline: Deadline,
    what: str,
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    pass_fds: Sequence[int] = (),
    umask: int = -1,
) -> Finished:
    """Run a program without standard input and wait for its end. umask: -1 is ours.

    It does not wait for processes that the program leaves running, even if they hold its output
    open. Raises NotAvailable if the program cannot be started, DeadlineExpired if it does not end.
    Then, and when we are cancelled, the program and its session are killed.
    """
    with contextlib.ExitStack() as stack:
        # No pipes: they end only when every process that inherits them has ended.
        out, err = (os.memfd_create(name) for name in ("out", "err"))
        stack.callback(os.close, out)
        stack.callback(os.close, err)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=None if environment is None else dict(environment),
                cwd=directory,
                pass_fds=pass_fds,
                umask=umask,
                start_new_session=True,
            )
        except OSError as error:
            raise NotAvailable(f"cannot start {argv[0]}: {error.strerror}") from None
        try:
            status = await deadline.wait(process.wait(), what)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return Finished(status, _text(out), _text(err))


async def shell(line: str) -> int:
    """Run a line in the user's shell ($SHELL, else sh), at our own terminal; returns its exit
    status, 128 + N if signal N ended it.

    It has our standard input and output, and a Ctrl-C reaches it too. If we are cancelled, we kill
    it. Raises NotAvailable if there is no such shell.
    """
    program = os.environ.get("SHELL") or "/bin/sh"
    try:
        process = await asyncio.create_subprocess_exec(program, "-c", line)
    except OSError as error:
        raise NotAvailable(f"cannot start {program}: {error.strerror}") from None
    try:
        status = await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return status if status >= 0 else 128 - status


def _text(file: int) -> str:
    return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")
