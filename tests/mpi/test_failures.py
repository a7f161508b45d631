"""Jobs that fail to start, or end badly: the error says why, and nothing is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, CrdebugError, NotAvailable, Refused
from crdebug.base.events import JobSays, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.target import TargetState
from crdebug.detached import jobs
from crdebug.job.directory import JobDirectory, all_jobs
from crdebug.job.ranks_there import await_ranks
from crdebug.node import proc, signals
from crdebug.session import Session
from harness.cli import finish, started
from harness.faults import dead_slow
from harness.jobs import Heard, bare_job, run_to_end, session
from harness.mpirun import command
from harness.programs import build


async def failure(argv: Sequence[str], kind: type[CrdebugError] = CrdebugError) -> str:
    """How starting this fails, in words; no job may be left of it."""
    with pytest.raises(kind) as caught:
        await Session.run(argv)
    assert all_jobs() == ()
    assert not list(JobDirectory("x").path.parent.iterdir())
    return str(caught.value)


PROGRAMS = Path(__file__).parents[1] / "programs"
NO_RANK = "the command has ended, and none of its processes was a rank of MPI (name a launcher"


async def test_a_launcher_that_is_not_there() -> None:
    said = await failure(["nompirun", "-n", "2", "x"], NotAvailable)
    assert said == "the job could not be started: nompirun: No such file or directory"


async def test_a_program_that_is_not_there() -> None:
    said = await failure(command("./nothing", ranks=2))
    why = "the launcher could not start the ranks: the program cannot be run; it ended with status "
    assert said.startswith(why)
    assert "Executable: ./nothing" in said


async def test_a_starter_that_is_killed_before_the_ranks_are_there() -> None:
    with started("run", "--name", "early", "--", "sleep", 1000) as ran:
        directory = JobDirectory("early")

        def registered() -> bool:
            return directory.exists() and directory.read().pid != 0

        await Deadline(60).until(registered, "its starter")
        os.kill(directory.read().pid, signal.SIGKILL)
        status, _, said = await finish(ran)
    assert status == 1
    assert said.endswith("\ncrdebug: the launcher ended before all ranks were there\n")
    assert all_jobs() == ()


async def test_an_option_that_the_launcher_does_not_know() -> None:
    said = await failure(["mpirun", "--nothing", "-n", "2", "x"])
    assert re.search(r'unknown option "--nothing"|unrecognized option.*\s--nothing\n', said, re.S)


async def test_more_ranks_than_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMPI_MCA_rmaps_base_oversubscribe", raising=False)
    said = await failure(["mpirun", "--host", "localhost:2", "-n", "3", str(build("tells"))])
    assert said.startswith(
        "the launcher could not start the ranks: there are more of them than slots; "
    )
    assert "not enough slots" in said


async def test_no_launcher_in_front() -> None:
    assert (await failure(["true"])).startswith(NO_RANK)


async def test_a_script_without_an_mpi_program() -> None:
    assert (await failure(command("sh", "-c", "hostname", ranks=2))).startswith(NO_RANK)
    said = await failure(command("sh", "-c", "exit 3", ranks=2))
    told = "the launcher ended with status 3 before all ranks were there"
    # Open MPI 5.0's launcher itself now and then ends without a word (docs/mpis.md).
    assert said == told or said.startswith(f"a rank ended, and so {told}:\n")


async def test_a_name_that_is_none() -> None:
    with pytest.raises(BadInput, match="'a/b' is not a job name"):
        await Session.run(command("x"), name="a/b")
    assert all_jobs() == ()


# ---- ends of programs --------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 3])
async def test_a_program_that_ends_before_mpi_init(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("TELLS_EARLY", str(status))
    async with session(build("tells"), ranks=2) as job:
        stop = await job.resume(job.ranks)
        if status:
            assert {each.reason for each in stop.cause} == {StopReason.ENDING}
            assert stop.cause[0].detail.startswith("exit(3), which main returned")
            stop = await job.resume(job.ranks)
        assert {(each.reason, each.detail) for each in stop.cause} == {
            (StopReason.EXITED, str(status))
        }
        assert await run_to_end(job) == status


async def test_a_program_that_is_no_mpi_program_is_a_rank_too() -> None:
    async with session("true", ranks=2) as job:
        assert await run_to_end(job) == 0


async def test_the_status_of_a_rank_is_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELLS_STATUS", "5")
    async with session(build("tells"), ranks=1) as job:
        assert await run_to_end(job) == 5


async def test_a_gdb_that_dies_before_the_first_run_is_replaced() -> None:
    """The other one knows everything that it has to: that the rank is to stop before it ends."""
    ends = ["--rank", 1, "--how", "exit", "--status", 3, "--step", 4]
    async with session(build("dies"), *ends, ranks=2) as job:
        signals.kill(job.group[1].gdb_pid, None, signal.SIGKILL)
        dead = "the death of its gdb"
        await Deadline(20).until(lambda: job.group[1].state is TargetState.DEAD, dead)
        stop = await job.resume(job.ranks)
        assert [(each.rank, each.reason) for each in stop.cause] == [(1, StopReason.ENDING)]


async def test_one_rank_exits_early_and_the_others_stop_too() -> None:
    ends = ["--rank", 1, "--how", "exit", "--status", 3, "--step", 4]
    async with session(build("dies"), *ends, ranks=3) as job:
        job.stop_at_failure = False
        here = await job.add_breakpoint(job.ranks, "work_step")
        await job.resume(job.ranks)
        await job.delete_breakpoint(here.number)
        (launcher,) = {proc.parent(info.pid) for info in job.info_ranks() if info.pid is not None}
        # Else the launcher may end the others sooner than they are stopped.
        async with dead_slow(launcher):
            stop = await job.resume(job.ranks)
            assert [(each.rank, each.reason, each.detail) for each in stop.cause] == [
                (1, StopReason.EXITED, "3")
            ]
            followed = [each for each in stop.stops if each.rank != 1]
            assert {each.reason for each in followed} == {StopReason.FOLLOWED}
            assert [info.state for info in job.info_ranks()] == ["stopped", "exited", "stopped"]
            with pytest.raises(Refused, match=r"rank 1: .*it has ended badly"):
                await job.checkpoint()
            others = await job.evaluate(RankSet.of([0, 2]), "'dies.c'::step")
            assert others.values == {0: "4", 2: "4"}
        assert await run_to_end(job) == 3


@pytest.mark.parametrize(
    ("how", "status", "record", "told"),
    [
        ("exit", 3, False, "exit(3) without MPI_Finalize, from die at "),
        ("exit", 0, True, "exit(0) without MPI_Finalize, from die at "),
        ("mpi-abort", 3, True, "MPI_Abort(3), from die at "),
        ("mpi-error", 0, False, "abort(6) after an error in MPI, from die at "),
    ],
)
async def test_a_rank_that_is_about_to_end_badly_stops_the_job_with_all_ranks_alive(
    how: str, status: int, record: bool, told: str
) -> None:
    ends = ["--rank", 1, "--how", how, "--status", status, "--step", 4]
    settings = Settings(record=record)
    async with session(build("dies"), *ends, ranks=3, settings=settings) as job:
        stop = await job.resume(job.ranks)
        (cause,) = stop.cause
        assert (cause.rank, cause.reason) == (1, StopReason.ENDING)
        assert cause.detail.startswith(told), cause.detail
        assert [info.state for info in job.info_ranks()] == ["stopped"] * 3
        assert (await job.evaluate(job.ranks, "'dies.c'::step")).values == dict.fromkeys(
            range(3), "4"
        )
        # reported once, and not again on the way out
        stop = await job.resume(RankSet.of([1]))
        assert stop.cause[0].reason in (StopReason.EXITED, StopReason.KILLED)


async def test_an_error_of_fortrans_library_stops_the_job(tmp_path: Path) -> None:
    program, source = tmp_path / "bounds", PROGRAMS / "bounds.f90"
    subprocess.run(["mpif90", "-g", "-fcheck=bounds", "-o", program, source], check=True)
    async with session(program, ranks=2) as job:
        stop = await job.resume(job.ranks)
        assert [each.rank for each in stop.cause] == [1]
        assert re.match(
            r"exit\(2\) without MPI_Finalize, by _gfortran_runtime_error.*, from MAIN__ at ",
            stop.cause[0].detail,
        )
        assert [info.state for info in job.info_ranks()] == ["stopped"] * 2


async def test_a_fault_stops_the_rank_where_it_happened_with_all_others_alive() -> None:
    ends = ["--rank", 2, "--how", "segv", "--step", 4]
    async with session(build("dies"), *ends, ranks=3) as job:
        stop = await job.resume(job.ranks)
        (cause,) = stop.cause
        assert (cause.rank, cause.reason, cause.detail) == (2, StopReason.SIGNAL, "SIGSEGV")
        assert cause.location is not None and cause.location.function == "die"
        assert [info.state for info in job.info_ranks()] == ["stopped"] * 3
        frames = (await job.backtrace(RankSet.of([2]))).values[2]
        assert [frame.location.function for frame in frames] == ["die", "work_step", "main"]
        assert await run_to_end(job) not in (0, None)


async def test_a_rank_that_is_killed_is_named_with_the_signal() -> None:
    ends = ["--rank", 0, "--how", "kill", "--step", 4]
    async with session(build("dies"), *ends, ranks=3) as job:
        stop = await job.resume(job.ranks)
        causes = [(each.rank, each.reason, each.detail) for each in stop.cause]
        assert (0, StopReason.KILLED, "SIGKILL") in causes
        assert await run_to_end(job) not in (0, None)


async def test_the_kill_of_a_stopped_rank_is_reported_when_it_should_continue() -> None:
    async with session(build("threads"), "--steps", 10**6, ranks=2) as job:
        await job.add_breakpoint(job.ranks, "work_step")
        await job.resume(job.ranks)
        victim = job.info_ranks()[1].pid
        assert victim is not None
        signals.kill(victim, None)
        stop = await job.resume(job.ranks)
        causes = [(each.rank, each.reason, each.detail) for each in stop.cause]
        assert (1, StopReason.KILLED, "SIGKILL") in causes


# ---- the end of the launcher -------------------------------------------------------------------


def inside(job: str, name: str) -> list[int]:
    """The PIDs of a job's processes with this name."""
    first = JobDirectory(job).read().pid
    return [
        pid for pid in proc.processes_in_namespace_of(first) if proc.status(pid)["Name"] == name
    ]


