"""The command line as its users start it: a process of its own."""

from __future__ import annotations

import asyncio
import sys

from harness import mpirun
from harness.mpirun import Finished


def argv(*arguments: object) -> list[str]:
    """The command line of crdebug with these arguments."""
    return [sys.executable, "-m", "crdebug", *map(str, arguments)]


async def crdebug(*arguments: object, status: int = 0, seconds: float = 120.0) -> Finished:
    """Run it to its end beside the event loop, which may have a session. Raises AssertionError."""
    ran = await asyncio.to_thread(mpirun.run, argv(*arguments), seconds=seconds)
    return ran.expect(status)


def complaint(ran: Finished) -> str:
    """What an unsuccessful run says: one line, in lower case. Raises AssertionError."""
    assert ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    begin, _, said = line.partition("crdebug: ")
    assert begin == "" and said and not said[0].isupper() and "Traceback" not in line, line
    return said
