"""A job under the debugger, without checkpoints: every way to start one, from main to its end."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused
from crdebug.base.events import JobSays, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.target import PointKind
from crdebug.detached import jobs
from crdebug.job.directory import JobDirectory, JobRecord
from crdebug.job.starter_events import starter_events
from crdebug.node import proc
from crdebug.session import Session
from harness import mpirun
from harness.jobs import JOB, Heard, run_to_end, session
from harness.mpirun import command, reference
from harness.programs import build


def where(job: Session) -> list[str]:
    """The function in which each rank has stopped."""
    return [info.location.function if info.location else "" for info in job.info_ranks()]


def lines(heard: Heard, stream: str = "stdout") -> list[str]:
    """Sorted: the launcher mixes the ranks' lines."""
    return sorted(heard.text(stream).splitlines())


async def through(job: Session) -> dict[int, str]:
    """Run until the job has ended; the programs in which ranks hit breakpoints, by rank."""
    found = {}
    while alive := RankSet.of(info.rank for info in job.info_ranks() if info.pid is not None):
        stop = await job.resume(alive)
        hits = [each.rank for each in stop.cause if each.reason is StopReason.BREAKPOINT]
        found.update({rank: job.info_ranks()[rank].executable for rank in hits})
    assert await job.job_end() == 0
    return found


async def test_all_ranks_stop_at_main_and_at_a_breakpoint_and_run_to_the_end() -> None:
    program = build("threads")
    heard = Heard()
    async with session(program, "--steps", 10, ranks=4, heard=heard) as job:
        assert where(job) == ["main"] * 4
        await job.add_breakpoint(job.ranks, "work_step")
        stop = await job.resume(job.ranks)
        assert {each.reason for each in stop.cause} == {StopReason.BREAKPOINT}
        assert await run_to_end(job) == 0
    assert lines(heard) == sorted(reference(program, "--steps", 10, ranks=4).splitlines())


async def test_all_output_has_been_reported_once_it_has_ended() -> None:
    """Whoever asks, although nobody has given crdebug the time to read it."""
    program, heard = build("threads"), Heard()
    async with session(program, "--steps", 3, ranks=2, heard=heard) as job:
        run = JobDirectory(JOB).run(1)
        while alive := RankSet.of(info.rank for info in job.info_ranks() if info.pid is not None):
            await job.resume(alive)
        with (run / "stdout").open("a") as output:
            output.write("the launcher's last word\n")
        limit = time.monotonic() + 60
        while starter_events(run / "events").status is None and time.monotonic() < limit:
            time.sleep(0.001)  # and the event loop waits too
        assert job.ended == 0
        assert "the launcher's last word" in lines(heard)


async def test_without_a_stop_at_main_they_are_before_it() -> None:
    async with session(build("tells"), ranks=2, stop_at_main=False) as job:
        assert "main" not in where(job)
        functions = {
            frame.location.function
            for frames in (await job.backtrace(job.ranks)).values.values()
            for frame in frames
        }
        assert "main" not in functions and "MPI_Init" not in functions
        await job.add_breakpoint(job.ranks, "main")
        # all of them stop when the first one is there
        while rest := [rank for rank, at in enumerate(where(job)) if at != "main"]:
            await job.resume(RankSet.of(rest))
        assert where(job) == ["main"] * 2
        assert await run_to_end(job) == 0


# ---- what the program gets ---------------------------------------------------------------------


async def test_arguments_environment_and_directory_reach_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "a b"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.setenv("TELLS", "ä b  'c' \"d\" $E")
    words = ["a b", "", "*", "$HOME 'q' \"r\" \\ ;|&", "--steps", "ü\t!"]
    heard = Heard()
    async with session(build("tells"), *words, ranks=1, heard=heard) as job:
        assert await run_to_end(job) == 0
    assert heard.text().splitlines() == [
        *(f"rank 0: argument {n} is <{word}>" for n, word in enumerate(words, start=1)),
        "rank 0: TELLS is <ä b  'c' \"d\" $E>",
        f"rank 0: in <{directory}>",
    ]


