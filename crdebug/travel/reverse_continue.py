"""reverse-continue: the last stop of a rank before where it stands.

The same things stop it as on its way forward: breakpoints whose condition holds, watchpoints,
catchpoints, signals. Ignore counts apply to the next hits, which here are the ones before. History
is run forward from an earlier state, and the stops are counted; the last pass ends at the last one
(Boothe, "Efficient algorithms for bidirectional debugging", PLDI 2000). First from the nearest
state that can be brought back, then, if there was no stop since, from the one before. Inside an MPI
call no two runs are alike: the last stop in there counts, and is found again by its number.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, Interrupted, Refused, StoreError
from crdebug.base.events import GroupStopped, Progress, RankStopped, StopReason
from crdebug.base.instant import BEGINNING, Cut, Instant
from crdebug.base.ranks import RankSet
from crdebug.debugger import own_breakpoints
from crdebug.debugger.in_c import number_in_c
from crdebug.debugger.python_lines import is_in_python
from crdebug.debugger.python_replay import lines_seen
from crdebug.gdbscripts.wire import Reach, place_of
from crdebug.travel.arrival import Arrival
from crdebug.travel.replay import SignsOfLife, ended, moved, quiet
from crdebug.travel.restore_points import StartOfHistory, below
from crdebug.travel.reverse_step import Reverse
from crdebug.travel.seek import Traveller

T = TypeVar("T")
_NUMBERED = (StopReason.BREAKPOINT, StopReason.WATCHPOINT, StopReason.CATCHPOINT)
_WANTED = (*_NUMBERED, StopReason.SIGNAL, StopReason.OTHER)
_STANDSTILL = 60.0  # seconds without any rank moving on


@dataclass(frozen=True, slots=True)
class End:
    """Where a pass through a piece of history ends: an address that is reached for the n-th time,
    with that stack pointer (None: with any). syscall: it stands there for a catchpoint: "entry" or
    "return" of a system call, else "".  signalled: the last stop is that for the signal which has
    led there.  in_python: a line of Python begins there; its breakpoints are just before."""

    pc: int
    sp: int | None
    passages: int
    syscall: str = ""
    signalled: bool = False
    in_python: bool = False

    @classmethod
    def of(
        cls, place: str, signalled: bool = False, syscall: str = "", in_python: bool = False
    ) -> End:
        """A place of the stepper's that is one move, of which the level is a stack pointer."""
        (move,) = place_of(place)
        assert isinstance(move, Reach)
        sp = None if move.level is None else move.level[3]
        return cls(move.pc, sp, move.times, syscall, signalled, in_python)


@dataclass(frozen=True, slots=True)
class Hit:
    """A stop on the way. now: where the rank is there.  number: GDB's, of the breakpoint that
    stopped it, "" if there is none. clock_count: how many stops there were at this instant, this
    one included.
    by: if another rank stopped, its number and instant.
    """

    now: Instant
    number: str
    clock_count: int = 0
    by: tuple[int, Instant] | None = None


