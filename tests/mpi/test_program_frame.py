"""What ranks are asked is about the program, wherever in a library they have been stopped."""

from __future__ import annotations

import re

import pytest

from crdebug.base.errors import BadInput
from harness.jobs import session
from harness.programs import build
from harness.talk import Talk

# `step` is a variable of the program, and also a function of the C library (whose names GDB knows
# if libc6-dbg is installed).
STEP = "[0-1] = 5"


async def test_a_name_is_the_program_s_not_the_library_s() -> None:
    async with session(build("stops"), ranks=2) as job:
        talk = Talk(job)
        await talk("handle SIGUSR1 nostop noprint pass")
        assert "ranks 0-1 are at the barrier" in await talk("barrier system")
        inner = (await talk("backtrace 1")).split()
        assert inner[1] == "#0" and "system" in inner[2]
        expected = {
            "print step": STEP,
            "compare step": "all 2 ranks agree\n  [0-1] = 5",
            "compare (char *) program_invocation_short_name": f'[0-1] = "{build("stops").name}"',
            "[where step == 5] print step": STEP,
            "[where status == 0] print step": STEP,
            "info locals": "status = 0",
            "list": "the child ended with",
            "display step": "step [0-1] = 5",
            "plot step": "5",
            "whatis step": "[0-1] type = volatile",
            "gdb print step": " = 5",
            "watch status": "watchpoint",
            "call step": STEP,
            "frame": "children (",
            "thread": "children at",
            "thread apply 1 print step": " = 5",
        }
        wrong = {}
        for line, part in expected.items():
            said = await talk(line)
            if part not in said:
                wrong[line] = said
        assert wrong == {}
        with pytest.raises(BadInput, match="is an address, and each rank has its own"):
            await talk("compare (void *) program_invocation_short_name")
        # Tab offers the frame's and the program's names first, then those of libraries
        names = await job.complete(0, "print 1 + st")
        assert names[:2] == ("print 1 + status", "print 1 + step"), names[:9]
        assert "print 1 + strlen" in names
        functions = await job.complete(0, "break ch")
        assert functions[0] == "break children" and len(functions) > 9, functions[:9]
        # the user's choice stays; a command that lets a rank run is about the rank's real place
        for choice in ("frame 0", "gdb frame 0"):
            await talk("frame 1")
            await talk(choice)
            for _ in range(2):
                assert re.search(r"<.*system(\+\d+)?>", await talk("print $pc")), choice
        await talk("up")
        assert await talk("print step") == STEP
        await talk("delete")
        await talk("frame 0")
        assert "returned to children" in await talk("finish")
        assert await talk("print step") == STEP


async def test_who_goes_by_instructions_is_where_they_are() -> None:
    async with session(build("stops"), ranks=1) as job:
        talk = Talk(job)
        await talk.all(["handle SIGUSR1 nostop noprint pass", "break system", "continue"])
        at_call = await talk("print/x $pc")
        await talk("frame 0")
        inside = await talk("print/x $pc")
        assert inside != at_call
        await talk.all(["delete", "stepi", "nexti"])
        assert await talk("print/x $pc") not in (inside, at_call)
        assert "#0" in await talk("frame")
        # finish is about the function that the rank is in, also when nobody has looked before
        await talk("print step")
        assert "returned to children" in await talk("finish")
