"""Random ways back end where a full trace says, with the program's memory as it was there.

Each program runs with snapshots at random moments, and is traced line by line over a stretch of its
past; then the test draws ways back of all kinds, from random places of the stretch. It compares the
end of each way with the trace, byte for byte; every now and then it also restarts the job from a
checkpoint, to come to the same place by another replay. If OpenMP's threads have worked together
since the last MPI call, a way back is refused, in words, and does not count.

CRDEBUG_TEST_SEED draws other ways, CRDEBUG_TEST_WAYS more or fewer.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from crdebug.base.errors import CrdebugError
from crdebug.base.ranks import RankSet
from crdebug.session import Session
from harness.programs import build
from harness.traces import (
    Spot,
    Watcher,
    before_line,
    begins_line,
    call_of,
    entry_before,
    variables,
    with_unset,
)
from harness.travel import history, recorded, run_to, snapshots_at_random

SEED = int(os.environ.get("CRDEBUG_TEST_SEED", "1"))
MANY = int(os.environ.get("CRDEBUG_TEST_WAYS", "1000"))
FEW, FRESH = 4, 12  # of each program in a short run; ways between two fresh replays

# What MPI leaves open: handles, and what receives that have not completed are received into.
_OPEN = ("request", "requests", "message", "value", "values", "indices", "statuses")
_REFUSED = "it waits there for another thread of its rank"
_KINDS = ("step", "next", "stepi", "finish", "continue", "tick")
_THREADED = ("threads", "parallel")


@dataclass(frozen=True, slots=True)
class Program:
    """begin, condition: where the stretch begins.  entered: a function that is entered in it, for
    breakpoints.  length: of the trace.  but: globals that time changes, or MPI leaves open."""

    name: str
    arguments: Sequence[object]
    begin: str
    condition: str
    end: str
    entered: str
    length: int
    ranks: int = 3
    but: Sequence[str] = ()
    open: Sequence[str] = _OPEN
    flags: Sequence[str] = ("-O0",)


_JITTER = ("--jitter-us", 200)
PROGRAMS = [
    Program(
        "wildcard", ("--rounds", 3, *_JITTER), "note", "step == 14", "MPI_Finalize", "took", 70
    ),
    Program(
        *("testsome", ("--rounds", 3, *_JITTER), "note", "step == 8", "MPI_Finalize", "took", 70),
        but=("values", "requests", "statuses"),
    ),
    Program("futures", ("--rounds", 6, *_JITTER), "moment", "step == 2", "finished", "collect", 60),
    Program(
        *("threads", ("--steps", 40, "--rest-us", 20000), "work_step", "step == 4"),
        *("report", "exchange", 60, 2),
        but=("integers", "vectors", "finished", "all_there"),
        open=(*_OPEN, "threads"),
    ),
    Program(
        *("parallel", ("--rounds", 40), "digits", "step == 4", "report", "note", 90, 2),
        flags=("-O0", "-fopenmp"),
    ),
]


class Ways:
    """Ways back in one job. done: how many of each kind."""

    def __init__(
        self, job: Session, watcher: Watcher, program: Program, trace: list[Spot], seed: str
    ) -> None:
        self.job, self.watcher, self.program, self.trace = job, watcher, program, trace
        self.past = history(job)
        self.chance = random.Random(seed)
        self.done: Counter[str] = Counter()

    async def at(self, number: int) -> None:
        """To a place of the trace, and it is the one."""
        await self.past.goto_mark(f"m{number}")
        await self.expect(number)

    async def expect(self, number: int) -> None:
        now = await self.watcher.look()
        told = self.trace[number].differences(now, self.watcher.focus)
        assert not told, "\n".join([f"not the place {number} of the trace:", *told])

    async def one(self, number: int, kind: str) -> bool:
        """One way from that place of the trace, if it contains one of that kind."""
        trace, focus, one = self.trace, self.watcher.focus, RankSet.of([self.watcher.focus])
        goal: int | None
        if kind == "step":
            times = self.chance.randint(1, 3)
            if number <= times:
                return False  # the first place may be in the middle of a line
            await self.at(number)
            await self.past.reverse(kind, focus, times)
            await self.expect(number - times)
        elif kind == "next":
            if not (goal := before_line(trace, number)):
                return False
            await self.at(number)
            await self.past.reverse(kind, focus)
            await self.expect(goal)
        elif kind == "finish":
            if (goal := call_of(trace, number)) is None:
                return False
            await self.at(number)
            await self.past.reverse(kind, focus)
            now, there = await self.watcher.look(), trace[goal]
            assert (now.line, now.depth) == (there.line, there.depth)
            # at the call: what its line did before it is done
            assert now.place.cut[focus] == trace[goal + 1].place.cut[focus]
        elif kind == "continue":
            if (goal := entry_before(trace, number, self.program.entered)) is None:
                return False
            await self.at(number)
            there_ = await self.job.add_breakpoint(one, self.program.entered)
            await self.past.reverse(kind, focus)
            await self.job.delete_breakpoint(there_.number)
            await self.expect(goal)
        elif kind == "stepi":
            await self.at(number)
            before = await self.watcher.look()
            await self.job.stepi(one)
            after = await self.watcher.look()
            if after.place.cut[focus] != before.place.cut[focus]:
                return False
            await self.past.reverse(kind, focus)
            await self.expect(number)
        else:
            clock = trace[number].place.cut[focus]
            later = next(
                (n for n in range(number, len(trace)) if trace[n].place.cut[focus] != clock), 0
            )
            if not later:
                return False
            await self.past.goto_tick(focus, trace[later].place.cut[focus] // 2)
            assert self.past.traveller.recorded.cut()[focus] == trace[later].place.cut[focus]
        return True

    async def afresh(self, number: int) -> None:
        """The same place by a restart from a checkpoint, and a replay from there."""
        await self.job.restart(1)
        await self.at(number)

    async def many(self, count: int) -> None:
        refused = 0
        while self.done.total() < count:
            assert refused < 10 + count, "nearly every way is refused"
            number = self.chance.randrange(1, len(self.trace))
            kind = self.chance.choice(_KINDS)
            try:
                if await self.one(number, kind):
                    self.done[kind] += 1
                    if self.done.total() % FRESH == FRESH // 3:
                        await self.afresh(number)
            except BaseException as error:
                if isinstance(error, CrdebugError) and _REFUSED in str(error):
                    assert self.program.name == "parallel"
                    refused += 1
                    continue
                error.add_note(f"seed {SEED}, way {self.done.total()}: {kind} from {number}")
                raise


async def _ways(program: Program, count: int) -> Counter[str]:
    focus = 0
    executable = build(program.name, flags=program.flags)
    async with recorded(executable, *program.arguments, ranks=program.ranks) as job:
        past = history(job)
        snapshots_at_random(job, random.Random(f"{SEED} {program.name} snapshots"), 0.5)
        await run_to(job, focus, program.begin, program.condition)
        await job.checkpoint()
        start = past.now(focus).tick
        await run_to(job, focus, program.end)
        await past.goto_tick(focus, start + 1)
        known = variables(executable, program.but)
        assert len(known) > 3
        watcher = Watcher(job, focus, executable, known, program.open)
        while (await watcher.look()).line[0] not in ("main", program.begin):
            await job.finish(RankSet.of([focus]))
        trace = [await watcher.look()]
        await past.mark("m0", focus)
        while len(trace) < program.length:
            await job.step(RankSet.of([focus]))
            spot = await watcher.look()
            if begins_line(trace, spot):
                await past.mark(f"m{len(trace)}", focus)
                trace.append(spot)
        ways = Ways(job, watcher, program, with_unset(trace), f"{SEED} {program.name}")
        await ways.many(count)
        return ways.done


# The others have one thread each, as programs that go back in test_travel_reverse.py have.
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(each, id=each.name, marks=() if each.name in _THREADED else pytest.mark.sweep)
        for each in PROGRAMS
    ],
)
async def test_some(program: Program) -> None:
    await _ways(program, FEW)


@pytest.mark.sweep
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("program", PROGRAMS, ids=[each.name for each in PROGRAMS])
async def test_many(program: Program) -> None:
    done = await _ways(program, MANY // len(PROGRAMS))
    assert len(done) > 4
    print(program.name, dict(done))