class _Ignored:
    """How many more hits are to be passed over, by GDB's numbers.

    gone: caveats that name the user's watchpoints that GDB gave up meanwhile.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.gone = Arrival()

    def last(self, hits: Sequence[Hit]) -> int | None:
        """The index of the last hit that is not passed over; those after it count as passed."""
        for at in reversed(range(len(hits))):
            number = hits[at].number
            if not self.counts.get(number):
                return at
            self.counts[number] -= 1
        return None

    def give_back(self, hits: Sequence[Hit]) -> None:
        """These hits are going to be counted once more."""
        for hit in hits:
            self.counts[hit.number] += 1


class Stops:
    """Goes back to stops. reverse: goes back by steps, and shares its origin."""

    def __init__(self, traveller: Traveller, reverse: Reverse) -> None:
        self._traveller = traveller
        self._reverse = reverse
        self._group = traveller.job.group

    async def back(self, focus: int) -> Arrival:
        """To the stop before, or to where history begins."""
        arrival, ignored = Arrival(), _Ignored()
        in_python = is_in_python(self._group[focus].last_stop)
        try:
            async with self._counting(focus, ignored):
                syscall = syscall_of(self._group[focus].last_stop)
                here = await self._reverse.here(focus)
                arrival = here.arrival
                end = End.of(here.place, here.signalled, syscall, in_python)
                while (last := ignored.last(await self.hits(focus, end))) is None:
                    found = await self._hit_before(focus, self._reverse.piece, ignored)
                    if found.now.inside:
                        arrival = await self.into_call(focus, found)
                        break
                    reached = await self._reverse.to_end(focus, found.now)
                    arrival, end = reached.arrival, End.of(reached.place)
                else:
                    await self.again(focus, last + 1)
        except StartOfHistory as start:
            arrival = arrival.at_start(start.problem)
        return arrival.then(ignored.gone)

    @contextlib.asynccontextmanager
    async def _counting(self, focus: int, ignored: _Ignored) -> AsyncIterator[None]:
        """Inside the block every hit stops the rank; the user's hit and ignore counts do not
        change."""
        told = await own_breakpoints.count_each(self._group[focus], self._limit)
        ignored.counts = dict(told.ignored)
        table = self._group.table
        users = {table.gdb_numbers(each.number).get(focus): each.number for each in table.all()}
        try:
            with table.uncounted(focus):
                yield
        finally:
            gone = await own_breakpoints.switch_on(self._group[focus], self._limit)
            known = (users.get(int(number), number) for number in gone)
            ignored.gone = Arrival(
                tuple(f"watchpoint {number} of a frame is gone, with the frame" for number in known)
            )
        if (number := self._hit(focus, BEGINNING).number) in told.temporary:
            await own_breakpoints.delete(self._group[focus], number, self._limit)
            if (stop := self._group[focus].last_stop) is not None:
                await self._group.drop_spent([stop])
        for number, left in ignored.counts.items():
            await own_breakpoints.ignore_hits(self._group[focus], number, left, self._limit)

    async def _stops_at(self, focus: int, end: End) -> int:
        """How many of the stops on the way to this place are those of the place itself."""
        if end.in_python:
            return (await lines_seen(self._group[focus], self._limit)).breakpoints
        return int(end.signalled)

    # ---- within a piece of history ------------------------------------------------------------

    async def hits(self, focus: int, end: End) -> list[Hit]:
        """The stops from the origin to a place."""
        await self._reverse.to_origin(focus)
        # A breakpoint does not stop the rank where it has just stopped for a system call: there the
        # calls are counted.
        places = [] if end.syscall else [end]
        places.append(self._end_of_piece(focus))  # not beyond it
        numbers = [await self._insert(focus, each) for each in dict.fromkeys(places)]
        found: list[Hit] = []
        passed = 0
        try:
            while True:
                stop = await self._resume(focus)
                there = await self._breakpoints(focus)
                if numbers[0] not in there and not end.syscall:
                    return found[: len(found) - await self._stops_at(focus, end)]
                self._check(stop)
                if numbers[-1] not in there:
                    raise CrdebugError(
                        "it ran differently when it was repeated between two MPI calls",
                        ranks=RankSet.of([focus]),
                    )
                hit = self._hit(focus, self._reverse.piece)
                if not hit.number or hit.number in there:  # GDB gave up a watchpoint
                    found.append(hit)
                passed += end.syscall != "" and await self._enters(focus, end)
                if passed and passed == end.passages:
                    return found if end.syscall == "return" else found[:-1]
        finally:
            for number in numbers:
                await own_breakpoints.delete_left(self._group[focus], number, self._limit)

    async def again(
        self, focus: int, count: int, before_last: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """From the origin to the stop of this number; if fewer come, to the end of the piece.

        before_last: called where the one before it was.
        """
        await self._reverse.to_origin(focus)
        end = await self._insert(focus, self._end_of_piece(focus))
        try:
            for passed in range(count):
                if before_last is not None and passed == count - 1:
                    await before_last()
                stop = await self._resume(focus)
                if end not in await self._breakpoints(focus):
                    raise CrdebugError(
                        "it ran differently when it was repeated between two MPI calls: "
                        f"{count} stops were counted, and {passed} came",
                        ranks=RankSet.of([focus]),
                        hint="data races and input from outside MPI are not recorded",
                    )
                self._check(stop)
        finally:
            await own_breakpoints.delete_left(self._group[focus], end, self._limit)

    def _end_of_piece(self, focus: int) -> End:
        return End(self._traveller.recorded.clock(focus).hold, None, 1)

    async def _resume(self, focus: int) -> GroupStopped:
        self._traveller.job.go_on()
        return await self._group.resume(RankSet.of([focus]))

    async def _enters(self, focus: int, end: End) -> bool:
        """Has it stopped at the entry of the system call that is at a place?"""
        stop = self._group[focus].last_stop
        if stop is None or stop.location is None or syscall_of(stop) != "entry":
            return False
        sp = await number_in_c(self._group[focus], "$sp", self._limit)
        return (stop.location.address, sp) == (end.pc, end.sp)

    def _hit(self, focus: int, now: Instant, clock_count: int = 0) -> Hit:
        stop = self._group[focus].last_stop
        numbered = stop is not None and stop.reason in _NUMBERED
        return Hit(now, stop.detail if stop is not None and numbered else "", clock_count)

    async def _insert(self, focus: int, end: End) -> str:
        """Insert a breakpoint at the end, which is deleted when it is hit."""
        return await own_breakpoints.insert_at(
            self._group[focus], end.pc, self._limit, sp=end.sp, passages=end.passages
        )

    async def _breakpoints(self, focus: int) -> set[str]:
        """The numbers of all that exist."""
        return await own_breakpoints.numbers(self._group[focus], self._limit)

    @property
    def _limit(self) -> Deadline:
        return Deadline(self._group.settings.command)

    def _check(self, stop: GroupStopped) -> None:
        cause = stop.cause[0]
        if cause.reason is StopReason.INTERRUPT:
            raise Interrupted.on_the_way()
        if cause.reason in (StopReason.EXITED, StopReason.KILLED):
            raise CrdebugError(
                f"the replay was stopped on its way: {cause.reason.value} {cause.detail}".rstrip(),
                ranks=RankSet.of([cause.rank]),
            )

    # ---- over MPI calls -----------------------------------------------------------------------

    async def _hit_before(self, focus: int, piece: Instant, ignored: _Ignored) -> Hit:
        """The last hit in the rank's history before this piece of it. Raises StartOfHistory, with
        the job brought to the start."""

        async def look(cut: Cut) -> Hit | None:
            hits = await self.pass_to(cut, focus)
            last = ignored.last(hits)
            if last is None:
                return None
            found = hits[last]
            if not found.now.inside:
                ignored.give_back([hit for hit in hits[last + 1 :] if hit.now == found.now])
            return found

        return await self.search_before(focus, piece, "stop", look)

    async def search_before(
        self, focus: int, piece: Instant, what: str, look: Callable[[Cut], Awaitable[T | None]]
    ) -> T:
        """What is found on the way to this piece of the rank's history, from the nearest state from
        which there is something. look: goes on to a cut.  what: a word for it.

        Raises StartOfHistory, with the job brought to the start.
        """
        traveller = self._traveller
        until = piece.in_last_call
        if until > 0:
            cut = traveller.cut_for(focus, until)
            for base in below(traveller.bases(), cut):
                if base.cut[focus] >= until:
                    continue
                phase = f"looking for {what}s from {base.text} on"
                traveller.tell(Progress("back in time", phase))
                try:
                    await traveller.bring_back(base)
                except (Refused, StoreError):  # it does not fit any more; there may be others
                    continue
                if (found := await look(cut)) is not None:
                    return found
                # Not the base's own cut: the rank may be in a call there that others must end.
                until = base.cut[focus]
                cut = traveller.cut_for(focus, until)
        await self.to_start()
        raise StartOfHistory(f"this is the start of history: no {what} before")

    async def to_start(self) -> None:
        """Go there after nothing was found in all of history."""
        traveller = self._traveller
        checkpoints = (base for base in traveller.bases() if base.number)
        first = min(checkpoints, key=lambda base: sum(base.cut), default=None)
        if first is not None and sum(first.cut) < sum(traveller.recorded.cut()):
            await traveller.bring_back(first)
        self._reverse.forget()

    async def into_call(self, focus: int, hit: Hit) -> Arrival:
        """To a stop inside an MPI call, from the call's entry."""
        traveller = self._traveller
        arrival = await traveller.to_cut(traveller.cut_for(focus, hit.now.entry), focus)
        hits = await self.pass_to(traveller.cut_for(focus, hit.now), focus, until=hit)
        exact = hits and hits[-1] == hit
        where = (
            "inside an MPI call, where no two runs are alike"
            if exact
            else "the MPI call that had stops inside it, just before it returns"
        )
        return arrival.then(Arrival((where,)))

    async def pass_to(
        self, cut: Cut, focus: int, until: Hit | None = None, also: RankSet | None = None
    ) -> list[Hit]:
        """Go on to a cut; the hits on the way. until: not beyond this one.  also: other ranks whose
        hits count."""
        wanted = RankSet.of([focus]) | (also or RankSet())
        traveller = self._traveller
        self._reverse.forget()
        recorded = traveller.recorded
        clocks, found = recorded.clocks(), list[Hit]()
        for clock in clocks:
            clock.set_stop(cut[clock.rank])
        place = cut[focus]
        async with quiet(self._group, self._group.ranks - wanted):
            while not self._arrived(focus, place):
                traveller.job.go_on()
                run = asyncio.create_task(self._group.resume(self._group.ranks))
                try:
                    async with traveller.job.watched():
                        await self._until(run, focus, place)
                finally:
                    stop = await ended(self._group, run)
                hits = [s.rank for s in stop.cause if s.rank in wanted and s.reason in _WANTED]
                now = recorded.clock(focus).read().now
                for rank in hits:
                    same = found[-1].clock_count if found and found[-1].now == now else 0
                    by = None if rank == focus else (rank, recorded.clock(rank).read().now)
                    found.append(replace(self._hit(rank, now, same + 1), by=by))
                if until is not None and until in found:
                    break
                if not hits and not self._arrived(focus, place):
                    self._check(stop)
            return found

    async def _until(self, run: asyncio.Task[GroupStopped], focus: int, place: Instant) -> None:
        """Wait as long as any rank moves on: the focused one may wait in a call for another one."""
        signs = SignsOfLife()
        while not run.done() and not self._arrived(focus, place):
            now = self._moved()
            await Deadline(_STANDSTILL).until(
                lambda now=now: (  # type: ignore[misc]
                    run.done() or self._arrived(focus, place) or self._moved() != now
                ),
                "the replay to move on",
                ranks=RankSet.of([focus]),
            )
            if (taken := signs.due()) is not None:
                phase = f"the replay takes {taken:.0f} s so far"
                self._traveller.tell(Progress("back in time", phase))

    def _moved(self) -> list[tuple[Instant, int]]:
        found = []
        for clock in self._traveller.recorded.clocks():
            with contextlib.suppress(ProcessLookupError):  # it has ended
                found.append(moved(clock))
        return found

    def _arrived(self, focus: int, place: Instant) -> bool:
        state = self._traveller.recorded.clock(focus).read()
        return state.now == place and bool(state.held)


def syscall_of(stop: RankStopped | None) -> str:
    """Whether a catchpoint has stopped it at the "entry" or "return" of a system call, or ""."""
    if stop is None or stop.reason is not StopReason.CATCHPOINT:
        return ""
    kinds = {"call of": "entry", "return from": "return"}
    return next((kind for words, kind in kinds.items() if stop.note.startswith(words)), "")
