"""Unattended jobs: checkpoints at an interval, at a warning, and kills at any moment."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.events import JobSays
from crdebug.base.settings import hooks_home
from crdebug.checkpoint.retention import Keep, Upkeep
from crdebug.checkpoint.store import Checkpoint
from crdebug.detached import batch, jobs
from crdebug.job.directory import JobDirectory, is_alive
from crdebug.node import signals
from harness import looks, mpirun
from harness.cli import complaint, crdebug, finish, started
from harness.jobs import JOB, Heard, bare_job, there
from harness.mpirun import reference
from harness.programs import build

RANKS = 2
KILLS = 3
EVERY = 0.5
ENDLESS = ("--mib", 2, "--delay-us", 5000, "--steps", 10**9)


async def come(what: str, true: Callable[[], object]) -> None:
    await Deadline(60).until(lambda: bool(true()), what)


def taken() -> tuple[Checkpoint, ...]:
    return JobDirectory(JOB).store.list()


def numbers() -> list[int]:
    return [each.number for each in taken()]


def any_after(number: int) -> bool:
    return max(numbers(), default=0) > number


def expected(last: int) -> str:
    return reference(build("memory"), "--mib", 2, "--steps", last, ranks=RANKS)


async def forget() -> None:
    for each in await jobs.list_checkpoints(JOB):
        await jobs.delete(each.handle)


async def test_a_job_that_is_killed_again_and_again_ends_with_the_right_result(
    tmp_path: Path,
) -> None:
    """Each time it continues from the newest checkpoint; benchmarks/bench_batch.py measures how
    much is lost.

    The last time the machine has lost everything that it knew, and only the staged copies remain.
    """
    second = tmp_path / "second"
    chance = random.Random(5)
    care = Upkeep(every=EVERY, keep=Keep(count=2), stage=second)
    heard = Heard()
    directory = JobDirectory(JOB)
    async with bare_job(build("memory"), *ENDLESS, ranks=RANKS):
        for kill in range(KILLS):
            await looks.reach(5)
            record, before, seen = directory.read(), max(numbers(), default=0), looks.steps()
            attended = asyncio.create_task(batch.attend(JOB, care, heard))
            await come("a checkpoint", partial(any_after, before))
            await asyncio.sleep(chance.uniform(0, EVERY))
            signals.kill(record.pid, record.start)
            assert await attended == 128 + 9
            assert not is_alive(record)
            if kill == KILLS - 1:
                shutil.rmtree(directory.path)
            await jobs.restart(await batch.handle_of(JOB, second), heard)
            assert min(looks.steps()) >= min(seen)
        last = looks.end_soon()
        assert await batch.attend(JOB, care, heard) == 0, looks.output(stream="stderr")
    assert looks.output() == expected(last)
    (*_, newest) = everywhere = await jobs.list_checkpoints(JOB)
    assert len(everywhere) <= 2
    assert newest.places == ("local", "staged")
    await forget()
    assert not JobDirectory(JOB).exists()
    assert not list(second.rglob("staged.json"))


async def test_a_warning_takes_a_last_checkpoint_and_the_same_command_goes_on_from_it() -> None:
    """As a batch script does it; with the files that remain, and with a stop for the operator."""
    command = mpirun.command(build("memory"), *ENDLESS, ranks=RANKS)
    options = ("--no-debugger", "--resume", "--name", JOB)
    line = ("run", *options, "--on-signal", "USR1", "--on-signal", "TERM", "--", *command)
    heard = Heard()
    with started(*line) as first:
        await there()
        await looks.reach(5)
        for note in ("", "", "mine"):
            await jobs.take_checkpoint(JOB, note, False, heard)
        jobs.set_kept(f"{JOB}:1", True)
        await crdebug("checkpoint", JOB, "--stop", "--keep", 1)
        assert numbers() == [1, 3, 4]  # kept, noted, and the newest
        assert [info.state for info in await jobs.list_jobs()] == ["stopped"]
        stands = looks.steps()
        said = complaint(await crdebug("checkpoint", JOB, status=1))
        assert re.search(rf"job '{JOB}' is stopped \('crdebug release {JOB}'", said)
        assert looks.steps() == stands
        assert await jobs.release(JOB) == (f"job '{JOB}' goes on",)
        await looks.reach(max(stands) + 2)
        first.send_signal(signal.SIGUSR1)
        status, stdout, stderr = await finish(first)
        assert (status, stdout) == (batch.EXIT_AGAIN, ""), stderr
        assert f"crdebug: checkpoint {JOB}:5 taken; the job is ended\n" in stderr
    assert numbers() == [1, 3, 4, 5]

    with started(*line) as second:
        await come("the restart", lambda: JobDirectory(JOB).read().incarnation == 2)
        await looks.reach(max(stands) + 2)
        last = looks.end_soon()
        status, stdout, stderr = await finish(second)
        assert (status, stdout) == (0, expected(last)), stderr

    jobs.set_kept(f"{JOB}:1", False)
    assert await batch.prune(JOB, Keep(count=1)) == (f"{JOB}:1", f"{JOB}:4")
    # The newest one is damaged and skipped; the stop in the stopped job's image does not count.
    (JobDirectory(JOB).store.path(5) / "images" / "inventory.img").unlink()
    assert await batch.handle_of(JOB) == f"{JOB}:3"
    await jobs.restart(f"{JOB}:3", heard)
    last = looks.end_soon()
    assert await jobs.follow(JOB, heard) == 0
    assert looks.output() == expected(last)
    await forget()


def hook(name: str, text: str) -> Path:
    path = hooks_home() / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path


async def test_hooks_may_refuse_and_learn_what_happens_to_the_job(tmp_path: Path) -> None:
    """A refusal is reported once, and the job runs on; a warning causes one checkpoint, and no
    more."""
    heard, log = Heard(), tmp_path / "log"
    care = Upkeep(every=0.2, warnings=(signal.SIGUSR1,), go_on=True)
    for moment in ("before-checkpoint.1", "after-continue", "after-restart"):
        words = "$CRDEBUG_HOOK $CRDEBUG_JOB $CRDEBUG_CHECKPOINT $CRDEBUG_OUTCOME $CRDEBUG_RANKS"
        hook(moment, f'echo "{words}" >> {log}')
    refusal = hook("before-checkpoint.2", "echo not now >&2; exit 3")

    def refusals() -> list[str]:
        says = (each.text for each in heard.events if isinstance(each, JobSays))
        return [text for text in says if "hook before-checkpoint.2 ended with status 3" in text]

    async with bare_job(build("memory"), *ENDLESS, ranks=RANKS):
        await looks.reach(5)
        ranks = " ".join(f"{shim.rank}:{shim.pid}" for shim in looks.shims())
        attended = asyncio.create_task(batch.attend(JOB, care, heard))
        await come("a refusal", refusals)
        assert not taken()
        refusal.unlink()
        os.kill(os.getpid(), signal.SIGUSR1)
        await come("a checkpoint", taken)
        last = looks.end_soon()
        assert await attended == 0
        assert len(refusals()) == 1
        assert "status 3: not now" in refusals()[0]
        assert heard.text() == expected(last)
        lines = log.read_text().splitlines()
        assert lines[:2] == [
            f"before-checkpoint {JOB}   {ranks}",
            f"after-continue {JOB}  failed {ranks}",
        ]
        assert f"after-continue {JOB} {JOB}:1 taken {ranks}" in lines
        await jobs.restart(f"{JOB}:1", heard)
        assert log.read_text().splitlines()[-1].startswith(f"after-restart {JOB} {JOB}:1  0:")
    await forget()
