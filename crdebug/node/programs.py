"""Running a program to its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crdebug.deadline import Deadline
from crdebug.errors import NotAvailable


@dataclass(frozen=True, slots=True)
class Finished:
    """status: exit status, negative for a signal. out, err: what it wrote."""

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
) -> Finished:
    """Run a program without standard input and wait for its end.

    Raises NotAvailable when it cannot be started, DeadlineExpired (it is killed then).
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=None if environment is None else dict(environment),
            cwd=directory,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except OSError as error:
        raise NotAvailable(f"cannot start {argv[0]}: {error.strerror}") from None
    try:
        out, err = await deadline.wait(process.communicate(), what)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    assert process.returncode is not None
    return Finished(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
