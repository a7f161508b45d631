"""CRIU fails, is killed or hangs, or the disk is full: an error in words, and nothing is lost."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from crdebug.base.errors import CrdebugError, CrsFailed, DeadlineExpired, StoreError
from crdebug.base.settings import Settings
from crdebug.checkpoint.retention import Upkeep
from crdebug.detached import batch, jobs
from crdebug.session import Session
from harness import looks, mpirun, mpis
from harness.cli import complaint, crdebug
from harness.endless import ENDLESS, RANKS, ends_well, stopped_job
from harness.exact import look
from harness.faults import CHECKPOINT, FaultyCriu, at_phase, half_checkpoints, moves_on, small_disk
from harness.jobs import JOB, Heard, bare_job, session
from harness.lines import require_nothing_lost
from harness.mpirun import reference
from harness.programs import build

pytestmark = pytest.mark.every_mpi("faults", by_turns=True)

# Long enough to reach the place where it should hang.
IMPATIENT = Settings(dump=4.0, restore=4.0)

# Where in its work CRIU is killed, by its log: before it has done anything to the job, while it
# has its own code in a process, when the launcher's connections are in its hands, in the end.
DUMP = (
    ("Dumping task .*comm: starter", 1),
    ("Dumping pages .type:", 2),
    ("Turning repair on|Dumping task .*comm: threads", 2),
    ("Dumping pages .type:", 4),
)
# First processes, their connections, when all memory is there, when only our word is awaited.
CONNECTED = "Restoring TCP connection|Restore via sigreturn"  # MPICH has none
RESTORE = (
    (r"Forking task with (?!20001 )\d+ pid", 1),
    (CONNECTED, 1),
    ("Restore via sigreturn", 1),
)
# The new job is the job by then, and none of the old one is left.
FINAL = "Running pre-resume scripts"
FULL = re.compile("[Nn]o space left on device|a checkpoint needs about")


@pytest.fixture
def criu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FaultyCriu:
    return FaultyCriu(monkeypatch, tmp_path)


@contextlib.contextmanager
def fails(criu: FaultyCriu, kind: type[CrdebugError], words: str) -> Iterator[None]:
    """Expect one clear sentence, and a CRIU that failed as the test wanted."""
    with pytest.raises(kind) as caught:
        yield
    assert criu.reached
    said = str(caught.value)
    assert re.fullmatch(words, said), said


def dump_places(held: bool) -> tuple[tuple[str, int], ...]:
    """The places of DUMP that the job survives, whether or not a debugger holds its ranks: a
    process that has CRIU's code in it then ends, unless it blocks SIGPIPE, see
    crdebug.node.broken_dump. Open MPI's launcher does that, MPICH's does not."""
    places = DUMP if held else DUMP[:2]
    return places if "Open MPI" in mpis.name() else tuple(p for p in places if p is not DUMP[1])


def reasons(verb: str) -> dict[str, str]:
    return {
        "fail": rf"during {verb}: criu {verb} failed \(exit status 1\): this was asked for",
        "kill": rf"during {verb}: criu {verb} was killed by signal 9",
        "hang": rf"during {verb}: waited 4 s for the CRS to {verb}",
    }


# ---- under a debugger --------------------------------------------------------------------------


async def test_a_dump_that_fails_changes_nothing(criu: FaultyCriu) -> None:
    program = build("threads")
    async with session(program, *ENDLESS, ranks=RANKS) as job:
        await stopped_job(job)
        first = await job.checkpoint()
        criu.will("fail", "dump")
        await a_checkpoint_fails(job, criu, "fail")
        for line, nth in dump_places(held=True):
            criu.will("kill", "dump", nth, at=line)
            await a_checkpoint_fails(job, criu, "kill")
            await job.resume(job.ranks)
        # No other dump before the end: it would repair what these have left.
        await ends_well(job, program)
        criu.work_again()
        await job.restart(first.number)
        await ends_well(job, program)


async def a_checkpoint_fails(
    job: Session, criu: FaultyCriu, do: str, kind: type[CrdebugError] = CrsFailed
) -> None:
    before, there = await look(job), job.checkpoints()
    with fails(criu, kind, reasons("dump")[do]):
        await job.checkpoint()
    assert (job.checkpoints(), half_checkpoints()) == (there, [])
    before.expect_same(await look(job), f"a dump that fails ({do})")


async def a_restart_fails(
    job: Session, criu: FaultyCriu, do: str, kind: type[CrdebugError] = CrsFailed
) -> None:
    before, incarnation = await look(job), job.incarnation
    with fails(criu, kind, reasons("restore")[do]):
        await job.restart()
    assert job.incarnation == incarnation
    before.expect_same(await look(job), f"a restore that fails ({do})")


async def test_a_restore_that_fails_leaves_the_old_job(criu: FaultyCriu) -> None:
    program = build("threads")
    async with session(program, *ENDLESS, ranks=RANKS) as job:
        await stopped_job(job)
        first = await job.checkpoint()
        criu.will("fail", "restore")
        await a_restart_fails(job, criu, "fail")
        for line, nth in RESTORE:
            await job.resume(job.ranks)
            criu.will("kill", "restore", nth, at=line)
            await a_restart_fails(job, criu, "kill")
        await job.resume(job.ranks)
        criu.will("kill", "restore", at=FINAL, once="yes")
        await job.restart(first.number)
        assert criu.reached and job.incarnation == 3
        await ends_well(job, program)
        criu.work_again()
        await job.restart(first.number)
        await ends_well(job, program)


async def test_a_criu_that_hangs_is_ended_in_time(criu: FaultyCriu) -> None:
    program = build("threads")
    async with session(program, *ENDLESS, ranks=RANKS, settings=IMPATIENT) as job:
        await stopped_job(job)
        await job.checkpoint()
        criu.will("hang", "dump", 4, at="Dumping pages .type:")
        await a_checkpoint_fails(job, criu, "hang", DeadlineExpired)
        criu.will("hang", "restore", at=CONNECTED)
        await a_restart_fails(job, criu, "hang", DeadlineExpired)
        await ends_well(job, program)


# ---- without one -------------------------------------------------------------------------------


async def test_without_a_debugger(criu: FaultyCriu) -> None:
    program = build("threads")
    dump, restore = reasons("dump"), reasons("restore")
    async with bare_job(program, *ENDLESS, ranks=RANKS) as info:
        await looks.reach(5)

        async def checkpoint_fails(do: str, kind: type[CrdebugError] = CrsFailed) -> None:
            with fails(criu, kind, dump[do]):
                await jobs.take_checkpoint(JOB, "", False, Heard(), IMPATIENT)
            assert (await jobs.list_checkpoints(JOB), half_checkpoints()) == ((), [])
            await moves_on()

        async def restart_fails(do: str, kind: type[CrdebugError] = CrsFailed) -> None:
            with fails(criu, kind, restore[do]):
                await jobs.restart(f"{JOB}:1", Heard(), IMPATIENT)
            (now,) = await jobs.list_jobs()
            assert (now.pid, now.state, now.incarnation) == (info.pid, "running", 1)
            await moves_on()

        criu.will("fail", "dump")
        await checkpoint_fails("fail")
        for line, nth in dump_places(held=False):
            criu.will("kill", "dump", nth, at=line)
            await checkpoint_fails("kill")
        criu.will("hang", "dump", nth, at=line)
        await checkpoint_fails("hang", DeadlineExpired)

        criu.work_again()
        await jobs.take_checkpoint(JOB, "", False, Heard())
        criu.will("fail", "restore")
        await restart_fails("fail")
        for line, nth in RESTORE:
            criu.will("kill", "restore", nth, at=line)
            await restart_fails("kill")
        criu.will("hang", "restore", at=CONNECTED)
        await restart_fails("hang", DeadlineExpired)
        criu.will("kill", "restore", at=FINAL, once="yes")
        await jobs.restart(f"{JOB}:1", Heard())
        assert criu.reached
        await followed_to_the_end(program)

        criu.work_again()
        await jobs.restart(f"{JOB}:1", Heard())
        await followed_to_the_end(program)
    await jobs.delete(f"{JOB}:1")


def ghosts() -> list[Path]:
    return list(Path().glob("*.ghost"))


async def test_a_restore_that_is_killed_leaves_no_names_of_its_own(criu: FaultyCriu) -> None:
    """Nor if crdebug is killed with it; such names would block every other restart."""
    async with bare_job(build("files"), *ENDLESS, ranks=RANKS):
        await looks.reach(5)
        await jobs.take_checkpoint(JOB, "", False, Heard())
        for line, nth in RESTORE:
            criu.will("kill", "restore", nth, at=line)
            with fails(criu, CrsFailed, reasons("restore")["kill"]):
                await jobs.restart(f"{JOB}:1", Heard())
            assert not ghosts(), line
        criu.will("kill both", "restore", at=RESTORE[0][0])
        await crdebug("restart", "--no-debugger", f"{JOB}:1", status=-9)
        assert ghosts()
        criu.work_again()
        await jobs.restart(f"{JOB}:1", Heard())
        await moves_on()
        require_nothing_lost(RANKS)
        assert not ghosts()
    await jobs.delete(f"{JOB}:1")


async def followed_to_the_end(program: Path) -> None:
    last, heard = looks.end_soon(), Heard()
    assert await jobs.follow(JOB, heard) == 0
    assert heard.text() == reference(program, "--steps", last, ranks=RANKS)


async def test_a_job_that_is_killed_while_it_is_dumped_goes_on_from_the_one_before(
    criu: FaultyCriu,
) -> None:
    """PID 1 of its container is killed; a batch script uses `run --resume` each time."""
    program, heard = build("threads"), Heard()
    argv, care = mpirun.command(program, *ENDLESS, ranks=RANKS), Upkeep()
    async with bare_job(program, *ENDLESS, ranks=RANKS):
        await looks.reach(5)
        seen = looks.steps()
        await jobs.take_checkpoint(JOB, "", False, heard)
        for incarnation, (line, nth) in enumerate(DUMP[1::2], 1):
            await moves_on()
            criu.will("kill job", "dump", nth, at=line)
            with fails(criu, CrdebugError, ".*(was killed while|criu dump failed|ended).*"):
                await jobs.take_checkpoint(JOB, "", False, heard)
            assert await jobs.follow(JOB, heard) == 128 + 9
            assert [each.number for each in await jobs.list_checkpoints(JOB)] == [1]
            assert half_checkpoints() == []
            criu.work_again()
            job = await batch.start(argv, JOB, True, care, Settings(), heard)
            assert job.incarnation == incarnation + 1
            assert min(looks.steps()) >= min(seen)
        await followed_to_the_end(program)
    await jobs.delete(f"{JOB}:1")


# ---- what the command line says ----------------------------------------------------------------


async def test_the_command_line_says_it_in_one_line(criu: FaultyCriu, tmp_path: Path) -> None:
    program = build("threads")
    async with bare_job(program, *ENDLESS, ranks=RANKS):
        await looks.reach(5)
        criu.will("fail", "dump")
        assert re.fullmatch(
            reasons("dump")["fail"], complaint(await crdebug("checkpoint", JOB, status=1))
        )
        criu.will("kill", "restore", at=CONNECTED)
        await crdebug("checkpoint", JOB)
        said = complaint(await crdebug("restart", "--no-debugger", f"{JOB}:1", status=1))
        assert re.fullmatch(reasons("restore")["kill"], said), said
        script = tmp_path / "script"
        script.write_text("print step\n")
        ran = await crdebug("restart", "--batch", "-x", script, f"{JOB}:1", status=1)
        assert re.search(f"^crdebug: {reasons('restore')['kill']}$", ran.stderr, re.M), ran
        await moves_on()

        script.write_text("print step\nrestart 1\nprint step\n")
        ran = await crdebug("attach", "--batch", "-x", script, JOB, status=1)
        reason = f"{reasons('restore')['kill']}; line 3 was not run"
        assert re.search(f":2: {reason}$", ran.stderr, re.M), ran


# ---- a disk that is full -----------------------------------------------------------------------


def fill(path: Path) -> None:
    """Write until the file system is full."""
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))


@pytest.mark.root
async def test_a_disk_that_is_full_at_any_time(criu: FaultyCriu, home: Path) -> None:
    program = build("threads")
    with small_disk(home, 400):
        async with session(program, *ENDLESS, ranks=RANKS) as job:
            await stopped_job(job)
            whole = [(await job.checkpoint()).number]
            filler = home / "filler"
            for phase in CHECKPOINT:
                before = await look(job)
                with at_phase(job, "checkpoint", phase, lambda: fill(filler)):
                    try:
                        whole.append((await job.checkpoint()).number)
                        # What is written last is written while the ranks come out again.
                        assert phase in ("attach", "walk out")
                    except CrdebugError as error:
                        assert FULL.search(str(error)), (phase, str(error))
                before.expect_same(await look(job), f"a disk that is full at {phase}")
                assert [each.number for each in job.checkpoints()] == whole
                assert half_checkpoints() == []
                filler.unlink(missing_ok=True)
            before = await look(job)
            criu.will("fill", "dump", file=str(filler))
            with pytest.raises(CrsFailed, match=r"during dump: criu dump failed.*o space left"):
                await job.checkpoint()
            assert criu.reached
            before.expect_same(await look(job), "a disk that is full during a dump")
            assert [each.number for each in job.checkpoints()] == whole
            assert half_checkpoints() == []
            criu.work_again()
            filler.unlink()
            second = await job.checkpoint()
            await ends_well(job, program)
            await job.restart(second.number)
            await ends_well(job, program)


@pytest.mark.root
async def test_too_little_space_is_refused_beforehand(home: Path) -> None:
    program = build("threads")
    words = r"a checkpoint needs about (\d+) MiB and 64 MiB to spare, (\d+) MiB are free \(delete"
    with small_disk(home, 66):
        async with session(program, *ENDLESS, ranks=RANKS) as job:
            await stopped_job(job)
            before = await look(job)
            with pytest.raises(StoreError, match=words) as caught:
                await job.checkpoint()
            said = re.search(words, str(caught.value))
            assert said is not None
            needed, free = map(int, said.groups())
            assert needed + 64 > free and needed > 4
            assert 58 <= free <= 66
            before.expect_same(await look(job), "a checkpoint that there is no space for")
            assert (job.checkpoints(), half_checkpoints()) == ((), [])
            await job.detach()
        with pytest.raises(StoreError, match=words):
            await jobs.take_checkpoint(JOB, "", False, Heard())
        assert re.search(words, complaint(await crdebug("checkpoint", JOB, status=1)))
        await followed_to_the_end(program)
