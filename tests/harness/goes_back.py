"""A crdebug that takes the job back in memory and is killed on the way: `python -m
harness.goes_back PLAN`.

PLAN is JSON:
  step   the part of it after which it dies (STEPS); BY_STEPS: it goes back by lines instead, and
         dies before it takes back what the rank has printed on the way
  count  how many ranks have done that part by then; the others have not begun it
  gdbs   its GDBs are killed with it, at the same moment
Before it dies it writes a line of JSON: {"gdbs": [PID, ...]}.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from crdebug.attached.job import AttendedJob
from crdebug.debugger.gdb import GdbTarget
from crdebug.job import half_back
from crdebug.node import proc
from crdebug.session import Session
from crdebug.travel.restore_points import Base
from crdebug.travel.reverse_step import Reverse
from harness import looks
from harness.jobs import JOB
from harness.travel import history

# In this order; for a rank's part, with the method that does it.
STEPS = ("held", "marked", "put back", "output", "whole", "shown")
BY_STEPS = "by steps"
_OF_RANKS = {"held": "hold", "put back": "put_memory_back", "shown": "show_put_back"}


class Victim:
    def __init__(self, plan: Mapping[str, Any], session: Session) -> None:
        self.plan, self.session = plan, session
        self.done = 0
        self.turn = asyncio.Lock()
        self.patch = pytest.MonkeyPatch()

    def die(self) -> None:
        group = self.session.group
        targets = [group[rank] for rank in group.ranks]
        gdbs = [target.gdb_pid for target in targets]
        print(json.dumps({"gdbs": gdbs}), flush=True)
        for pid in gdbs if self.plan["gdbs"] else ():
            os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def step_done(self, step: str) -> None:
        if step == self.plan["step"]:
            self.done += 1
            if self.done == self.plan["count"]:
                self.die()

    def of_rank(
        self, step: str, real: Callable[..., Awaitable[object]]
    ) -> Callable[..., Awaitable[object]]:
        async def one(*arguments: object) -> object:
            async with self.turn:  # one rank after the other
                told = await real(*arguments)
                self.step_done(step)
                return told

        return one

    def prepare(self) -> None:
        for step, name in _OF_RANKS.items():
            self.patch.setattr(GdbTarget, name, self.of_rank(step, getattr(GdbTarget, name)))
        rewinds = self.of_rank("output", AttendedJob.rewind_output)
        self.patch.setattr(AttendedJob, "rewind_output", rewinds)
        for step, name in (("marked", "begin"), ("whole", "done")):
            self.patch.setattr(half_back, name, self.whole_job(step, getattr(half_back, name)))

    def die_by_steps(self) -> None:
        real = Reverse._take_back_output

        async def taken_back(reverse: Reverse) -> bool:
            await history(self.session).traveller.near.drained()
            self.step_done(BY_STEPS)
            return await real(reverse)

        self.patch.setattr(Reverse, "_take_back_output", taken_back)

    def whole_job(self, step: str, real: Callable[..., None]) -> Callable[..., None]:
        def all_ranks(*arguments: object) -> None:
            real(*arguments)
            self.step_done(step)

        return all_ranks


async def go_on(session: Session) -> None:
    """Go to a stop where no rank has open the file that it opens again in each step: memory is put
    back only into a process with the same descriptors."""
    for _ in range(50):
        await session.resume(session.ranks)
        written = [each for rank in looks.shims() for each in proc.files_open_for_writing(rank.pid)]
        if not any("/latest." in each.path for each in written):
            return
    raise AssertionError("a rank has its file open at each stop")


async def snapshot(session: Session) -> Base:
    """Of the job at a stop where nothing is on its way."""
    for _ in range(50):
        await go_on(session)
        base = await history(session).traveller.near.keep(history(session).traveller.recorded.cut())
        if base is not None:
            return base
    raise AssertionError(history(session).traveller.near.why_not)


async def main(plan: Mapping[str, Any]) -> None:
    session = await Session.attach(JOB)
    await history(session).begin_run()
    # In the same tick as what a rank of files.c has printed.
    await session.add_breakpoint(session.ranks, "exchange")
    base = await snapshot(session)
    for _ in range(5):
        await go_on(session)
    victim = Victim(plan, session)
    if plan["step"] == BY_STEPS:
        victim.die_by_steps()
        await history(session).reverse("next", 0, times=3)  # how often it is taken back varies
    victim.prepare()
    await history(session).traveller.bring_back(base)
    await session.detach()
    await session.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
