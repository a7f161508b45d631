"""crdebug, CRIU, a GDB, the starter, the launcher or a rank is killed at a random moment of a run,
checkpoint, restart, staging or way back, again and again: not one line of the job's files and
output is missing or doubled, no checkpoint is incomplete, and no job stays stopped without a
message."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, CrdebugError
from crdebug.base.settings import Settings
from crdebug.detached import jobs
from crdebug.job.control_socket import is_attended
from crdebug.job.directory import JobDirectory
from crdebug.node import proc, process_tree
from harness import looks
from harness.faults import half_checkpoints, moves_on
from harness.jobs import JOB, bare_job
from harness.kills import Killer, Ran
from harness.lines import require_nothing_lost, require_the_end
from harness.mpirun import command
from harness.programs import build

RANKS = 2
ENDLESS = ("--steps", 10**9, "--delay-us", 2000)
FEW, MANY = 4, 300
# The operations, and the processes killed meanwhile; each is drawn as often as it is listed.
DRAWN = (
    *[("restart", "crdebug")] * 4,
    *[("restart", "criu")] * 2,
    *[("checkpoint", "crdebug")] * 2,
    *[("checkpoint", "criu")] * 2,
    *[("back", "crdebug")] * 2,
    ("back", "gdb"),
    ("back", "rank"),
    ("back", "launcher"),
    ("run", "crdebug"),
    ("stage", "crdebug"),
    ("restart", "starter"),
    ("restart", "rank"),
    ("restart", "launcher"),
    ("checkpoint", "starter"),
    ("checkpoint", "rank"),
)
# These end the job, and with it what it did since its last checkpoint; a CRIU that is killed while
# its code is in a process may do so as well, see docs/limits.md.
DEADLY = {"starter", "rank", "launcher"}
BACK = "break work_step\ncontinue\nreverse-continue\ncheckpoint\nnext\ncontinue\nrestart\ndetach\n"


class Sweep:
    def __init__(self, killer: Killer, rng: random.Random, work: Path) -> None:
        self.killer, self.random, self.work = killer, rng, work
        self.killed: dict[str, int] = {}

    def place(self, name: str) -> Path:
        """A directory of that name, for another job than the current one."""
        (self.work / name).mkdir(exist_ok=True)
        return self.work / name

    async def once(self, operation: str, victim: str) -> str:
        """Do it and kill; returns what to say should the state be wrong."""
        ran = await getattr(self, f"_{operation}")(victim)
        told = f"{operation}, {victim} killed: status {ran.status}, {ran.said[-2000:]}"
        if ran.status:
            self.killed[f"{operation}/{victim}"] = self.killed.get(f"{operation}/{victim}", 0) + 1
        assert "Traceback" not in ran.said or operation == "restart", told
        assert ran.status in (0, 137) or "crdebug" in ran.said, told
        return told

    async def _restart(self, victim: str) -> Ran:
        handle = (await jobs.list_checkpoints(JOB))[-1].handle
        return await self.killer.run(victim, "restart", handle)

    async def _checkpoint(self, victim: str) -> Ran:
        return await self.killer.run(victim, "checkpoint", "checkpoint", JOB, verb="dump")

    async def _back(self, victim: str) -> Ran:
        script = self.work / "back"
        script.write_text(BACK)
        return await self.killer.run(victim, "back", "attach", "--batch", "-x", script, JOB)

    async def _run(self, victim: str) -> Ran:
        """Another job, whose only purpose is that its remains have a name."""
        other = command(build("files"), "--steps", 3, "--dir", self.place("other"), ranks=RANKS)
        words = ("run", "--no-debugger", "--name", "other", "--", *other)
        try:
            return await self.killer.run(victim, "run", *words)
        finally:
            for info in await jobs.list_jobs():
                if info.name == "other" and info.state != "ended":
                    await _end("other")
            JobDirectory("other").forget_if_over()

    async def _stage(self, victim: str) -> Ran:
        """A batch run of three steps that takes a checkpoint and stages it."""
        other = command(build("files"), "--steps", 400, "--dir", self.place("st"), ranks=RANKS)
        place = self.place("stage")
        words = ("run", "--no-debugger", "--name", "staged", "--every", "0.3", "--stage", place)
        try:
            return await self.killer.run(victim, "stage", *words, "--", *other)
        finally:
            await self._forget("staged")

    async def _forget(self, name: str) -> None:
        for info in await jobs.list_jobs():
            if info.name == name:
                if info.state != "ended":
                    await _end(name)
                assert half_checkpoints(name) == [] or info.state != "ended"
                if not JobDirectory(name).exists():
                    return  # it had no checkpoint yet, and is forgotten
                for checkpoint in await jobs.list_checkpoints(name):
                    if not checkpoint.problem:
                        await jobs.delete(checkpoint.handle)

    async def back_in_order(self, victim: str) -> None:
        """Recover the job as the list of jobs advises, whatever has happened."""
        directory = JobDirectory(JOB)
        limit = Deadline(60)
        for _ in range(6000):
            if not await is_attended(directory.session_socket):
                break
            await limit.until(lambda: True, "the session to be gone")
        (info,) = [each for each in await jobs.list_jobs() if each.name == JOB]
        if info.state != "ended":
            try:
                await jobs.release(JOB)
            except CrdebugError:
                if proc.is_alive(directory.read().pid) and victim not in DEADLY | {"criu"}:
                    raise
            await _settled(directory)
            (info,) = [each for each in await jobs.list_jobs() if each.name == JOB]
        if info.state == "ended":
            assert victim in DEADLY | {"criu", "gdb"}, "the job is lost"
            newest = (await jobs.list_checkpoints(JOB))[-1].handle
            await jobs.restart(newest, lambda event: None)
        await moves_on()
        require_nothing_lost(RANKS)
        assert half_checkpoints() == []
        for each in (await jobs.list_checkpoints(JOB))[:-2]:
            await jobs.delete(each.handle)


async def _end(job: str) -> None:
    """End it; it may end by itself before that."""
    with contextlib.suppress(BadInput):
        await jobs.kill(job)


async def _settled(directory: JobDirectory) -> None:
    """The launcher ends a job if one process of it was killed, but not a healthy job."""
    record = directory.read()

    def settled() -> bool:
        try:
            return not proc.is_alive(record.pid) or len(looks.shims()) == RANKS
        except (CrdebugError, OSError):  # some are gone, and the others about to
            return False

    await Deadline(60).until(settled, "the launcher to end what is left of the job")


def _what_is_there() -> list[str]:
    """The job's processes and their threads, for finding the cause of a failure."""
    told = []
    with contextlib.suppress(OSError):  # it has ended
        for pid in process_tree.of_job(JobDirectory(JOB).read().pid):
            states = [(each.tid, each.state, each.tracer) for each in proc.threads(pid)]
            told.append(f"{pid} {proc.command_line(pid)[:1]} {states}")
    return told


