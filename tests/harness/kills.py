"""A process is killed at a random moment of an operation.

crdebug itself and CRIU at a random system call, by tests/programs/killer.c: nothing depends on how
fast the machine is, and a moment of microseconds between two calls is as likely as one of seconds.
A GDB, the starter, a rank and the launcher at a random fraction of the operation's time: they do
little meanwhile, so calls would say nothing about its progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from crdebug.base.settings import cache_home
from crdebug.job.directory import JobDirectory
from crdebug.node import proc, process_tree
from crdebug.node.criu_program import find_criu
from harness import cli
from harness.jobs import JOB
from harness.programs import build
from harness.scripts import BY_PATH

_FLOCK = 73  # flock(2): what changes a job begins with its lock
_FROM_START = -1
_SECONDS = 180.0
# On the command line it stays, to show the job's further output.
RESTART = (
    sys.executable,
    "-c",
    "import asyncio, sys; from crdebug.detached import jobs;"
    " asyncio.run(jobs.restart(sys.argv[1], print))",
)
_PLAN, _REAL = "CRDEBUG_TEST_KILLED_CRIU", "CRDEBUG_TEST_CRIU"
# Without a plan it is the real one.
_WRAPPER = f"""{BY_PATH}import os, sys
real, argv = os.environ["{_REAL}"], sys.argv[1:]
verb, _, words = os.environ.get("{_PLAN}", "").partition(" ")
if argv[:1] == [verb] and "--log-file" in argv:
    killer, report, number = words.split("\\n")
    os.environ.pop("{_PLAN}")
    os.execv(killer, [killer, report, "-1", number, real, *argv])
os.execv(real, [real, *argv])
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """How an operation ended.

    status: of crdebug's process, 137 if it was killed.
    said: output of both streams.
    stops: the places where it could have been killed.
    seconds: that it took.
    """

    status: int
    said: str
    stops: int
    seconds: float


class Killer:
    """Runs crdebug's command line, and kills the victim.

    work: a directory for its reports.
    random: chooses the moments.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, work: Path, rng: random.Random) -> None:
        self._work, self._random = work, rng
        self._program = build("killer")
        found = find_criu()
        assert found is not None
        self._wrapper = cache_home() / "programs" / "killed-criu"
        unfinished = self._wrapper.with_name(f".killed-criu-{os.getpid()}")
        unfinished.write_text(_WRAPPER)
        unfinished.chmod(0o755)
        if not self._wrapper.exists() or self._wrapper.read_text() != _WRAPPER:
            unfinished.replace(self._wrapper)  # always the same file: one not known is tried first
        unfinished.unlink(missing_ok=True)
        monkeypatch.setenv(_REAL, found.path)
        monkeypatch.setenv("CRDEBUG_CRIU", str(self._wrapper))
        assert find_criu() is not None
        self._measured: dict[tuple[str, str], Ran] = {}

    async def run(
        self, victim: str, operation: str, *arguments: object, verb: str = "restore"
    ) -> Ran:
        """Run crdebug with these arguments and kill the victim. The first time this operation is
        only measured.

        victim: "crdebug", "criu" (when it does `verb`), "gdb", "starter", "rank", "launcher".
        operation: its name; the first run of that name measures its length.
        """
        known = self._measured.get((victim, operation))
        argv = RESTART if operation == "restart" else cli.argv()
        argv = [*argv, *map(str, arguments)]
        number = self._random.randint(1, max(known.stops, 1)) if known else 0
        if victim == "crdebug":
            ran = await self._follow(self._killing(_FLOCK, number, argv))
        elif victim == "criu":
            told = "\n".join((str(self._program), str(self._report), str(number)))
            ran = await self._follow(argv, {_PLAN: f"{verb} {told}"})
        else:
            after = self._random.uniform(0, known.seconds) if known else None
            ran = await self._follow(argv, then=lambda crdebug: _kill(victim, crdebug), after=after)
        if known is None:
            self._measured[victim, operation] = ran
        return ran

    @property
    def _report(self) -> Path:
        return self._work / "killer-report"

    def _killing(self, first: int, number: int, argv: Sequence[str]) -> list[str]:
        return [str(self._program), str(self._report), str(first), str(number), *argv]

    async def _follow(
        self,
        argv: Sequence[str],
        more: Mapping[str, str] | None = None,
        *,
        then: Callable[[int], None] | None = None,
        after: float | None = None,
    ) -> Ran:
        self._report.unlink(missing_ok=True)
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **(more or {})},
            start_new_session=True,
        )
        killing = None
        if then is not None and after is not None:
            killing = asyncio.get_running_loop().call_later(after, then, process.pid)
        try:
            async with asyncio.timeout(_SECONDS):
                out = (await process.communicate())[0].decode(errors="replace")
        finally:
            if killing is not None:
                killing.cancel()
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        stops = 0
        with contextlib.suppress(FileNotFoundError, IndexError):
            stops = int(self._report.read_text().split()[0])
        assert process.returncode is not None
        status = process.returncode if process.returncode >= 0 else 128 - process.returncode
        return Ran(status, out, stops, time.monotonic() - began)


def _kill(victim: str, crdebug: int) -> None:
    """Send SIGKILL to the first of these processes that exist now, if any."""
    with contextlib.suppress(OSError, Exception):
        found = _victims(victim, crdebug)
        if found:
            os.kill(found[0], signal.SIGKILL)


def _victims(victim: str, crdebug: int) -> list[int]:
    if victim == "gdb":
        below = process_tree.descendants(crdebug)
        return [pid for pid in below if "--interpreter=mi3" in proc.command_line(pid)]
    first = JobDirectory(JOB).read().pid
    if victim == "starter":
        return [first]
    inside = [pid for pid in process_tree.of_job(first) if pid != first]
    name = "files" if victim == "rank" else "mpirun"
    return [
        pid for pid in inside if Path(proc.executable(pid)).name in (name, "orterun", "prterun")
    ]
