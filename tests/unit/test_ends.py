"""Where the history of a job without checkpoints begins and ends, and who waits there."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from crdebug.base.instant import Instant
from crdebug.native.recorder.clock import NEVER, Held, Last
from crdebug.travel import ends
from crdebug.travel.ends import Ends

pytestmark = pytest.mark.unit

BEFORE, IN_INIT, LATER = Instant.before(1), Instant.within(1), Instant.after(7)


@dataclass
class Clock:
    """A rank's."""

    now: Instant = BEFORE
    held: Held = Held.FREE
    last: Last = Last.GOES
    stop: Instant = NEVER
    gone: bool = field(default=False)

    def read(self) -> Clock:
        if self.gone:
            raise ProcessLookupError
        return self

    def set_stop(self, stop: Instant) -> None:
        self.stop = stop

    def wait_before_finalize(self, last: Last) -> None:
        self.last = last

    def comes_to_init(self) -> None:
        self.now, self.held = IN_INIT, Held.AT_STOP if self.stop == IN_INIT else Held.FREE

    def comes_to_finalize(self) -> None:
        """As native/recorder/pmpi.c has it."""
        self.now = LATER
        if self.last is Last.WAITS:
            self.last, self.stop, self.held = Last.IS_THERE, self.now, Held.AT_STOP


def job(*clocks: Clock) -> Ends:
    attended = SimpleNamespace(watched=contextlib.nullcontext)
    return Ends(SimpleNamespace(clocks=lambda: clocks, job=attended))  # type: ignore[arg-type]


def run(where: Ends, clocks: tuple[Clock, ...]) -> None:
    for clock in clocks:
        clock.set_stop(NEVER)  # as Traveller.release does
    where.hold()


def test_all_are_held_at_the_end_of_mpi_init() -> None:
    ranks = Clock(), Clock()
    where = job(*ranks)
    where.awaited = True
    run(where, ranks)
    ranks[0].comes_to_init()
    assert not where.all_there()
    ranks[1].comes_to_init()
    assert where.all_there()


def test_a_rank_that_is_past_it_is_not_held() -> None:
    ranks = Clock(), Clock(now=LATER)
    where = job(*ranks)
    where.awaited = True
    run(where, ranks)
    assert [rank.stop for rank in ranks] == [IN_INIT, NEVER]
    assert not where.lies_ahead


async def test_ranks_do_not_wait_for_ever_for_one_that_never_calls_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ends, "PATIENCE", 0.05)
    ranks = Clock(), Clock()
    where = job(*ranks)
    where.awaited = True
    run(where, ranks)
    ranks[0].comes_to_init()
    await asyncio.wait_for(where.until_there(0.0), 60)
    assert where.given_up


def test_all_wait_before_mpi_finalize_until_the_user_lets_them_go() -> None:
    ranks = Clock(now=LATER), Clock(now=LATER)
    where = job(*ranks)
    where.last = True
    run(where, ranks)
    ranks[1].comes_to_finalize()
    assert not where.all_finalize()
    run(where, ranks)  # the other one was stopped before, and goes on: this one waits
    assert ranks[1].stop == LATER and ranks[1].last is Last.IS_THERE
    ranks[0].comes_to_finalize()
    assert where.all_finalize()
    run(where, ranks)
    assert [(rank.last, rank.stop) for rank in ranks] == [(Last.GOES, NEVER)] * 2


def test_a_step_is_not_held_up() -> None:
    """Nothing stops it for an interlude."""
    ranks = Clock(now=LATER, last=Last.WAITS), Clock(now=LATER, last=Last.WAITS)
    where = job(*ranks)
    run(where, ranks)
    assert {rank.last for rank in ranks} == {Last.GOES}


async def test_the_end_is_seen_before_the_next_snapshot_is_due() -> None:
    ranks = Clock(now=LATER), Clock(now=LATER)
    where = job(*ranks)
    where.last = True
    run(where, ranks)
    waits = asyncio.create_task(where.until_there(3600.0))
    for rank in ranks:
        rank.comes_to_finalize()
    await asyncio.wait_for(waits, 60)


async def test_the_next_snapshot_is_due_while_the_end_lies_ahead() -> None:
    where = job(Clock(now=LATER))
    where.last = True
    await asyncio.wait_for(where.until_there(0.01), 60)


def test_a_rank_that_has_ended_is_at_neither() -> None:
    where = job(Clock(now=LATER, held=Held.AT_STOP, last=Last.IS_THERE), Clock(gone=True))
    assert not where.all_finalize() and not where.all_there() and not where.lies_ahead
