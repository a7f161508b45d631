"""A job in C++ with OpenMP threads: GDB's knowledge of the language, for all ranks, and after a
checkpoint."""

from __future__ import annotations

import re

from crdebug.base.deadline import Deadline
from crdebug.base.events import StopReason
from crdebug.base.ranks import RankSet
from harness.gdbs import numbers_when_attached
from harness.jobs import Heard, run_to_end
from harness.programs import build, source
from harness.talk import Talk
from harness.travel import recorded

LINES = source("shapes").read_text().splitlines()
INSIDE = next(n for n, text in enumerate(LINES, 1) if text.endswith("// in a thread of its own"))


async def test_classes_containers_exceptions_and_threads() -> None:
    program = build("shapes", flags=("-fopenmp",))
    heard = Heard()
    async with recorded(program, ranks=2, heard=heard) as job:
        talk = Talk(job)
        # a branch of history that begins before MPI does
        await talk.all(["break prepare", "continue"])
        for info in job.info_ranks():  # one may come there after the other has stopped both
            if info.location is None or info.location.function != "prepare":
                await talk(f"[{info.rank}] continue")
        await talk.all(["delete", "finish", "set var ready = 2"])
        assert "geometry::Square::scale(double) at " in await talk(
            "break geometry::Square::scale(double)"
        )
        assert "geometry::sum<double>(" in await talk("tbreak geometry::sum<double>")
        await talk("barrier geometry::Square::scale(double)")
        assert "branch-1  left main at tick 0" in await talk("info branches")
        said = await talk("print *this")
        assert "[0] = {<geometry::Shape> = {" in said and 'name_ = "square"}, side_ = 2}' in said
        assert "[0-1]\n  #0   geometry::Square::scale (...)" in await talk("backtrace")
        await talk.all(["delete", f"barrier {INSIDE}"])

        # OpenMP's threads, each at its own index or on the way to it, before and after a restart
        async def inside() -> list[dict[int, tuple[str, str]]]:
            """Of each rank, by the thread's number: where it is, and `i` there."""
            told = []
            for rank in range(2):
                # A restart gives threads other TIDs.
                listed = await talk(f"[{rank}] info threads")
                places = re.findall(rf"^\[{rank}\] +(\d+) +\d+ +(\S.*)", listed, re.M)
                said = await talk(f"[{rank}] thread apply all print i")
                values = re.split(r"^thread (\d+):$", re.sub(r"\$\d+", "value", said), flags=re.M)
                i = dict(zip(values[1::2], values[2::2], strict=True))
                told.append({int(n): (where, i[n].strip()) for n, where in places})
            return told

        at = await inside()
        assert len(at[0]) == len(at[1]) > 2
        for rank, threads in enumerate(at):
            there = [i for where, i in threads.values() if f"shapes.cc:{INSIDE}" in where]
            assert there and all(f"[{rank}] = " in i for i in there), at
        await talk.all(["checkpoint", "delete", "catch throw"])
        for again in (False, True):
            if again:
                await talk("restart")
                now = numbers_when_attached(sorted(at[0]))
                assert await inside() == [
                    {now[number]: told for number, told in each.items()} for each in at
                ]
            assert (await talk("continue")).startswith("rank 1 hit catchpoint ")
            assert "[1]\n  #0   __cxa_throw ()\n  #1   check (rank=1, total=16)" in (
                await talk("[1] backtrace")
            )
        await talk("[1] up 2")
        assert "[1] = std::vector of length 4, capacity 4 = {4, 4, 4, 4}" in (
            await talk("[1] print areas")
        )
        assert '[1] = std::map with 2 elements = {["none"] = -1, ["square"] = 1}' in (
            await talk("[1] print owners")
        )
        assert "virtual double area(void) const;" in await talk("[1] ptype square")
        # an exception that nobody catches stops the job with all ranks alive
        await talk("delete")
        stop = await job.resume(job.ranks)
        assert {each.reason for each in stop.cause} == {StopReason.SIGNAL}
        # the first one has stopped the other wherever it was
        if others := job.ranks - RankSet.of(each.rank for each in stop.cause):
            stop = await job.resume(others)
            assert {each.reason for each in stop.cause} == {StopReason.SIGNAL}
        assert "std::terminate() ()" in await talk("backtrace")
        # A line from the launcher may come after a stop from the GDBs.
        await Deadline(60).until(lambda: heard.text() == "3 3 2\n", "the program's output")
        assert await run_to_end(job) != 0
