"""Where breakpoints are: a line in its own file, and nothing in crdebug's own code."""

from __future__ import annotations

import re

import pytest

from crdebug.base.errors import CrdebugError
from crdebug.base.events import GdbSays
from crdebug.base.settings import Settings
from crdebug.debugger.breakpoints import Breakpoint
from harness.jobs import Heard, session
from harness.programs import build, source
from harness.talk import Talk

STOPS = source("stops")
SOURCE = STOPS.read_text().splitlines()
LINE = next(number for number, text in enumerate(SOURCE, 1) if text.endswith("// DOUBLE"))


def files(point: Breakpoint) -> set[str]:
    return {place.path for places in point.places.values() for place in places}


async def test_a_line_is_in_the_file_that_the_ranks_are_in() -> None:
    async with session(build("stops"), ranks=2) as job:
        talk = Talk(job)
        await talk.all(["handle SIGUSR1 nostop noprint pass", "barrier system"])
        # both ranks are in the C library, where another file has these lines
        said = await talk(f"break {LINE}")
        assert f"compute at {STOPS}:{LINE}" in said
        (point,) = job.breakpoints()
        assert point.location == f"{STOPS}:{LINE}" and files(point) == {str(STOPS)}
        children = next(n for n, text in enumerate(SOURCE, 1) if "exit 7" in text)
        for offset in ("-1", "+0"):  # what follows is a line without code for some compilers
            await talk(f"break {offset}")
            assert job.breakpoints()[-1].location == f"{STOPS}:{children + int(offset)}"
        missing = len(SOURCE) + 900
        no_line = f"No (line|compiled code for line) {missing} in file"  # GDB to 15, from 16 on
        with pytest.raises(CrdebugError, match=no_line):
            await talk(f"break {missing}")
        with pytest.raises(CrdebugError, match=no_line):
            await talk(f"tbreak {missing} if step > 1")
        await talk("delete")
        late = next(n for n, text in enumerate(SOURCE, 1) if "dlopen(" in text)
        # as in GDB, it ends at each return on the way: to children(), and to main()
        stops = [await talk(f"advance {late}") for _ in range(3)]
        assert f"[0-1] late at {STOPS}:{late}" in stops[-1]


async def test_crdebug_s_own_code_is_no_place() -> None:
    async with session(build("stops"), ranks=2, settings=Settings(record=True)) as job:
        talk = Talk(job)
        own = ("shim.c:84", "progress", "wrap_Allreduce", "MPIR_checkpoint_debugger_waitpoint")
        for location in own:
            assert "(pending)" in await talk(f"break {location}"), location
        assert all(not any(point.places.values()) for point in job.breakpoints())
        await talk("delete")
        # what a program calls is a place, also where the layer is called in its stead
        await talk("break MPI_Allreduce")
        assert re.search(r"hit breakpoint 5: P?MPI_Allreduce", await talk("continue"))


async def test_a_temporary_breakpoint_is_gone_everywhere_once_it_is_hit() -> None:
    heard = Heard()
    async with session(build("stops"), ranks=2, heard=heard) as job:
        talk = Talk(job)
        assert "breakpoint 1" in await talk("tbreak compute if my_rank == 1")
        assert "rank 1 hit breakpoint 1" in await talk("continue")
        assert await talk("info breakpoints") == "there are no breakpoints"
        told = (await job.group.console(job.ranks, "info breakpoints")).merged()
        (said,) = [text.strip() for _, text in told]
        assert said in (
            "No breakpoints or watchpoints.",
            "No breakpoints, watchpoints, tracepoints, or catchpoints.",  # from GDB 16 on
        )
        # one that is nowhere yet: said once, and not by each rank's GDB in addition
        assert await talk("break nosuchfn") == "breakpoint 2 on [0-1]: nosuchfn (pending)"
        assert not [event for event in heard.events if isinstance(event, GdbSays)]
