"""Ten thousand ranks that are simulated behind the Target seam: merging, stack tree, rank sets.

Bounds (issue 4, "Addressing and answers"): merging answers at most 0.2 s, a stack tree 1 s, algebra
on rank sets 1 ms, memory 1 GiB. Each time is the median of several runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import statistics
import sys
import time
from collections.abc import Callable

import common

sys.path.insert(0, str(common.TOP / "tests" / "unit"))

from fake_target import FakeTarget

from crdebug.base.deadline import Deadline
from crdebug.base.events import Location
from crdebug.base.rank_expressions import NamedSets, resolve
from crdebug.base.ranks import RankSet
from crdebug.base.summary import deviating
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.stacktree import StackTree, merge
from crdebug.debugger.target import Frame
from crdebug.ui.answers import values
from crdebug.ui.stacks import tree

RANKS = 10_000
RUNS = 7
DEPTH = 25
PLACES = 200  # different innermost frames


class Simulated(FakeTarget):
    """A rank with a value of its own, and a stack that parts from the others' on several levels."""

    async def evaluate(self, expression: str, deadline: Deadline, format: str = "") -> str:
        return "17" if expression == "same" else f"{self.rank * 0.37 % 91:.6g}"

    async def backtrace(self, limit: int, deadline: Deadline) -> tuple[Frame, ...]:
        place = self.rank % PLACES
        names = [f"f{level}" for level in range(15)]
        names += [f"f{level}_{place % (level - 13)}" for level in range(15, DEPTH)]
        names.append(f"leaf{place}")
        return tuple(
            Frame(level, Location(self.rank << 16 | level, name, "big.c", 10 + level))
            for level, name in enumerate(reversed(names))
        )


class Job:
    """What a rank set's text is read against."""

    def __init__(self, ranks: RankSet) -> None:
        self.ranks = ranks
        self.hosts: dict[str, RankSet] = {}
        self.sets = NamedSets()
        self.sets.define("odd", RankSet.of(range(1, RANKS, 2)))

    def in_state(self, word: str) -> RankSet:
        return self.ranks

    async def where(self, expression: str, ranks: RankSet) -> RankSet:
        return ranks


def measured(name: str, bound: float, work: Callable[[], object]) -> bool:
    times = []
    for _ in range(RUNS):
        gc.collect()
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    median = statistics.median(times)
    verdict = "met" if median <= bound else "MISSED"
    print(f"{name:58} {1000 * median:10.3f} ms  at most {1000 * bound:6.0f} ms  {verdict}")
    return median <= bound


def driven(job: Job) -> None:
    """Run what never waits."""
    with contextlib.suppress(StopIteration):
        resolve("all - odd & 0-4999", job).send(None)


async def main() -> int:
    group = TargetGroup([Simulated(rank) for rank in range(RANKS)])
    every = group.ranks
    begun = time.perf_counter()
    same = await group.evaluate(every, "same")
    differing = await group.evaluate(every, "x")
    stacks = await group.backtrace(every)
    print(f"{RANKS} simulated ranks, asked three questions in {time.perf_counter() - begun:.2f} s")

    some = RankSet.of(range(0, RANKS, 3))
    odd = RankSet.of(range(1, RANKS, 2))
    job = Job(every)
    one = {rank: (frames,) for rank, frames in stacks.values.items()}
    merged = StackTree(merge(one))
    met = [
        measured("merging equal answers, and the text", 0.2, lambda: list(values(same))),
        measured("merging 10 000 different answers", 0.2, differing.merged),
        measured("their summary, and the text", 0.2, lambda: list(values(differing))),
        measured("comparing them", 0.2, lambda: deviating(differing)),
        measured(f"a tree of {DEPTH + 1} frames each, {PLACES} leaves", 1.0, lambda: merge(one)),
        measured("the tree's text", 1.0, lambda: list(tree(merged))),
        measured("a | b", 0.001, lambda: some | odd),
        measured("a & b", 0.001, lambda: some & odd),
        measured("a - b", 0.001, lambda: some - odd),
        measured("all - odd & 0-4999, from its text", 0.001, lambda: driven(job)),
        measured("a set of 5 000 ranges as text", 0.02, lambda: str(odd)),
        measured("its text as a set", 0.1, lambda: RankSet.parse(str(odd), every)),
    ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    met.append(peak <= 1.0)
    print(f"{'memory at most':58} {peak:10.3f} GiB at most      1 GiB")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
