"""crdebug itself is killed (SIGKILL) at any moment of its work: the job is not lost."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.detached import jobs
from crdebug.job.directory import JobDirectory
from crdebug.node import proc
from crdebug.session import Session
from crdebug.ui.listing import job_table
from harness import looks
from harness.faults import CHECKPOINT, RESTART, FaultyCriu, Victim, gone, moves_on, victim
from harness.jobs import JOB, run_to_end
from harness.mpirun import command, reference
from harness.procstate import patched_code
from harness.programs import build

pytestmark = pytest.mark.every_mpi("faults", by_turns=True)

RANKS = 2
# Until looks.end_soon ends it.
ENDLESS = ("--steps", 1000000, "--delay-us", 5000)
# The phases, as they begin, in which threads wait for a debugger.
HELD_AT = {"detach", "hold", "dump", "retire", "attach", "walk out"}
STOP = {"break": "work_step"}


@pytest_asyncio.fixture(autouse=True)
async def end() -> AsyncIterator[None]:
    """End whatever a failed test leaves running, so that one fault is reported once."""
    yield
    with contextlib.suppress(CrdebugError):
        await jobs.kill(JOB)


def endless(program: Path) -> list[str]:
    return command(program, *ENDLESS, ranks=RANKS)


async def state(killed: Victim) -> str:
    """The state that `crdebug jobs` shows once the dead crdebug's GDBs are gone, if it is true."""
    await gone(killed.gdbs)
    (info,) = await jobs.list_jobs()
    ranks = looks.shims()
    threads = [thread for rank in ranks for thread in proc.threads(rank.pid)]
    assert {thread.tracer for thread in threads} == {0}
    assert [patched_code(rank.pid) for rank in ranks] == [()] * RANKS
    if info.state == "running":
        await moves_on()
    else:
        for opens in (f"crdebug attach {JOB}", f"crdebug release {JOB}"):
            assert opens in job_table([info])
    return info.state


def half_checkpoints() -> list[str]:
    store = JobDirectory(JOB).store
    whole = {str(number) for number in store.numbers()}
    there = {entry.name for entry in store.root.iterdir()} if store.root.exists() else set()
    return sorted(there - whole - {"last"})


async def back(by: str) -> None:
    """Make the job run again: by `release`, or by a session that leads it out and then leaves."""
    if by == "release":
        held = (await jobs.list_jobs())[0].state == "held"
        assert bool(await jobs.release(JOB)) == held
    else:
        job = await Session.attach(JOB)
        try:
            await job.add_breakpoint(job.ranks, "work_step")
            await job.resume(job.ranks)
            await job.detach()
        finally:
            await job.close()
    JobDirectory(JOB).read()  # if it has ended, the error says how
    (info,) = await jobs.list_jobs()
    assert info.state == "running"
    assert half_checkpoints() == []
    await moves_on()


def other(way: str) -> str:
    return {"attach": "release", "release": "attach"}[way]


async def ends_well(program: Path, *arguments: object) -> None:
    """A last session lets it run to its end, and its output is what it should be."""
    job = await Session.attach(JOB)
    try:
        last = looks.end_soon()
        status = await run_to_end(job)
        expected = reference(program, *(arguments or ("--steps", last)), ranks=RANKS)
        assert (looks.output(), status) == (expected, 0)
    finally:
        await job.close()


async def checkpoints() -> list[int]:
    return [each.number for each in await jobs.list_checkpoints(JOB)]


