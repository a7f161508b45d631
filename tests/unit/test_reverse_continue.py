"""Going back to stops where the past is not as it was: the last pass of reverse-continue does not
meet a counted hit, or a snapshot does not fit any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fake_target import FakeTarget

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, GdbDied, Refused
from crdebug.base.events import GroupStopped, RankStopped, StopReason
from crdebug.base.instant import BEGINNING, cut_of
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.mi.records import MiList, MiTuple, Result
from crdebug.travel.restore_points import Base
from crdebug.travel.reverse_continue import Stops
from crdebug.travel.reverse_step import Reverse

END = "90"


class Rank(FakeTarget):
    """Comes to so many stops, then to the end of its piece of history."""

    def __init__(self, stops: int) -> None:
        super().__init__(0)
        self.left = stops
        self.there = False

    async def mi(self, command: str, deadline: Deadline) -> Result:
        await self._call(command)
        point, fields = MiTuple((("number", END),)), MiTuple()
        if command.startswith("-break-insert"):
            self.there = True
            fields = MiTuple((("bkpt", point),))
        elif command.startswith("-break-list"):
            body = MiList((point,) if self.there else ())
            fields = MiTuple((("BreakpointTable", MiTuple((("body", body),))),))
        return Result(1, "done", fields)

    async def to_next(self, ranks: RankSet) -> GroupStopped:
        self.left -= 1
        self.there = self.there and self.left >= 0
        stop = RankStopped(0, StopReason.BREAKPOINT, "1" if self.there else END)
        return GroupStopped((stop,), (stop,))


@pytest.mark.parametrize("come", range(4))
async def test_fewer_stops_than_were_counted_end_it_in_words(come: int) -> None:
    rank = Rank(come)

    async def to_origin(focus: int) -> None:
        rank.calls.append("origin")

    group: Any = type("Group", (dict,), {"resume": lambda self, ranks: rank.to_next(ranks)})()
    group[0], group.settings = rank, Settings()
    job = SimpleNamespace(group=group, go_on=lambda: None)
    recorded = SimpleNamespace(clock=lambda rank: SimpleNamespace(hold=0x1000))
    traveller: Any = SimpleNamespace(job=job, recorded=recorded)
    reverse: Any = SimpleNamespace(to_origin=to_origin)
    stops = Stops(traveller, reverse)
    if come < 3:
        with pytest.raises(CrdebugError, match=f"3 stops were counted, and {come} came"):
            await stops.again(0, 3)
    else:
        await stops.again(0, 3)
    assert rank.calls[0] == "origin" and rank.calls[-1] == f"-break-delete {END}"


class Dying(dict[int, FakeTarget]):
    """A group whose run ends with the death of a GDB, which is reported when it is asked to end."""

    ranks, settings, subscriber = RankSet.of([0]), Settings(), None

    def __init__(self) -> None:
        super().__init__({0: FakeTarget(0)})
        self.asked = asyncio.Event()

    async def resume(self, ranks: RankSet) -> GroupStopped:
        await self.asked.wait()
        raise GdbDied("gdb ended (exit status -9)", "continue", None, ranks=ranks)

    async def interrupt(self) -> None:
        self.asked.set()

    async def ask(self, ranks: RankSet, verb: Callable[[FakeTarget], Any]) -> Any:
        return SimpleNamespace(errors={})


async def test_a_rank_that_is_gone_leaves_no_run_that_nobody_awaits() -> None:
    """Its GDB was killed: the error says so."""
    looks = iter([SimpleNamespace(now=BEGINNING, held=0)])

    def read() -> SimpleNamespace:
        for look in looks:
            return look
        raise ProcessLookupError("process 4711 is gone")

    clock = SimpleNamespace(rank=0, read=read, set_stop=lambda now: None)
    group: Any = Dying()
    job = SimpleNamespace(group=group, go_on=lambda: None)
    recorded = SimpleNamespace(clock=lambda rank: clock, clocks=lambda: [clock])
    traveller: Any = SimpleNamespace(job=job, recorded=recorded)
    reverse: Any = SimpleNamespace(forget=lambda: None)
    with pytest.raises(GdbDied, match="gdb ended"):
        await Stops(traveller, reverse).pass_to(cut_of(5), 0)
    assert not asyncio.all_tasks() - {asyncio.current_task()}


class Brought(Exception):
    """A state of the past was made the job's."""


async def test_where_a_snapshot_does_not_fit_any_more_a_checkpoint_is_brought_back() -> None:
    """At the start of history, where both are of the same piece."""
    bases = [Base(cut_of(0), kept="s1"), Base(cut_of(0), number=1)]
    tried = []

    async def bring_back(base: Base) -> None:
        tried.append(base)
        if base.kept:
            raise Refused("file descriptor 20 was closed")
        raise Brought

    job = SimpleNamespace(group={})
    traveller: Any = SimpleNamespace(job=job, bases=lambda: bases, bring_back=bring_back)
    with pytest.raises(Brought):
        await Reverse(traveller).to_end(0, BEGINNING)
    assert tried == bases
    bases.pop()
    with pytest.raises(Refused, match="was closed"):
        await Reverse(traveller).to_end(0, BEGINNING)
