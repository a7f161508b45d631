"""Checkpoint and restart from the prompt, beside the bare CRIU on the same kind of job.

Bounds (issue 2, "Speed"): checkpoint <= 1.3 x criu dump + 0.3 s; restart <= 1.3 x criu restore
+ 0.8 s; on 4 small ranks, and on 4 ranks of 256 MiB each.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from common import Pairs, main, report, timed, timed_command

from crdebug.base.deadline import Deadline
from crdebug.checkpoint import shared_memory
from crdebug.job.directory import JobDirectory
from crdebug.node import container, criu_trial, proc, signals
from crdebug.node.container import Container
from crdebug.node.criu_program import find_criu
from crdebug.session import Session
from harness import mpirun
from harness.programs import build

ROUNDS = 5


class BareJob:
    """A job in the same container, dumped and restored by criu alone."""

    def __init__(self, name: str, work: Path) -> None:
        self.record = JobDirectory(name).read()
        self.run = JobDirectory(name).run(1)
        self.images = work / "images"
        program = find_criu()
        assert program is not None
        self.criu = program.path

    def _within(self, keeper: int, *words: str) -> list[str]:
        if os.geteuid():
            words = (*words, *criu_trial.UNPRIVILEGED)
        command = [self.criu, *words, "--images-dir", str(self.images), "-v1"]
        return container.entering(Path(self.record.starter), keeper, command)

    def dump(self) -> float:
        shutil.rmtree(self.images, ignore_errors=True)
        self.images.mkdir()
        tree = str(proc.inner_pid(self.record.pid))
        words = ("dump", "--tree", tree, *criu_trial.COMMON, *criu_trial.DUMP)
        return timed_command(self._within(self.record.keeper, *words))

    async def restore(self) -> float:
        """The image has been made just now, and the job has not run since then to speak of; its
        output files are cut to what they were, which is not timed; nor is the new container."""
        sizes = {p: p.stat().st_size for p in self.run.iterdir() if p.is_file()}
        first = proc.inner_pid(self.record.pid)
        shared = self.images.parent / "shared"
        shutil.rmtree(shared, ignore_errors=True)
        shared_memory.save(Container(self.record.keeper).shared_memory, shared)
        signals.kill(self.record.keeper, None)
        await signals.ended(self.record.keeper, Deadline(30), "the bare job to end")
        for path, size in sizes.items():
            with path.open("ab") as file:
                file.truncate(size)
        (self.run / "starter").unlink(missing_ok=True)
        starter = Path(self.record.starter)
        host = os.uname().nodename
        async with container.for_restore(starter, first, host, self.run, Deadline(30)) as (new, _):
            shared_memory.put_back(shared, new.shared_memory)
            words = ("restore", *criu_trial.COMMON, *criu_trial.RESTORE)
            seconds = timed_command(self._within(new.keeper, *words))
        self.record = replace(self.record, pid=new.find(first), keeper=new.keeper)
        return seconds

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Our own ranks stand while the bare tool is timed; so do its ranks while we are."""
        pids = proc.processes_in_namespace_of(self.record.pid)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


async def measure(title: str, mib: int) -> list[Pairs]:
    program = build("memory")
    argv = mpirun.command(program, "--steps", 1_000_000, "--delay-us", 1000, "--mib", mib)
    taking = Pairs(f"checkpoint, {title}", 1.3, 0.3)
    going = Pairs(f"restart, {title}", 1.3, 0.8)
    work = Path.cwd()
    session = await Session.run(argv, name=f"ours{mib}")
    other = await Session.run(argv, name=f"bare{mib}")
    try:
        for each in (session, other):
            await each.add_breakpoint(each.ranks, "work_step")
            await each.resume(each.ranks)
            await each.delete_breakpoint(1)
        await other.detach()
        bare = BareJob(f"bare{mib}", work)
        for _ in range(ROUNDS):
            with bare.standing():
                taking.ours.append(await timed(session.checkpoint))
            taking.bare.append(bare.dump())
            with bare.standing():
                going.ours.append(await timed(session.restart))
            going.bare.append(await bare.restore())
            JobDirectory(f"ours{mib}").store.delete(session.checkpoints()[-1].number)
    finally:
        await session.close()
        signals.kill(bare.record.pid, None)
    return [taking, going]


async def run() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or [1, 256]
    rows = []
    for mib in sizes:
        rows += await measure(f"4 ranks x {mib} MiB", mib)
    report(rows)


if __name__ == "__main__":
    main(run)
