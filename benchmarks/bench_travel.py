"""Going to a tick: right at a checkpoint, near it, and there again; after short and long runs.

Bounds (issue 3, "Latency"): `goto` to a checkpoint <= 1.0 s, a repeated way back <= 1.0 s, and the
same after 10 s and after 120 s of run within 20 %. For 8 ranks of 64 MiB, figures and where the
time goes: `bench_travel.py big`; other arguments are seconds of run.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

from common import main

from crdebug.config import Settings
from crdebug.events import Event, Progress
from crdebug.session import Session
from harness import mpirun
from harness.programs import build

ROUNDS = 5
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

    def end(self) -> None:
        if self._last is not None:
            name, since = self._last
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - since
        self._last = None


async def going(session: Session, tick: int) -> float:
    assert session.history is not None
    started = time.perf_counter()
    await session.history.goto_tick(0, tick)
    return time.perf_counter() - started


async def measure(title: str, ranks: int, mib: int, seconds: float) -> float:
    phases = Phases()
    argv = mpirun.command(
        build("memory"), "--steps", 100_000_000, "--delay-us", 1000, "--mib", mib, ranks=ranks
    )
    session = await Session.run(
        argv, name=f"travel-{ranks}-{seconds:g}", settings=Settings(record=True), subscriber=phases
    )
    found: dict[str, list[float]] = {"at a checkpoint": [], "near it": [], "back again": []}
    try:
        history = session.history
        assert history is not None
        running = asyncio.create_task(session.resume(session.ranks))
        await asyncio.sleep(seconds)  # what is measured: a run of this length
        await session.interrupt()
        await running
        await session.checkpoint()
        there = history.now(0).tick
        running = asyncio.create_task(session.resume(session.ranks))
        while history.traveller.clocks()[0].read().now < 2 * (there + 2 * FAR):
            await asyncio.sleep(0.01)
        await session.interrupt()
        await running
        phases.seconds.clear()
        for _ in range(ROUNDS):
            # a restart by number: nothing that is kept in memory helps
            started = time.perf_counter()
            await session.restart(1)
            found["at a checkpoint"].append(time.perf_counter() - started)
            found["near it"].append(await going(session, there + FAR))
            found["back again"].append(await going(session, there + FAR - 1))
        phases.end()
    finally:
        await session.close()
    for what, times in found.items():
        print(
            f"{title:34} {what:16} {statistics.median(times):6.2f} s "
            f"({min(times):.2f}-{max(times):.2f}, n={len(times)})"
        )
    if mib > 1:
        for name, spent in phases.seconds.items():
            print(f"    {spent / ROUNDS:6.2f} s  {name}")
    return statistics.median(found["back again"])


async def run() -> None:
    if "big" in sys.argv[1:]:
        await measure("8 ranks x 64 MiB, after 5 s", 8, 64, 5)
        return
    lengths = [float(word) for word in sys.argv[1:]] or [10.0, 120.0]
    medians = [await measure(f"4 ranks, after {each:g} s", 4, 1, each) for each in lengths]
    if len(medians) > 1:
        difference = abs(medians[-1] / medians[0] - 1)
        print(f"after {lengths[-1]:g} s and {lengths[0]:g} s: {difference:.0%} apart; bound 20 %")


if __name__ == "__main__":
    main(run)
