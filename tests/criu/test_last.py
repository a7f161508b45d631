"""`last` names the cause of changes that the rank's own instructions have not made: messages,
windows, the kernel."""

from __future__ import annotations

import re
from pathlib import Path

from crdebug.base.ranks import RankSet
from harness.programs import BINDINGS, build
from harness.travel import history, recorded, run_to

ZERO = RankSet.of([0])
PROGRAM = Path(__file__).parents[1] / "programs" / "comes.c"


def line_of(text: str) -> int:
    """The first line of the program with this text."""
    lines = PROGRAM.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


CASES = {
    "received[7]": (
        "MPI_Recv(received",
        r"rank 1 sent it at comes.c:{sent}, tick \d+ \('goto-sender'\)",
    ),
    "small": ("MPI_Recv(&small", r"rank 1 sent it at comes.c:{number}, tick"),
    "awaited[7]": ("MPI_Wait(", r"rank 1 sent it at comes.c:{awaited}, tick"),
    "spread[7]": (
        "MPI_Bcast(",
        r"rank 2 is the root at comes.c:{root}, tick \d+ \('goto-sender'\)",
    ),
}
SENDS = {
    "sent": "MPI_Send(values, LARGE, MPI_DOUBLE, 0, 1",
    "number": "MPI_Send(&number",
    "awaited": "MPI_Send(values, LARGE, MPI_DOUBLE, 0, 3",
    "root": "MPI_Bcast(",
}


async def test_what_came_by_messages(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(bytes(range(8)))
    program = build("comes")
    async with recorded(program, "--file", data, ranks=3) as job:
        past = history(job)
        await run_to(job, 0, "after")
        await past.mark("end", 0)
        lines = {name: line_of(text) for name, text in SENDS.items()}
        for expression, (call, pattern) in CASES.items():
            after = (await job.evaluate(ZERO, expression)).values[0]
            moment = await past.last(expression, 0)
            name = call.partition("(")[0]
            where = f" at comes.c:{line_of(call)}, tick {moment.tick + 1}: "
            assert f"{expression} has been changed inside {name}{where}" in moment.note
            assert re.search(pattern.format(**lines), moment.note), moment.note
            assert (await job.evaluate(ZERO, expression)).values[0] == after
            await past.goto_mark("end")


async def test_what_another_rank_wrote_to_memory_that_is_shared() -> None:
    async with recorded(build("comes"), ranks=3) as job:
        past = history(job)
        await run_to(job, 0, "after")
        await past.mark("end", 0)
        moment = await past.last("shared[0]", 0)
        assert moment.note.startswith("shared[0] has just been changed here, by rank 2")
        assert moment.focus == past.focus(job.ranks) == 2
        frames = (await job.backtrace(RankSet.of([2]))).values[2]
        assert frames[0].location.function == "writes_shared"
        # What is kept on the way there has rank 0 in calls that the others are not at.
        await past.goto_mark("end")
        moment = await past.last("window[0]", 0)
        where = f"MPI_Put of rank 1 at comes.c:{line_of('MPI_Put')}, tick"
        assert moment.note.startswith(f"window[0] has been changed inside {where}")
        await past.goto_mark("end")
        line = line_of("MPI_Irecv(")
        await job.add_breakpoint(ZERO, f"comes.c:{line}")
        await past.reverse("continue", 0)
        frames = (await job.backtrace(ZERO)).values[0]
        assert frames[0].location.line == line


async def test_what_a_system_call_has_read(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(bytes(range(1, 9)))
    async with recorded(build("comes"), "--file", data, ranks=3) as job:
        past = history(job)
        await run_to(job, 0, "after")
        moment = await past.last("from_file", 0)
        wanted = "from_file has been changed before this place, since tick "
        assert moment.note.startswith(wanted), moment.note
        assert "in a system call of the rank" in moment.note
        value = (await job.evaluate(ZERO, "from_file")).values[0]
        assert value == str(int.from_bytes(data.read_bytes(), "little"))
        await past.goto_tick(0, moment.tick)
        assert (await job.evaluate(ZERO, "from_file")).values[0] == "0"


async def test_from_the_end_of_a_job() -> None:
    """From a rank that finished long before, and from one that went on after MPI_Finalize."""
    async with recorded(build("early"), "--steps", 20, ranks=3) as job:
        past = history(job)
        await job.run_on(job.ranks)
        await job.job_end()
        moment = await past.last("step", 0)
        assert moment.note == "step has just been changed here, from 20 to 21, by early.c:30"
        assert (await job.evaluate(ZERO, "step")).values[0] == "21"  # the loop's end
        await job.run_on(job.ranks)
        await job.job_end()
        # `exchange` may be evaluated anywhere after MPI_Init
        found, moment = await past.bisect("rank 1: rank_count == 3", 1)
        assert (found.tick, moment.focus) == (2, 1)


async def test_from_a_rank_that_is_about_to_end() -> None:
    """It is in libc's `_exit`, at GDB's breakpoint there, which is not at the first instruction."""
    async with recorded(build("early"), "--steps", 20, ranks=3) as job:
        await job.add_breakpoint(RankSet.of([1]), "_exit")
        await job.run_on(job.ranks)
        moment = await history(job).last("rank_count", 1)
        assert moment.note.startswith("rank_count has just been changed here, from 0 to 3")


async def test_from_a_rank_that_has_ended_while_others_go_on() -> None:
    async with recorded(build("early"), "--steps", 20, ranks=3) as job:
        await job.add_breakpoint(job.ranks, "work_step", condition="my_rank == 2 && step == 3")
        await job.run_on(job.ranks)
        moment = await history(job).last("rank_count", 1)
        assert moment.note.startswith("rank_count has just been changed here, from 0 to 3")
        assert (await job.evaluate(RankSet.of([1]), "rank_count")).values[1] == "3"


async def test_in_fortran() -> None:
    """The frames' language differs from MPI's, and from the C that GDB itself writes."""
    program = build("field", flags=BINDINGS["mpi_f08"])
    async with recorded(program, 2, ranks=3) as job:
        past = history(job)
        await run_to(job, 0, "gather_some", "round == 2")
        await past.mark("here", 0)
        before = (await job.evaluate(ZERO, "heard")).values[0]
        moment = await past.last("heard", 0)
        # Fortran's runtime leaves what differs from run to run on the stack.
        assert moment.note.startswith("heard has just been changed here")
        frames = (await job.backtrace(ZERO)).values[0]
        assert [each.location.function for each in frames[:3]] == [
            "field::hear",
            "field::gather_any",
            "field",
        ]
        assert (await job.evaluate(ZERO, "heard")).values[0] == before
        moment = await past.last("total(3)", 0)
        assert moment.note.startswith("total(3) has been changed inside MPI_Allreduce")
        await past.goto_mark("here")
        await job.add_breakpoint(ZERO, "hear")
        await past.reverse("continue", 0)
        assert (await job.backtrace(ZERO)).values[0][0].location.function == "field::hear"