async def test_one_launcher_many_programs() -> None:
    """MPMD: `mpirun -n 1 a : -n 2 b`. A breakpoint is where each program has it."""
    mpirun.require_many_programs()
    heard = Heard()
    program, other = build("changes"), build("changes", flags=("-DWORKER",))
    more = ["one", ":", "-n", "2", str(other), "two"]
    async with session(program, *more, ranks=1, heard=heard) as job:
        assert where(job) == ["main"] * 3
        programs = [info.executable for info in job.info_ranks()]
        assert programs == [str(program), str(other), str(other)]
        both = await job.add_breakpoint(job.ranks, "work_step")
        one = await job.add_breakpoint(job.ranks, "worker_step")
        assert {rank for rank, places in one.places.items() if places} == {1, 2}
        assert all(both.places[rank] for rank in job.ranks)
        await through(job)
        assert [point.hits for point in job.breakpoints()] == [3, 2]
    assert lines(heard) == [
        "rank 0: main at step 11, child 0",
        "rank 1: worker at step 101, child 0",
        "rank 2: worker at step 101, child 0",
    ]


async def test_megabytes_of_output_arrive_whole_on_both_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 20_000
    monkeypatch.setenv("TELLS_LINES", str(count))
    heard = Heard()
    async with session(build("tells"), ranks=1, heard=heard) as job:
        assert await run_to_end(job) == 0
    words = "of the output, some words to fill it up"
    out = [line for line in heard.text().splitlines() if "line" in line or "error" in line]
    errors = heard.text("stderr").splitlines()
    lines_out = [f"rank 0: line {n:06} {words}" for n in range(count)]
    lines_of_errors = [f"rank 0: error {n:06}" for n in range(count)]
    if mpirun.mixes_streams():
        came = Counter(heard.text() + heard.text("stderr"))
        assert not Counter("\n".join((*lines_out, *lines_of_errors))) - came
    else:
        assert (out, errors) == (lines_out, lines_of_errors)


# ---- programs between the launcher and the ranks -----------------------------------------------


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


