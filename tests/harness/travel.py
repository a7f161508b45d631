"""Recorded jobs, and the state of a rank at a place of its history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from random import Random

from crdebug.base.deadline import Deadline
from crdebug.base.events import GroupStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.session import Session
from crdebug.travel.history import History
from harness.jobs import Heard, session

RECORDED = Settings(record=True)
# Seconds between automatic checkpoints: one in the beginning, and no other while a test runs.
ONE = 3600.0


@asynccontextmanager
async def recorded(
    program: Path, *arguments: object, ranks: int = 4, heard: Heard | None = None
) -> AsyncIterator[Session]:
    """A job at main, whose MPI calls are recorded."""
    async with session(program, *arguments, ranks=ranks, heard=heard, settings=RECORDED) as job:
        history(job).every = ONE
        yield job


def history(job: Session) -> History:
    assert job.history is not None
    return job.history


def snapshots_at_random(job: Session, chance: Random, longest: float = 0.15) -> list[bool]:
    """Have the job stopped for a snapshot at random moments, wherever it is, while it runs by
    `resume`; and for nothing else.

    longest: seconds between two of them.  Returns whether each could be taken, which grows.
    """
    past, begin_run, taken = history(job), history(job).begin_run, list[bool]()

    async def begin() -> float:
        await begin_run()
        return chance.uniform(0.01, longest)

    async def interlude(since: float) -> float:
        near, here = past.traveller.near, past.traveller.recorded.cut()
        taken.append(await near.keep(here, further=True) is not None)
        return chance.uniform(0.01, longest)

    past.begin_run, past.interlude = begin, interlude  # type: ignore[method-assign]
    past.until_due = asyncio.sleep  # type: ignore[method-assign,assignment]
    return taken


async def run_to(job: Session, rank: int, location: str, condition: str = "") -> GroupStopped:
    """Continue until a rank reaches a place."""
    there = await job.add_breakpoint(RankSet.of([rank]), location, condition=condition)
    stop = await job.resume(job.ranks)
    (cause,) = stop.cause
    assert (cause.rank, cause.reason) == (rank, StopReason.BREAKPOINT), stop
    await job.delete_breakpoint(there.number)
    return stop


@dataclass(frozen=True, slots=True)
class Place:
    """What the focused rank shows at a place, and where all ranks are in their histories.

    cut: their clocks, in half ticks.  frames: of the focused rank, innermost first, each with its
    program counter and local variables.  values: of expressions, on the focused rank.
    """

    cut: tuple[int, ...]
    frames: tuple[tuple[str, int, int, tuple[tuple[str, str], ...]], ...]
    values: tuple[str, ...]

    def differences(self, after: Place) -> tuple[str, ...]:
        """What differs in a later look, as lines to read. Of the other ranks nothing: see `cut`."""
        told = []
        for one, other in zip_longest(self.frames, after.frames):
            if one is None or other is None or one[:3] != other[:3]:
                told.append(f"{one and one[:3]} became {other and other[:3]}")
                continue
            for before, now in zip_longest(one[3], other[3]):
                if before != now:
                    told.append(f"in {one[0]}: {before} became {now}")
        if self.values != after.values:
            told.append(f"{self.values} became {after.values}")
        return tuple(told)


async def place(
    job: Session, rank: int, expressions: Sequence[str] = (), but: Sequence[str] = ()
) -> Place:
    """Look at a stopped job.

    but: local variables that belong to the MPI and have no fixed value.
    """
    deadline = Deadline(60)
    target, one = job.group[rank], RankSet.of([rank])
    frames = []
    for frame in (await job.backtrace(one)).values[rank]:
        where = frame.location
        asked = f"-stack-list-variables --thread 1 --frame {frame.level} --all-values"
        local = (await target.mi(asked, deadline)).payload.list("variables").tuples()
        values = [(each.text("name"), each.text("value", "")) for each in local]
        told = tuple(sorted(each for each in values if each[0] not in but))
        frames.append((where.function, where.address, where.line, told))
    values_ = [(await job.evaluate(one, each)).values[rank] for each in expressions]
    return Place(history(job).traveller.recorded.cut(), tuple(frames), tuple(values_))
