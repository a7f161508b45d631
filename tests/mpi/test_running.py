"""The commands that stop ranks, look at them and let them run, at a real job."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crdebug.base.answers import NoRankAnswered
from crdebug.base.errors import GdbError, Refused
from crdebug.detached import jobs
from harness import mpirun
from harness.cli import crdebug
from harness.jobs import JOB, Heard, session
from harness.programs import build, source
from harness.talk import Talk

SOURCE = source("stops").read_text().splitlines()


def at(mark: str) -> int:
    """The number of the line with this comment."""
    return next(number for number, text in enumerate(SOURCE, 1) if text.endswith(f"// {mark}"))


async def test_looking() -> None:
    async with session(build("stops"), ranks=2) as job:
        talk = Talk(job)
        await talk.all(["break compute", "barrier compute"])  # one may come later than the other
        looks = {
            "info args": "[0-1] value = 0",
            "whatis total": "[0-1] type = volatile long",
            "info symbol compute": "[0-1] compute in section .text of ",
            "info registers rsp": "[0] rsp            0x",
            "info signals SIGUSR1": "SIGUSR1       Yes	Yes	Yes",
            "ptype pair": "struct pair {\n    int first;",
            "x/2dw &pair": ":	1	",
            "printf \"%d\\n\", pair.first": "[0-1] 1",
            "info types pair": "struct pair;",
            "info source": "Located in ",
            "info scope loop": "Symbol sum is",
        }  # fmt: skip
        for line, answer in looks.items():
            assert answer in await talk(line), line
        # what differs in addresses only is one answer
        for line in ("disassemble", "info frame", "info line", "info sharedlibrary"):
            assert (await talk(line)).startswith("[0-1]"), line
        assert await talk("up") == (
            f"[0-1] #1   loop (turns=3) at {source('stops')}:{at('CALL')}\n"
            f"{at('CALL')}	{SOURCE[at('CALL') - 1]}"
        )
        assert "turns = 3" in await talk("info args")
        assert (await talk("frame")).startswith("[0-1] #1   loop")
        assert (await talk("down")).startswith("[0-1] #0   compute")
        with pytest.raises(NoRankAnswered, match="Bottom"):
            await talk("down")
        first, second = await talk("list compute"), await talk("list")
        assert str(at("LOCAL")) in first and str(at("BEHIND")) in second


async def test_running() -> None:
    heard = Heard()
    async with session(build("stops"), ranks=2, heard=heard) as job:
        talk = Talk(job)

        async def goes(line: str, where: int | str) -> str:
            """The line brings all ranks there."""
            said = await talk(line)
            for info in job.info_ranks():
                assert info.location is not None
                assert where in (info.location.line, info.location.function), (line, said)
            return said

        await goes("tbreak compute", "main")
        await goes("barrier compute", "compute")  # one may leave MPI_Init later than the other
        await goes("next", at("LOCAL"))
        before = (await job.evaluate(job.ranks, "$pc")).values
        await goes("stepi", at("LOCAL"))
        await goes("nexti", at("LOCAL"))
        assert set((await job.evaluate(job.ranks, "$pc")).values.values()) ^ set(before.values())
        await goes("step", at("DOUBLE"))
        assert "1: local [0-1] = 1" in await goes("display local", at("DOUBLE"))
        # a jump over the doubling: with the breakpoint at its end, as in GDB
        await talk(f"tbreak {at('TOTAL')}")
        assert "1: local [0-1] = 1" in await goes(f"jump {at('TOTAL')}", at("TOTAL"))
        with pytest.raises(GdbError, match="is not in compute"):
            await talk("jump loop")
        assert "returned to loop" in await goes("finish", "loop")
        await talk("undisplay")
        await goes("advance compute", "compute")
        assert await goes("return 40", "loop") == await talk("frame")
        await goes("next", at("LOOP"))
        # 0 + 1 of the first turn, which was jumped in; 40 of the second
        assert await talk("print sum") == "[0-1] = 41"
        await goes(f"until {at('BEHIND')}", at("BEHIND"))
        assert await talk("call (void)compute(5)") == ""
        assert await talk("call compute(5)") == "[0-1] = 12"
        assert await talk("[1] set variable pair.first = 9") == ""
        assert await talk("print pair.first") == "[0] = 1\n[1] = 9"
        with pytest.raises(Refused, match="crdebug itself needs SIGSTOP"):
            await talk("handle SIGSTOP nostop")
        assert "SIGUSR1       No	No	Yes" in await talk("handle SIGUSR1 nostop noprint pass")
        assert await talk("continue --to-end") == "ranks 0-1 exited with status 0"
    totals = [line.rpartition(" pair ")[2] for line in heard.text().splitlines()]
    assert totals == ["1", "9"]


async def test_stopping() -> None:
    async with session(build("stops"), ranks=1) as job:
        talk = Talk(job)
        await talk.all(["break compute if value == 1", "watch total", "[0] catch fork"])
        await talk.all(["catch signal SIGUSR1", "break zlibVersion", "catch load nosuch"])
        table = await talk("info breakpoints")
        for row in ("watch total", "catch fork", "if value == 1", "catch load nosuch"):
            assert row in table
        assert "hit watchpoint 2 (total was 0, is 2): compute" in await talk("continue")
        assert re.match(r"rank 0 hit breakpoint 1: compute", await talk("continue"))
        # to be passed over twice: 2 is the first turn's, 6 the second's, 12 the third's
        await talk("ignore 2 1")
        assert "not the next 1" in await talk("info watchpoints")
        await talk("continue")
        assert "= 12" in await talk("print total")
        await talk.all(["disable 1", "condition 2 total == 24"])
        await talk("continue")
        assert "= 24" in await talk("print total")
        await talk("delete 2")
        await talk("break loop")
        await talk("commands", "silent", "print step", "continue")
        await talk("tbreak children")
        await talk("commands 8", "print step", "print nosuch")
        assert re.search(r" print nosuch$", await talk("info breakpoints"), re.M)
        first, second, caught = (await talk("continue")).split("\n", 2)
        assert (first, second) == ("[0] = 3", "[0] = 4")
        assert caught.startswith("rank 0 hit catchpoint 4 (SIGUSR1)")
        with pytest.raises(NoRankAnswered, match="nosuch"):
            await talk("continue")
        assert "hit breakpoint 8: children" in talk.shown[-2] and talk.shown[-1] == "[0] = 5"
        caught = await talk("continue")
        assert re.search(r"rank 0 hit catchpoint 3 \(fork, process \d+\)", caught), caught
        caught = await talk("continue")
        assert re.search(r"hit breakpoint 5: zlibVersion", caught), caught
        await talk("delete")
        assert await talk("continue --to-end") == "rank 0 exited with status 0"


async def test_what_is_watched_is_watched_by_the_processor_or_not_at_all() -> None:
    async with session(build("stops"), ranks=1) as job:
        talk = Talk(job)
        await talk.all(["break compute", "continue"])
        with pytest.raises(Refused, match="cannot be watched in hardware"):
            await talk("watch $rax")
        await talk("watch local")
        assert "watchpoint 2" in await talk("continue")
        await talk("disable 1")
        while "has ended" not in (said := await talk("continue")):
            assert "hit watchpoint 2 (local was" in said
        await talk("print total")  # by then GDB has reported that it removed the watchpoint
        assert "watch" not in await talk("info breakpoints")


@pytest.mark.parametrize(
    ("before", "goes_on"), [("print step", True), ("set var pair.first = 9", False)]
)
async def test_the_job_runs_on_after_a_failed_script_only_if_it_only_looked(
    tmp_path: Path, before: str, goes_on: bool
) -> None:
    script = tmp_path / "script"
    script.write_text(f"break compute\ncontinue\n{before}\nprint nosuchname\n")
    start = ("--name", JOB, "--", *mpirun.command(build("stops"), ranks=2))
    ran = await crdebug("run", "--batch", "-x", script, *start, status=1)
    assert f'{script}:4: ranks 0-1: No symbol "nosuchname"' in ran.stderr
    # the rest of it is shown, and nothing twice
    reports = [line for line in ran.stdout.splitlines() if "signals 1, pair 1" in line]
    assert len(reports) == (2 if goes_on else 0), ran
    assert ("the job ended with status 0" in ran.stdout) is goes_on
    assert (f"job {JOB} is killed" in ran.stdout) is not goes_on
    assert not [info for info in await jobs.list_jobs() if info.state != "ended"]
