"""The command line as its users start it: a process of its own."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness import mpirun
from harness.mpirun import Finished

_PROGRESS = re.compile(r"(run|attach|checkpoint|restart): [a-z ]+\Z")


def argv(*arguments: object) -> list[str]:
    """The command line of crdebug with these arguments."""
    return [sys.executable, "-m", "crdebug", *map(str, arguments)]


def in_path(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have others find it by its name, as they do where it is installed."""
    wrapper = directory / "crdebug"
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(argv())} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


async def crdebug(*arguments: object, status: int = 0, seconds: float = 120.0) -> Finished:
    """Run it to its end without blocking the event loop, which may have a session. Raises
    AssertionError."""
    ran = await asyncio.to_thread(mpirun.run, argv(*arguments), seconds=seconds)
    return ran.expect(status)


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """crdebug in the background; ended in the end, if it has not."""
    with subprocess.Popen(
        argv(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=mpirun.environment(),
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


async def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    stdout, stderr = await asyncio.to_thread(process.communicate)
    return process.returncode, stdout, stderr


def complaint(ran: Finished) -> str:
    """What an unsuccessful run says, besides its progress: one line, in lower case.

    Raises AssertionError.
    """
    assert ran.stdout == ""
    *progress, last = ran.stderr.splitlines()
    assert all(_PROGRESS.match(line) for line in progress), ran.stderr
    assert last.startswith("crdebug: "), ran.stderr
    said = last.removeprefix("crdebug: ")
    assert said and not said[0].isupper(), said
    return said
