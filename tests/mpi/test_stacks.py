"""Stacks as users see them: merged over ranks, and without what crdebug has put into them."""

from __future__ import annotations

from crdebug.base.settings import Settings
from harness.jobs import session
from harness.programs import build
from harness.talk import Talk

OWN = ("wrap_", "crdebug_", "pmpi.so", "shim.so")


async def test_crdebug_s_frames_are_folded_away_and_stacks_merged() -> None:
    async with session(build("stops"), ranks=3, settings=Settings(record=True)) as job:
        talk = Talk(job)
        assert "are at the barrier" in await talk("barrier PMPI_Allreduce")
        looks = ("backtrace", "where", "stack", "stack --threads", "thread apply all bt")
        shown = {line: await talk(line) for line in looks}
        assert {line: own for line in looks for own in OWN if own in shown[line]} == {}
        # all ranks have come from the same line: one stack for all, in each of the answers
        merged = {line: said.count("exchange") for line, said in shown.items()}
        assert merged == dict.fromkeys(looks, 1)
        assert "PMPI_Allreduce" in shown["backtrace"]
        level = next(
            line.split()[0] for line in shown["backtrace"].splitlines() if "exchange" in line
        )
        # numbers are GDB's
        assert f"{level} " in await talk(f"frame {level[1:]}") and level != "#1"
        assert "exchange (" in await talk("frame")
        # the same place on all ranks, though it is at another address on each
        for line in ("print $pc", "print &my_rank", "display $pc", "thread apply 1 print $pc"):
            said = await talk(line)
            assert "[0-2]" in said and "<" in said, said
        assert "all 3 ranks agree" in await talk("compare $pc")
        assert (await talk("print/x $pc")).count("\n") == 2
