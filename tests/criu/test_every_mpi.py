"""Every MPI that is installed, with every language that it has: one session each, from the start to
the end, back, and to the end again. docs/mpis.md says what was tried here.

With CRDEBUG_WRITE_DOCS=1 the page is written, not compared.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest

from crdebug import jobs
from crdebug.errors import CrdebugError, CrsFailed
from crdebug.job.launch import added_to
from crdebug.session import Session
from crdebug.target.gdb import GdbTarget
from harness import looks, mpirun, plain, programs
from harness.cli import crdebug
from harness.exact import look, look_at_strangers
from harness.faults import At, FaultyCriu, gone, half_checkpoints, kill, moves_on, victim
from harness.jobs import JOB, Heard, run_to_end
from harness.mpis import CHECKS, MPIS, Mpi, page

_TO_END = ("delete", "continue --to-end", "restart 1", "continue --to-end")
_SESSIONS = {
    "C": (
        *("break took", "continue", "[0] print value", "checkpoint", "continue"),
        *(
            "info launch",
            "[0] goto-sender",
            "delete",
            "restart 1",
            "[0] next",
            "[0] reverse-next",
            *_TO_END,
        ),
    ),
    "Fortran": (
        *("break hear", "continue", "[0] print a(1:3)", "[0] print grid(2,3)", "checkpoint"),
        *(
            "continue",
            "[0] goto-sender",
            "delete",
            "restart 1",
            "[0] next",
            "[0] next",
            "[0] reverse-next",
        ),
        *("[0] backtrace", *_TO_END),
    ),
    "mpi4py": (
        *("break MPI_Mrecv", "continue", "checkpoint", "continue", "when", "[0] goto-sender"),
        *("pybt", "delete", "restart 1", "pybt", *_TO_END),
    ),
}
_CASES = [(mpi, language) for mpi in MPIS for language in mpi.languages]
_works: dict[str, set[str]] = {}


def _program(mpi: Mpi, language: str) -> list[str | Path]:
    if language == "mpi4py":
        return [mpi.python, Path(programs.__file__).parents[1] / "programs" / "anyone.py", 3]
    if language == "C":
        return [
            programs.build("wildcard", compiler=mpi.tool("mpicc"), flags=("-O0",)),
            "--rounds",
            2,
        ]
    flags = programs.BINDINGS["mpi_f08"]
    return [programs.build("field", compiler=mpi.tool("mpifort"), flags=flags), 3]


@pytest.mark.parametrize(
    ("mpi", "language"), _CASES, ids=[f"{mpi.name}-{language}" for mpi, language in _CASES]
)
async def test_there_and_back(tmp_path: Path, mpi: Mpi, language: str) -> None:
    script = tmp_path / "script"
    script.write_text("\n".join(_SESSIONS[language]))
    arguments = ("run", "--record", "--batch", "-x", script, "--name", "job", "--")
    ran = await crdebug(*arguments, *mpi.launch(3), *_program(mpi, language))
    said = ran.stdout
    assert said.count("the job ended with status 0") == 2, said
    ends = re.findall(r"^out\| .*(?:heard|rank 0:).*$", said, re.M)
    # What MPI left open is as it was the first time; what the clock says is not all recorded.
    assert len(ends) == 2 and len({end.split(" after")[0] for end in ends}) == 1, said
    assert re.search(r"message of \d+ bytes from rank [12] to rank 0, tag [1-7]", said), said
    if language == "C":
        assert "UCX_TLS=self,sm,tcp: network cards" in said, said
        assert re.search(r"\[0\] = [12]000\n", said), said
        assert re.search(r"\[[12]\] main at .*wildcard.c:90\n +90\s+MPI_Send", said), said
        assert re.search(r"reverse-next\n(.*\n)*? +\[0\] took at .*wildcard.c:8\n", said), said
    if language == "mpi4py":  # in the past, and restarted
        assert len(re.findall(r"^ +py0  <module> \(\) at anyone.py:\d+$", said, re.M)) >= 2, said
    if language == "Fortran":
        assert "[0] = (0.5, 1.5, 2.5)\n" in said and "[0] = 23\n" in said, said
        assert "another way" not in said, said  # an array's element is no call
        assert re.search(r"\[0-2\] field at .*field.F90:", said), said  # not at C's main
        assert re.search(r"\[[12]\] field at .*\n +\d+\s+call mpi_send\(", said), said
        assert re.search(r"reverse-next\n(.*\n)*? +\[0\] .*\n +\d+\s+call hear\(", said), said
        assert re.search(r"#0 +field::gather_any \(.*\n +#1 +field \(\) at", said), said
    _works.setdefault(mpi.name, set()).add(language)


# ---- what the other suites show of Open MPI 4.1, in short ---------------------------------------

each_mpi = pytest.mark.parametrize("mpi", MPIS, ids=[mpi.name for mpi in MPIS])
_ENDLESS = ("--steps", 10**6, "--delay-us", 1000)
_RANKS = 2


def _argv(mpi: Mpi, name: str, *arguments: object) -> list[str]:
    program = programs.build(name, compiler=mpi.tool("mpicc"))
    return [*mpi.launch(_RANKS), str(program), *map(str, arguments)]


async def _stopped_at(job: Session, function: str) -> None:
    point = await job.add_breakpoint(job.ranks, function)
    await job.resume(job.ranks)
    await job.delete_breakpoint(point.number)


async def _same(job: Session) -> None:
    """After a checkpoint, and after a restart from it."""
    before = await look(job)
    taken = await job.checkpoint()
    before.expect_same(await look(job), "a checkpoint")
    await job.restart(taken.number)
    assert not before.differences_after_restart(await look(job))


@each_mpi
async def test_all_is_as_it_was_in_blocking_calls(mpi: Mpi) -> None:
    heard = Heard()
    calls = ("--only", "poll,nanosleep,select,read", "--timeout-ms", 1000, "--steps", 5)
    job = await Session.run(_argv(mpi, "syscalls", *calls), name=JOB, subscriber=heard)
    try:
        await _stopped_at(job, "work_step")
        await _same(job)
        assert await run_to_end(job) == 0
        assert heard.text().splitlines()[-_RANKS:] == [
            f"rank {rank}: syscalls ok" for rank in range(_RANKS)
        ]
    finally:
        await job.close()
    await jobs.delete(f"{JOB}:1")


@each_mpi
async def test_state_faults_and_restarts_with_and_without_a_debugger(
    mpi: Mpi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    argv, criu, heard = _argv(mpi, "threads", *_ENDLESS), FaultyCriu(monkeypatch, tmp_path), Heard()
    job = await Session.run(argv, name=JOB)
    try:
        for place in ("work_step", "PMPI_Sendrecv", "PMPI_Allreduce"):
            await _stopped_at(job, place)
            await _same(job)
        assert job.checkpoints()[0].added == added_to(os.environ)
        await _faults(job, criu)
        await job.detach()
    finally:
        await job.close()
    await _crdebug_is_killed()
    _works.setdefault(mpi.name, set()).add("faults")

    bare = (await jobs.take_checkpoint(JOB, "", False, heard)).handle
    for handle in (f"{JOB}:1", bare):
        await jobs.restart(handle, heard)
        await moves_on()
        job = await Session.restart_from(handle)
        try:
            await _stopped_at(job, "work_step")
            await job.detach()
        finally:
            await job.close()
        await moves_on()
    last = looks.end_soon()
    assert await jobs.follow(JOB, heard) == 0
    ended = mpirun.run(_argv(mpi, "threads", "--steps", last)).expect().stdout
    assert sorted(looks.output().splitlines()) == sorted(ended.splitlines())
    for each in await jobs.list_checkpoints(JOB):
        await jobs.delete(each.handle)
    _works[mpi.name] |= {"exact", "2 x 2"}


async def _faults(job: Session, criu: FaultyCriu) -> None:
    for verb, does in (("dump", job.checkpoint), ("restore", job.restart)):
        criu.will("fail", verb)
        with pytest.raises(CrsFailed, match="this was asked for"):
            await does()
    criu.work_again()
    gdb = job.group[1]
    assert isinstance(gdb, GdbTarget)
    for pid, allowed in ((gdb.gdb_pid, contextlib.suppress), (None, pytest.raises)):
        at = At("checkpoint", "hold", lambda pid=pid: kill(pid or looks.shims()[0].pid))  # type: ignore[misc]
        unsubscribe = job.subscribe(at)
        with allowed(CrdebugError):  # another GDB may take the rank back
            await job.checkpoint()
        unsubscribe()
        assert at.reached
        await job.restart(1)
    assert half_checkpoints() == []


async def _crdebug_is_killed() -> None:
    killed = await victim(
        start="attach", at=["checkpoint", "dump"], verb="checkpoint", **{"break": "work_step"}
    )
    await gone(killed.gdbs)
    assert [info.state for info in await jobs.list_jobs()] == ["held"]
    assert await jobs.release(JOB)
    await moves_on()


@each_mpi
async def test_a_job_that_is_attached_to_again_and_again(mpi: Mpi, tmp_path: Path) -> None:
    async with plain.quiet(tmp_path, mpi=mpi) as (launcher, found):
        before = None
        for pid in (launcher.pid, found.entries[1].pid):
            job = await Session.attach(str(pid))
            try:
                for _ in range(2):
                    now = await look_at_strangers(job)
                    lines = (before or now).differences(now)
                    # restart_syscall(2): the kernel goes on with a call that a stop interrupted.
                    assert not [line for line in lines if not line.endswith("is 0xdb")], lines
                    before = before or now
                    await job.group.detach_all()
                    await job.group.attach_all({each.rank: each.pid for each in found.entries})
                await job.detach()
            finally:
                await job.close()
        plain.let_end(tmp_path)
        await launcher.ended()
    _works.setdefault(mpi.name, set()).add("attach")


# ---- and besides ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "told", "status"),
    [
        ("bounds", "Fortran runtime error: Index '12' of dimension 1 of array 'a' above", 2),
        ("stop", "ERROR STOP rank 1 gives up", 1),
    ],
)
async def test_an_error_of_fortran_s_is_told_as_what_it_is(
    tmp_path: Path, how: str, told: str, status: int
) -> None:
    mpi = next((each for each in MPIS if "Fortran" in each.languages), None)
    if mpi is None:
        pytest.skip("no mpifort")
    script = tmp_path / "script"
    by = "_gfortran_runtime_error_at" if how == "bounds" else "_gfortran_error_stop_string"
    script.write_text("continue\n")
    program = [*_program(mpi, "Fortran")[:1], 1, how]
    arguments = ("run", "--no-record", "--batch", "-x", script, "--")
    said = (await crdebug(*arguments, *mpi.launch(2), *program)).stdout
    place = rf"exit\({status}\) without MPI_Finalize, by {by}, from field at .*field.F90:\d+"
    assert re.search(rf"rank 1 is about to end: {place}", said), said
    assert f"err| {told}" in said, said


def test_the_page_says_what_was_tried() -> None:
    if not all({"C", *CHECKS} <= _works.get(mpi.name, set()) for mpi in MPIS):
        pytest.skip("the sessions of this module were not all run")
    path = Path(__file__).parents[2] / "docs" / "mpis.md"
    if os.environ.get("CRDEBUG_WRITE_DOCS"):
        path.write_text(page(_works))
    rows = {line for line in page(_works).splitlines() if line.startswith("| ")}
    assert rows <= set(path.read_text().splitlines())
