"""A rank that has ended has no values: its GDB would answer what the executable file has."""

from __future__ import annotations

import pytest

from crdebug.base.errors import CrdebugError, Ended
from harness.jobs import session
from harness.programs import build
from harness.talk import Talk

ENDED = "exited with status 0"
# With the values that the file begins with: 0 for total, {first = 1, second = 2.5} for pair.
LOOKS = (
    "print total",
    "print/x &pair",
    "[1] print pair",
    "compare total",
    "plot total",
    "image values_of_nobody",
    "x/2dw &pair",
    'printf "%ld\\n", total',
    "call total",
    "set variable total = 3",
    "gdb print total",
    "gdb p total",
    "gdb x/2dw &pair",
    "gdb output total",
    "info locals",
    "info registers rip",
    "info symbol main",
    "backtrace",
    "stack",
    "stack --threads",
    "frame",
    "up",
    "info threads",
    "thread",
    "thread apply all print total",
    "list",
    "[1] next",
)


async def test_nothing_is_read_from_the_file() -> None:
    async with session(build("stops"), ranks=2) as job:
        talk = Talk(job)
        await talk("handle SIGUSR1 nostop noprint pass")
        # both are past MPI_Finalize, so rank 1 can end alone
        assert "ranks 0-1 are at the barrier" in await talk("barrier exit")
        await talk("display total")
        assert ENDED in await talk("[1] continue")
        wrong = {}
        for line in LOOKS:
            text = line if line.startswith("[") else f"[1] {line}"
            try:
                wrong[line] = await talk(text)
            except Ended as error:
                if str(error) != f"rank 1 {ENDED}":
                    wrong[line] = str(error)
            except CrdebugError as error:
                if ENDED not in str(error) and "no rank is alive" not in str(error):
                    wrong[line] = str(error)
        assert wrong == {}
        # the others answer, and the silent rank is named
        assert await talk("print total") == f"[0] = 48\n[1] {ENDED}"
        assert await talk("compare total") == f"1 rank answered\n  [0] = 48\n  [1] {ENDED}"
        assert await talk("[where total == 0 || total > 40] print signals_seen") == "[0] = 1"
        assert await talk("display") == "1: total [0] = 48"
        # what the files say is as true as before
        for line in ("list compute", "ptype pair", "info scope loop", "gdb show width"):
            assert (await talk(line)).startswith("[0-1]"), line
        with pytest.raises(Ended, match=f"rank 1 {ENDED}"):
            await talk("[1] print total")


async def test_continue_leads_to_the_end_of_the_job_once_ranks_have_left_mpi() -> None:
    """Also a rank that ends long before the others, which it needs no more."""
    async with session(build("early"), "--steps", 30, ranks=3) as job:
        talk = Talk(job)
        await talk("break work_step if my_rank == 2 && step == 20")
        stop = await talk("continue")
        assert f"rank 1 {ENDED}" in stop and "rank 2 hit breakpoint 1" in stop, stop
        assert await talk("continue") == f"ranks 0,2 {ENDED}"
        assert await job.job_end() == 0