def launcher_of(job: str) -> int:
    """The PID of its mpirun, which in Open MPI 5 becomes PRRTE's."""
    (launcher,) = (*inside(job, "mpirun"), *inside(job, "prterun"))
    return launcher


async def test_a_launcher_that_is_killed_takes_the_job_with_it() -> None:
    async with session(build("threads"), "--steps", 10**6, ranks=2) as job:
        launcher = launcher_of("job")
        signals.kill(launcher, None, signal.SIGKILL)
        assert await job.job_end() == 128 + signal.SIGKILL
        assert job.ended == 128 + signal.SIGKILL
        with pytest.raises(CrdebugError, match=r"the job has ended|not every rank is stopped"):
            await job.checkpoint()


async def test_a_launcher_that_is_killed_while_the_ranks_run() -> None:
    heard = Heard()
    async with session(build("threads"), "--steps", 10**6, ranks=2, heard=heard) as job:
        await job.add_breakpoint(job.ranks, "work_step")
        await job.resume(job.ranks)
        for each in job.breakpoints():
            await job.delete_breakpoint(each.number)
        launcher, ended = launcher_of("job"), False

        def end_it(event: object) -> None:
            nonlocal ended
            if not ended and job.running == job.ranks:
                ended = True
                signals.kill(launcher, None, signal.SIGKILL)

        job.subscribe(end_it)
        stop = await job.resume(job.ranks)
        assert {each.reason for each in stop.stops} == {StopReason.KILLED}
        assert await job.job_end() == 128 + signal.SIGKILL
    told = [event.text for event in heard.events if isinstance(event, JobSays)]
    assert [line for line in told if line.startswith("the launcher was killed by SIGKILL")], told


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_for_the_job_reaches_its_launcher(number: int) -> None:
    """mpirun ends its ranks then, and says so by its status."""
    async with bare_job(build("threads"), "--steps", 10**6, ranks=2) as info:
        directory = JobDirectory("job")
        await await_ranks(directory, directory.read(), Deadline(60.0))
        signals.kill(info.pid, None, number)
        assert await jobs.follow("job", Heard()) not in (0, 128 + signal.SIGKILL)
    assert all_jobs() == ()


async def test_python_is_taken_for_the_rank_that_it_becomes() -> None:
    """It may load an MPI library at any time, so it is held before its main."""
    async with session(sys.executable, "-c", "pass", ranks=1) as job:
        # Debian's python3 has no symbols: main is called with argc, argv (System V ABI)
        assert (await job.evaluate(job.ranks, "$rdi")).values == {0: "3"}
        assert "pass" in (await job.evaluate(job.ranks, "((char**)$rsi)[2]", "/s")).values[0]
        assert await run_to_end(job) == 0