async def sweep(monkeypatch: pytest.MonkeyPatch, work: Path, times: int) -> dict[str, int]:
    seed = int(os.environ.get("CRDEBUG_TEST_SEED", "1"))
    rng = random.Random(seed)
    swept = Sweep(Killer(monkeypatch, work, rng), rng, work)
    async with bare_job(build("files"), *ENDLESS, ranks=RANKS, settings=Settings(record=None)):
        await looks.reach(10)
        await jobs.take_checkpoint(JOB, "", False, lambda event: None)
        drawn = [DRAWN[0], *rng.choices(DRAWN, k=times - 1)]
        for number, (operation, victim) in enumerate(drawn):
            told = ""
            try:
                told = await swept.once(operation, victim)
                if (operation, victim) not in drawn[:number]:  # it was measured: now for good
                    await swept.back_in_order(victim)
                    told = await swept.once(operation, victim)
                await swept.back_in_order(victim)
            except BaseException as error:
                error.add_note(f"seed {seed}, number {number}: {operation}/{victim}: {told}")
                error.add_note("\n".join(_what_is_there()))
                raise
            print(f"{number}: {operation}/{victim}", swept.killed, flush=True)
        last = looks.end_soon()
        assert await jobs.follow(JOB, lambda event: None) == 0, looks.output(stream="stderr")
        require_the_end(looks.output(), RANKS, last)
    for checkpoint in await jobs.list_checkpoints(JOB):
        await jobs.delete(checkpoint.handle)
    return swept.killed


async def test_some(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    await sweep(monkeypatch, tmp_path, FEW)


@pytest.mark.sweep
@pytest.mark.timeout(7200)
async def test_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    killed = await sweep(monkeypatch, tmp_path, int(os.environ.get("CRDEBUG_TEST_KILLS", MANY)))
    print(killed)
