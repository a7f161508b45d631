"""Why ranks wait: of 32 that hang in a real job, and of ten thousand that are made up.

Bounds (issue 16, figure 3): `why-blocked` on 32 hanging ranks <= 0.2 s; on 10,000 in a cycle, a
tree or a random graph <= 0.5 s, and at most 20 lines (two more graphs are held to the same). Each
time is the median of several runs.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Sequence

import common

sys.path.insert(0, str(common.TOP / "tests" / "unit"))

from bench_travel import run_for, timed
from scenes import MANY, graphs, scene

from crdebug.base.settings import Settings
from crdebug.session import Session
from crdebug.timeline.asked import Asked
from crdebug.timeline.verdict import Standing, State, judge
from crdebug.timeline.verdict_text import MOST, lines
from harness import mpirun
from harness.programs import build

HANGING = 32
RUNS = 7
REAL, MADE_UP = 0.2, 0.5  # seconds


def told(name: str, times: Sequence[float], bound: float, answer: Sequence[str]) -> bool:
    met = statistics.median(times) <= bound and len(answer) <= MOST
    print(
        f"{name:34} {statistics.median(times):6.3f} s ({min(times):.3f}-{max(times):.3f}, "
        f"n={len(times)})  bound {bound:g} s, {len(answer)} lines  {'met' if met else 'MISSED'}",
        flush=True,
    )
    return met


def made_up(name: str, asked: Sequence[Asked]) -> bool:
    """From what each rank asks to the lines, which is what a job's size tells on."""
    times, answer = [], []
    for _ in range(RUNS):
        of = scene(asked, size=MANY)
        standings = {each.rank: Standing(each.rank, State.IN_MPI, each, "a.c:5") for each in asked}
        gc.collect()
        begun = time.perf_counter()
        answer = lines(judge(of, standings), standings)
        times.append(time.perf_counter() - begun)
    return told(f"{MANY} ranks, {name}", times, MADE_UP, answer)


async def real() -> bool:
    argv = mpirun.command(build("hangs"), "--mode", "cycle", ranks=HANGING)
    times, answer = [], []
    session = await Session.run(argv, name="why", settings=Settings(record=True))
    try:
        await run_for(session, 10.0)
        for _ in range(RUNS):
            times.append(await timed(session.why(session.ranks)))
        answer = await session.why(session.ranks)
    finally:
        await session.close()
    return told(f"{HANGING} ranks of a job", times, REAL, answer)


async def main() -> None:
    met = [made_up(name, asked) for name, asked in graphs().items()]
    met.append(await real())
    if not all(met):
        raise SystemExit(1)


if __name__ == "__main__":
    common.main(main)