# The first three are what MPIs other than the first run of this file, see conftest.py: each has it
# all, in little time.
@pytest.mark.parametrize(
    ("verb", "line"),
    [
        ("dump", "Dumping task .*comm: threads"),
        ("restore", r"Forking task with (?!20001 )\d+ pid"),
        ("restore", "Running post-restore scripts"),
    ],
)
async def test_while_criu_is_at_work(
    verb: str, line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = build("threads")
    criu = FaultyCriu(monkeypatch, tmp_path)
    if verb == "restore":
        killed = await victim(
            start="run", argv=endless(program), verb="checkpoint", at="done", **STOP
        )
        await back("release")
    criu.will("kill crdebug", verb, at=line)
    killed = await victim(
        start="attach" if verb == "restore" else "run",
        argv=endless(program),
        verb={"dump": "checkpoint", "restore": "restart"}[verb],
        at="criu",
        **STOP,
    )
    assert criu.reached
    criu.work_again()
    # At once: the CRIU is at work still, with nobody to answer it.
    await back("attach" if verb == "dump" else "release")
    await gone(killed.gdbs)
    assert await checkpoints() == ([1] if verb == "restore" else [])
    await ends_well(program)
    if verb == "restore":
        await jobs.delete(f"{JOB}:1")


@pytest.mark.parametrize("by", ["attach", pytest.param("release", marks=pytest.mark.sweep)])
async def test_at_each_phase_of_a_checkpoint(by: str) -> None:
    """With `release`, only the phases in which a checkpoint holds the job: there the other way back
    matters."""
    program = build("threads")
    start = "run"
    for number, phase in enumerate(CHECKPOINT):
        if by == "release" and phase not in HELD_AT:
            continue
        killed = await victim(
            start=start, argv=endless(program), verb="checkpoint", at=["checkpoint", phase], **STOP
        )
        start = "attach"
        assert await state(killed) == ("held" if phase in HELD_AT else "running"), phase
        assert await checkpoints() == [], phase
        await back(by if number % 2 else other(by))
    await ends_well(program)


@pytest.mark.parametrize("by", ["attach", pytest.param("release", marks=pytest.mark.sweep)])
async def test_at_each_phase_of_a_restart(by: str) -> None:
    """By turns at the prompt and from the command line."""
    program = build("threads")
    killed = await victim(
        start="run",
        argv=endless(program),
        verb="checkpoint",
        then="restart",
        at=["restart", "restore"],
        **STOP,
    )
    assert await state(killed) == "running"
    incarnation = 1
    for number, phase in enumerate(RESTART[1:]):
        await back(by if number % 2 else other(by))
        start = ("attach", "restart")[number % 2]
        killed = await victim(start=start, handle=f"{JOB}:1", verb="restart", at=["restart", phase])
        incarnation += 1
        assert await state(killed) == "held", phase
        assert (await jobs.list_jobs())[0].incarnation == incarnation
        assert await checkpoints() == [1], phase
    await back(by)
    await ends_well(program)
    await jobs.delete(f"{JOB}:1")


@pytest.mark.parametrize("by", ["attach", pytest.param("release", marks=pytest.mark.sweep)])
async def test_at_the_start_and_at_the_prompt(by: str) -> None:
    """While the ranks are held before main, while they are at a breakpoint, while they run."""
    program = build("threads")
    phase = {"attach": "attach", "release": "main"}[by]
    killed = await victim(start="run", argv=endless(program), at=["run", phase])
    assert await held_before_main(killed)
    await back(by)
    for moment in ("stopped", "running"):
        killed = await victim(start="attach", at=moment, **STOP)
        assert await state(killed) == "running"
        await back(by)
    await ends_well(program)


async def held_before_main(killed: Victim) -> bool:
    await gone(killed.gdbs)
    await Deadline(60).until(lambda: _said_held(), "the ranks to come to their start")
    (info,) = await jobs.list_jobs()
    return info.state == "held"


def _said_held() -> bool:
    with contextlib.suppress(CrdebugError):
        return all(rank.waiting() for rank in looks.shims())
    return False


async def test_before_there_is_a_job() -> None:
    await victim(start="run", argv=endless(build("threads")), at=["run", "launch"])
    assert await jobs.list_jobs() == ()


async def test_no_system_call_shows_it(thorough: bool) -> None:
    """Threads in every kind of blocking call; a GDB that loses its crdebug also detaches from
    them."""
    program = build("syscalls")
    arguments = ("--timeout-ms", 600, "--rounds", 8, "--steps", 1000000)
    ways: Sequence[tuple[object, str]] = (
        ("stopped", "attach"),
        (["checkpoint", "hold"], "release"),
        (["checkpoint", "walk out"], "attach"),
        (["checkpoint", "hold"], "attach"),
        (["checkpoint", "walk out"], "release"),
        (["checkpoint", "publish"], "attach"),
    )[: 6 if thorough else 3]
    start = "run"
    for at, by in ways:
        killed = await victim(
            start=start,
            argv=command(program, *arguments, ranks=RANKS),
            verb="checkpoint",
            at=at,
            **STOP,
        )
        start = "attach"
        await state(killed)
        await back(by)
    await ends_well(program, "--timeout-ms", 50)
