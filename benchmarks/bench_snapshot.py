"""How long a process stands for a snapshot: from the interrupt until it goes on, by its own clock.

Bounds (issue 13, figures 2 and 6): <= 20 ms + 130 ms/GiB of written memory in pages of 4 KiB, and
<= 30 ms whatever the size in huge pages; the same for an ordinary user. Three rows each: `job`, a
recorded rank of crdebug's under `continue`, with all that a snapshot of the job needs; `root` and
`nobody`, a plain process under crdebug's commands in a GDB of that user's, as `crdebug attach` has
it of ranks that crdebug did not start: interrupt, snapshot, go on. Of huge pages the part is shown
that was huge until the end (AnonHugePages). Arguments: MiB; job, root, nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from common import TOP, main

from crdebug.base.deadline import Deadline
from crdebug.base.events import Event, JobOutput
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.gdb import GdbTarget
from crdebug.session import Session
from harness import mpirun, nobody

SIZES = [64, 256, 1024]
TIMES = 7  # snapshots of one process
SECONDS = 20  # of a run of a job: of the snapshots that it takes of itself
PARTS = "python import crdebug_gdb.checkpoint, crdebug_gdb.snapshot.commands"


def bound(mib: int, kind: str) -> float:
    return 0.020 + 0.130 * mib / 1024 if kind == "small" else 0.030


@dataclass(slots=True)
class Stops:
    """Of one process. at: in each of its snapshots, a moment of CLOCK_MONOTONIC.  huge: the part of
    its memory that was in huge pages in the end."""

    at: list[float] = field(default_factory=list)
    said: str = ""
    huge: float = 0.0

    def seconds(self) -> list[float]:
        """How long it stood for each: the first is left out, which finds nothing prepared."""
        gaps = [
            (int(begin) / 1e9, int(end) / 1e9)
            for begin, end in re.findall(r"gap (\d+) (\d+)", self.said)
        ]
        return [end - begin for at in self.at[1:] for begin, end in gaps if begin <= at <= end]

    def look(self, pid: int, mib: int) -> None:
        told = Path(f"/proc/{pid}/smaps_rollup").read_text()
        found = re.search(r"AnonHugePages: +(\d+)", told)
        self.huge = int(found[1]) / 1024 / mib if found else 0.0


def compiled(compiler: str, *flags: str) -> Path:
    program = Path(f"holder-{compiler}").absolute()
    source = TOP / "benchmarks/holder.c"
    subprocess.run([compiler, "-g", "-O1", "-std=c11", *flags, "-o", program, source], check=True)
    return program


# ---- one process under its user's GDB ------------------------------------------------------------


@contextlib.asynccontextmanager
async def debugged(user: str, pid: int) -> AsyncIterator[GdbTarget]:
    gdb = shutil.which("gdb") or "gdb"
    if user != "root":
        wrapper = Path("gdb-of-nobody").absolute()
        become = "setpriv --reuid nobody --regid nogroup --clear-groups"
        wrapper.write_text(f'#!/bin/sh\nexport HOME=/\nexec {become} {gdb} "$@"\n')
        wrapper.chmod(0o755)
        gdb = str(wrapper)
    script = Path(str(resources.files("crdebug.gdbscripts") / "load.py"))
    target = await GdbTarget.launch(0, Deadline(60), gdb=gdb, scripts=[script])
    try:
        await target.console(PARTS, Deadline(60))
        await target.attach(pid, Deadline(60))
        yield target
    finally:
        await target.close(Deadline(60))


async def alone(user: str, program: Path, mib: int, kind: str) -> Stops:
    stops = Stops()
    with subprocess.Popen(
        [program, str(mib), kind, str(TIMES)],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=nobody.become if user == "nobody" else None,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        async with debugged(user, process.pid) as target:
            await target.resume(Deadline(60))
            for number in range(TIMES):
                await asyncio.sleep(0.5)
                if number == TIMES - 1:
                    stops.look(process.pid, mib)
                await target.interrupt(Deadline(60))
                await target.keep(f"s{number}", (), Deadline(300))
                stops.at.append(time.clock_gettime(time.CLOCK_MONOTONIC))
                await target.resume(Deadline(60))
            ended = asyncio.create_task(target.stopped())
            stops.said = await asyncio.to_thread(process.stdout.read)
            await ended
    return stops


# ---- a rank of crdebug's -------------------------------------------------------------------------


async def in_job(program: Path, mib: int, kind: str) -> Stops:
    stops, heard = Stops(), []

    def hear(event: Event) -> None:
        if isinstance(event, JobOutput):
            heard.append(event.text)

    argv = mpirun.command(program, mib, kind, SECONDS, ranks=1)
    name = f"holder-{mib}-{kind}"
    session = await Session.run(argv, name=name, settings=Settings(record=True), subscriber=hear)
    try:
        history = session.history
        assert history is not None
        history.every = 3600.0  # one automatic checkpoint, before it runs
        interlude, pid = history.interlude, session.group[0].pid
        assert pid is not None

        async def watched(since: float) -> float:
            stops.at.append(time.clock_gettime(time.CLOCK_MONOTONIC))
            try:
                return await interlude(since)
            finally:
                stops.look(pid, mib)

        history.interlude = watched  # type: ignore[method-assign]
        await session.run_on(RankSet.of([0]), to_end=True)
    finally:
        await session.close()
    stops.said = "".join(heard)
    return stops


async def run() -> None:
    words = sys.argv[1:]
    sizes = [int(word) for word in words if word.isdigit()] or SIZES
    kinds = [word for word in words if not word.isdigit()] or ["job", "root", "nobody"]
    os.chmod(Path.cwd(), 0o755)  # another user has programs in it
    plain, ranked = compiled("cc"), compiled("mpicc", "-DWITH_MPI")
    for mib in sizes:
        for pages in ("small", "huge"):
            for user in kinds:
                if user == "job":
                    stops = await in_job(ranked, mib, pages)
                else:
                    stops = await alone(user, plain, mib, pages)
                stood = stops.seconds()
                title = f"{user:6} {mib:5} MiB, {pages} pages ({stops.huge:4.0%} huge)"
                if not stood:
                    print(f"{title}: no snapshots ({len(stops.at)} tried): {stops.said[-300:]}")
                    continue
                middle, limit = statistics.median(stood), bound(mib, pages)
                print(
                    f"{title} {1000 * middle:8.1f} ms ({1000 * min(stood):.1f}-"
                    f"{1000 * max(stood):.1f}, n={len(stood)}) bound {1000 * limit:.0f} ms "
                    f"{'met' if middle <= limit else 'missed'}",
                    flush=True,
                )


if __name__ == "__main__":
    main(run)
