"""Going back: the first time and again; to a checkpoint, and near it; after short and long runs.

Bounds (issue 3, "Latency"): the first reverse-next <= 3 s, a repeated one <= 1.0 s, `goto` to a
checkpoint <= 1.0 s, and the same after 10 s and after 120 s of run within 20 %. Two programs: one
with little to record (`memory`), one that does nothing but call MPI (`advect`). For 8 ranks of 64
MiB, figures and where the time goes: `bench_travel.py big`; other arguments are seconds of run, and
programs.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable

from common import main

from crdebug.base.events import Event, Progress
from crdebug.base.settings import Settings
from crdebug.session import Session
from harness import mpirun
from harness.programs import build

ROUNDS = 7
FAR = 200  # ticks from the checkpoint


class Phases:
    """How long each phase took that was told, in the order in which they were told first."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last: tuple[str, float] | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress):
            self.end()
            self._last = (f"{event.operation}: {event.phase}", time.perf_counter())

    def forget(self) -> None:
        self._last = None
        self.seconds.clear()

    def end(self) -> None:
        if self._last is not None:
            name, since = self._last
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - since
        self._last = None


ARGUMENTS = {
    "memory": ("--steps", 100_000_000, "--delay-us", 1000),
    "advect": (2_000_000_000, 2_000_000_000),
}
# Of `advect` an idle machine makes some 0.9 million calls a second and rank: its log would be full
# before 120 s are over (docs/limits.md).
LENGTHS = {"memory": [10.0, 120.0], "advect": [6.0, 48.0]}
BOUNDS = {"first reverse-next": 3.0, "reverse-next again": 1.0, "goto a checkpoint": 1.0}


async def timed(work: Awaitable[object]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


async def run_for(session: Session, seconds: float) -> None:
    assert session.history is not None
    recorded = session.history.traveller.recorded
    running = asyncio.create_task(session.resume(session.ranks))
    while recorded.clocks()[0].read().now < 2:  # MPI_Init, which a busy machine has much time for
        await asyncio.sleep(0.05)
    await asyncio.sleep(seconds)  # what is measured: a run of this length
    await session.interrupt()
    await running


async def measure(program: str, ranks: int, mib: int, seconds: float) -> dict[str, float]:
    """The medians, by what was measured, in seconds."""
    phases = Phases()
    size = ("--mib", mib) if program == "memory" else ()
    argv = mpirun.command(build(program), *ARGUMENTS[program], *size, ranks=ranks)
    name = f"travel-{program}-{ranks}-{seconds:g}"
    session = await Session.run(argv, name=name, settings=Settings(record=True), subscriber=phases)
    found: dict[str, list[float]] = {}

    def note(what: str, spent: float) -> None:
        phases.end()
        found.setdefault(what, []).append(spent)
        if mib > 1 and phases.seconds:
            told = ", ".join(f"{each} {spent:.2f} s" for each, spent in phases.seconds.items())
            print(f"    {what} {spent:.2f} s: {told}")
        phases.seconds.clear()

    try:
        history = session.history
        assert history is not None
        await run_for(session, seconds)
        calls = history.now(0).recorded
        for turn in range(ROUNDS):
            if turn:  # half a second behind the snapshot in memory that is brought back
                await run_for(session, 2.5)
            phases.forget()
            note("first reverse-next", await timed(history.reverse("next", 0)))
            note("reverse-next again", await timed(history.reverse("next", 0)))
        await session.checkpoint()
        there = history.now(0).tick
        running = asyncio.create_task(session.resume(session.ranks))
        while history.traveller.recorded.clocks()[0].read().now < 2 * (there + 2 * FAR):
            await asyncio.sleep(0.01)
        await session.interrupt()
        await running
        phases.forget()
        for _ in range(ROUNDS):
            # a restart by number: nothing that is kept in memory helps
            note("goto a checkpoint", await timed(session.restart(1)))
            note("a tick near it", await timed(history.goto_tick(0, there + FAR)))
            note("the tick before", await timed(history.goto_tick(0, there + FAR - 1)))
    finally:
        await session.close()
    title = f"{program}, {ranks} ranks, after {seconds:g} s, {calls} calls of a rank"
    for what, times in found.items():
        bound = f"bound {BOUNDS[what]:g} s" if what in BOUNDS and mib == 1 else ""
        print(
            f"{title:52} {what:18} {statistics.median(times):6.2f} s "
            f"({min(times):.2f}-{max(times):.2f}, n={len(times)}) {bound}".rstrip()
        )
    return {what: statistics.median(times) for what, times in found.items()}


async def run() -> None:
    words = sys.argv[1:]
    if "big" in words:
        await measure("memory", 8, 64, 5)
        return
    programs = [word for word in words if word in ARGUMENTS] or [*ARGUMENTS]
    asked = [float(word) for word in words if word not in ARGUMENTS]
    for program in programs:
        lengths = asked or LENGTHS[program]
        medians = [await measure(program, 4, 1, each) for each in lengths]
        for what in medians[0] if len(medians) > 1 else ():
            more = medians[-1][what] / medians[0][what] - 1
            print(
                f"{program}, {what}: {more:+.0%} after {lengths[-1]:g} s, compared with "
                f"{lengths[0]:g} s; bound 20 %"
            )


if __name__ == "__main__":
    main(run)