WRAPPERS: Mapping[str, str] = {
    "exec": '#!/bin/sh\nexec "$@"\n',
    "before and after": '#!/bin/bash\ndate | cat > /dev/null\nhostname > /dev/null\n"$@"\ntrue\n',
    "nested": '#!/bin/sh\nenv A=1 sh -c \'exec nice "$@"; true\' sh "$@"\n',
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
async def test_a_script_around_the_program_is_not_the_rank(tmp_path: Path, wrapper: str) -> None:
    path = Path(script(tmp_path / "wrapper", WRAPPERS[wrapper]))
    heard = Heard()
    async with session(path, build("tells"), "x", ranks=2, heard=heard) as job:
        assert where(job) == ["main"] * 2
        assert {Path(info.executable).name for info in job.info_ranks()} == {"tells"}
        assert await run_to_end(job) == 0
    assert [line for line in lines(heard) if "argument" in line] == [
        "rank 0: argument 1 is <x>",
        "rank 1: argument 1 is <x>",
    ]


@pytest.mark.parametrize("line", ["{0} x", "true && {0} x; true"])
async def test_a_shells_command_line(line: str) -> None:
    argv = ["-c", line.format(build("tells"))]
    async with session(Path("sh"), *argv, ranks=2) as job:
        assert where(job) == ["main"] * 2
        assert await run_to_end(job) == 0


async def test_an_interpreter_that_becomes_the_program_is_followed() -> None:
    program = build("tells")
    code = f"import os; os.execv({str(program)!r}, ['tells', 'x'])"
    async with session(Path(sys.executable), "-c", code, ranks=2) as job:
        await job.add_breakpoint(job.ranks, "work_step")
        stop = await job.resume(job.ranks)
        assert {each.reason for each in stop.cause} == {StopReason.BREAKPOINT}
        assert (await job.evaluate(job.ranks, "my_rank")).values == {0: "0", 1: "1"}
        assert await run_to_end(job) == 0


async def test_a_rank_that_becomes_another_program_while_it_is_debugged() -> None:
    """Also one whose MPI calls are recorded; it never stops in either of them."""
    first, then = build("changes"), build("changes", flags=("-DWORKER",))
    heard, settings = Heard(), Settings(record=True)
    arguments = ("exec", then)
    async with session(first, *arguments, ranks=2, heard=heard, settings=settings) as job:
        await job.add_breakpoint(job.ranks, "exec", kind=PointKind.CATCH)
        await job.add_breakpoint(job.ranks, "worker_step")
        stop = await job.resume(job.ranks)
        assert {each.reason for each in stop.cause} == {StopReason.CATCHPOINT}
        with pytest.raises(Refused, match="it has become another program, which has not begun yet"):
            await job.checkpoint()
        assert await through(job) == {0: str(then), 1: str(then)}
    assert lines(heard) == [f"rank {rank}: worker at step 101, child 0" for rank in range(2)]


async def test_a_rank_that_forks_goes_on_alone_under_the_debugger() -> None:
    """The child is released, without the breakpoint that is in its memory too."""
    heard = Heard()
    async with session(build("changes"), "fork", ranks=2, heard=heard) as job:
        await job.add_breakpoint(job.ranks, "work_step")
        await job.add_breakpoint(job.ranks, "main_step")
        await through(job)
        assert [point.hits for point in job.breakpoints()] == [2, 2]
    assert lines(heard) == [f"rank {rank}: main at step 11, child 7" for rank in range(2)]


async def test_a_program_that_comes_too_late_to_be_the_rank_runs_and_is_named() -> None:
    program = build("tells")
    code = f"import subprocess; subprocess.check_call([{str(program)!r}])"
    heard = Heard()
    async with session(Path(sys.executable), "-c", code, ranks=2, heard=heard) as job:
        assert await run_to_end(job) == 0
    said = sorted(event.text for event in heard.events if isinstance(event, JobSays))
    assert [text.partition(" starts only now")[0] for text in said] == [
        f"rank {rank}: {program}" for rank in range(2)
    ]
    assert len(lines(heard)) == 4


# ---- programs without debug information, other signals -----------------------------------------


async def test_a_stripped_program_stops_at_main_all_the_same(tmp_path: Path) -> None:
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", str(stripped), str(build("tells"))], check=True)
    heard = Heard()
    async with session(stripped, ranks=2, heard=heard) as job:
        # main is called with argc, argv: (System V ABI)
        assert (await job.evaluate(job.ranks, "$rdi")).values == {0: "1", 1: "1"}
        paths = (await job.evaluate(job.ranks, "*(char**)$rsi", "/s")).values
        assert all(str(stripped) in path for path in paths.values())
        callers = (await job.backtrace(job.ranks)).values
        # (in a libc without symbols the first of the two has no name)
        for frames in callers.values():
            assert any("libc_start" in each.location.function for each in frames[1:3])
        assert heard.text() == ""
        assert await run_to_end(job) == 0
    assert len(lines(heard)) == 4


@pytest.mark.parametrize("number", [20, 10, 64])  # SIGTSTP, SIGUSR1, and a real-time one
async def test_another_waitpoint_signal(number: int) -> None:
    heard = Heard()
    program = build("threads")
    settings = Settings(signal=number)
    async with session(program, "--steps", 5, ranks=2, heard=heard, settings=settings) as job:
        assert where(job) == ["main"] * 2
        await job.add_breakpoint(job.ranks, "work_step")
        await job.resume(job.ranks)
        assert await run_to_end(job) == 0
    assert lines(heard) == sorted(reference(program, "--steps", 5, ranks=2).splitlines())


async def test_the_launcher_need_not_be_in_the_path() -> None:
    launcher = shutil.which("mpirun")
    assert launcher is not None
    argv = [launcher, *command(build("tells"), ranks=1)[1:]]
    job = await Session.run(argv, name="job")
    try:
        assert await run_to_end(job) == 0
    finally:
        await job.close()


async def test_a_crdebug_that_dies_before_the_job_is_on_record_leaves_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The launcher is started only then: else it would run on, and nobody would know of it."""

    class Killed(BaseException):
        pass

    pids = []

    def die(self: JobDirectory, record: JobRecord) -> None:
        pids.append(record.pid)
        raise Killed

    monkeypatch.setattr(JobDirectory, "write", die)
    with pytest.raises(Killed):
        await jobs.run_detached(["touch", str(tmp_path / "it ran")], JOB, Settings())
    (pid,) = pids
    await Deadline(60).until(lambda: not proc.is_alive(pid), "PID 1 of the container to end")
    assert not (tmp_path / "it ran").exists()
    assert not JobDirectory(JOB).exists()
