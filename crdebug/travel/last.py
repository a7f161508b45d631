"""`last`: back to where the memory of an expression was last changed.

A watchpoint sees writes by the rank's own instructions, but not those of the kernel for it (a large
message, read(2)), nor those of other processes. So the layer compares the bytes where each MPI call
begins and ends (native/recorder/pmpi.c, compare_bytes).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused, StoreError
from crdebug.base.events import Progress
from crdebug.base.instant import Cut, Instant
from crdebug.base.ranks import RankSet
from crdebug.debugger.in_c import number_in_c
from crdebug.debugger.rank_commands import call_sites
from crdebug.travel.arrival import Arrival
from crdebug.travel.goto_partner import Partners
from crdebug.travel.restore_points import Base, StartOfHistory, below
from crdebug.travel.reverse_continue import End, Hit, Stops, syscall_of
from crdebug.travel.reverse_step import Reverse
from crdebug.travel.seek import Traveller
from crdebug.travel.watched import Watched

_INIT_DONE = Instant.within(1)  # where a rank is held before it leaves MPI_Init
_TRIES = 3  # of the part of history before the first snapshot that can be kept


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a search works with."""

    traveller: Traveller
    reverse: Reverse
    stops: Stops
    partners: Partners


@dataclass(frozen=True, slots=True)
class _Change:
    """now: where the rank is at it.  seen: by the watchpoint.  by: if another rank has done it, its
    number and instant."""

    now: Instant
    seen: bool = True
    by: tuple[int, Instant] | None = None


class Last:
    """Finds it by going back to stops, and leaves the job there."""

    def __init__(
        self, traveller: Traveller, reverse: Reverse, stops: Stops, partners: Partners
    ) -> None:
        self._parts = _Parts(traveller, reverse, stops, partners)
        self._inside: tuple[int, int, Instant] | None = None  # the place of such an answer

    async def back(
        self, focus: int, expression: str, ended: bool = False
    ) -> tuple[int, str, Arrival]:
        """Returns the rank that has done it, a note on the place, and the way there. ended: the
        rank has ended, and stands after its last MPI call now. Raises GdbError for an expression
        that is no place in memory, Refused."""
        parts = self._parts
        # To ask once more where a call was the answer is to ask for the change before it.
        told = self._inside == self._place(focus)
        async with Watched(parts.traveller, parts.reverse, focus, expression) as watched:
            search = _Search(parts, focus, expression, watched)
            try:
                note = await search.run(told, ended)
            except StartOfHistory:
                note = f"{expression} has not been changed since the start of history"
                if search.unsure:
                    note = f"no change of {expression} was found"
        if search.unsure:
            note += "; it may have been changed later: it lies elsewhere in each replay"
        self._inside = self._place(search.rank) if search.inside else None
        return search.rank, note, search.arrival.then(search.left_out)

    def _place(self, focus: int) -> tuple[int, int, Instant]:
        traveller = self._parts.traveller
        return focus, traveller.position.ways, traveller.recorded.cut()[focus]


class _Search:
    """One search.

    inside: it has ended inside an MPI call.  rank: whose place that is.  arrival: of the way to
    where the job stands.  left_out: a caveat, if some of history was not searched.  unsure: some of
    history was searched at an address where the memory may not lie.
    """

    def __init__(self, parts: _Parts, focus: int, expression: str, watched: Watched) -> None:
        self._traveller = parts.traveller
        self._reverse = parts.reverse
        self._stops = parts.stops
        self._partners = parts.partners
        self._focus = focus
        self._expression = expression
        self._watched = watched
        self.inside = False
        self.unsure = False
        self.rank = focus
        self.arrival = Arrival()
        self.left_out = Arrival()

    async def run(self, told: bool, ended: bool = False) -> str:
        """A note on the place. told: the last answer has named the call in which the rank stands.
        ended: see `Last.back`. Raises StartOfHistory; the job then stands where history begins."""
        now = self._traveller.recorded.cut()[self._focus]
        here = await self._watched.value()
        end = await self._end_here()
        if now.inside and not told and here != await self._watched.value():
            return await self._in_call(self._focus, now)
        own = True  # the instruction before this place may be its last change, which does not count
        if ended and (exit_ := await self._exit(now)) is not None:
            end, own = exit_, False
        while (note := await self._in_piece(end, own)) is None:
            own = False
            change = await self._before(self._reverse.piece)
            if change.by is not None:
                return await self._by_rank(*change.by)
            if change.now.inside:
                return await self._in_call(self._focus, change.now)
            end = await self._end_of(change.now)
            if not change.seen:
                return await self._in_piece(end) or await self._by_another(change.now)
        return note

    async def _end_here(self) -> End:
        """Where the rank stands or, if that is inside a call, where it has entered it; an origin
        leads there."""
        syscall = syscall_of(self._traveller.job.group[self._focus].last_stop)
        inside = self._traveller.recorded.cut()[self._focus].inside
        here = await self._reverse.here(self._focus)
        self.arrival, end = here.arrival, End.of(here.place, here.signalled, syscall)
        if not inside:
            await self._watched.here()
        elif not self._watched.known:
            return await self._end_of(self._reverse.piece)
        return end

    async def _exit(self, now: Instant) -> End | None:
        """Where the rank has ended, if it needed no other rank to get there."""
        if self._partners.name(self._focus, now.tick) != "MPI_Finalize":
            self.left_out = Arrival(
                (f"calls after rank {self._focus}'s last MPI call were not searched",)
            )
            return None
        limit = Deadline(self._traveller.job.settings.command)
        target = self._traveller.job.group[self._focus]
        return End(await number_in_c(target, "&_exit", limit), None, 1)

    async def _end_of(self, piece: Instant) -> End:
        """Go to the end of a piece of history, from an origin in this incarnation."""
        end = await self._to_end(self._focus, piece)
        for _ in range(_TRIES):
            if self._watched.known:
                return end
            before = self._watched.lies.address
            await self._watched.find()
            end = await self._to_end(self._focus, piece)
            if self._watched.lies.address == before:
                return end  # as in the incarnation before: it will stay the same in this one
        self.unsure = True
        return end

    async def _to_end(self, rank: int, piece: Instant) -> End:
        reached = await self._reverse.to_end(rank, piece)
        self.arrival = reached.arrival
        return End.of(reached.place)

    # ---- between two calls ----------------------------------------------------------------------

    async def _in_piece(self, end: End, own: bool = False) -> str | None:
        """To its last change in this piece of history; None if there is none."""
        put_back = await self._shared_as_at(self._focus, self._reverse.piece)
        await put_back()
        await self._reverse.to_origin(self._focus)
        before = await self._watched.value()
        hits = await self._stops.hits(self._focus, end)
        after = await self._watched.value()
        if hits:
            changed = await self._to_hit(self._focus, len(hits), put_back)
            if own or await self._watched.value() == after:
                return changed
            await put_back()
            await self._stops.hits(self._focus, end)
        elif own or before == after:
            return None
        return (
            f"{self._expression} has been changed before this place, since tick "
            f"{self._reverse.piece.tick}, in a system call of the rank: the kernel has written it"
        )

    async def _to_hit(self, rank: int, count: int, put_back: Callable[[], Awaitable[None]]) -> str:
        """To the last hit of the watchpoint in a rank; returns what it has done."""
        before = b""

        async def look() -> None:
            nonlocal before
            before = await self._watched.value()

        await put_back()
        await self._stops.again(rank, count, look)
        target = self._traveller.job.group[rank]
        limit = Deadline(self._traveller.job.settings.command)
        # The rank stands behind the instruction, which may be the last one of its line.
        (site,) = await call_sites(target, [await number_in_c(target, "$pc", limit)], limit)
        by = f", by rank {rank}" if rank != self._focus else ""
        change = await self._watched.change(before)
        line = f", by {PurePath(site.file).name}:{site.line}" if site.file and site.line else ""
        return f"{self._expression} has just been changed here{by}{change}{line}"

    async def _shared_as_at(self, rank: int, piece: Instant) -> Callable[[], Awaitable[None]]:
        """No rank's origin takes back memory that is shared with other ranks: returns a function
        that sets it as it is where this piece of a rank's history begins."""
        if not self._watched.lies.elsewhere or not piece.tick:
            return _nothing
        traveller = self._traveller
        incarnation = traveller.job.record.incarnation
        await traveller.to_cut(traveller.cut_for(rank, piece.in_last_call), rank)
        if traveller.job.record.incarnation != incarnation:  # the origin ended with the other one
            raise Refused(
                "its changes by ranks that share this memory can be found only where a snapshot "
                f"can be kept, and here: {traveller.near.why_not or 'none is left'}",
                ranks=RankSet.of([rank]),
                hint="'watch -location' finds them on the way forward",
            )
        before = await self._watched.value()
        return lambda: self._watched.write(before)

    async def _by_another(self, piece: Instant) -> str:
        """The rank's own code does not change it in this piece of history: go to its end."""
        await self._to_end(self._focus, piece)
        return (
            f"{self._expression} has been changed between ticks {piece.tick} and {piece.tick + 1}, "
            "and not by this rank: another process writes to this memory too"
        )

    # ---- over MPI calls -------------------------------------------------------------------------

    async def _in_call(self, rank: int, now: Instant) -> str:
        """Into the call of a rank in which it was changed, just before that returns."""
        traveller, tick = self._traveller, now.entered
        self.arrival = await traveller.to_cut(traveller.cut_for(rank, now), rank)
        self._reverse.forget()
        self.inside, self.rank = True, rank
        where = await self._partners.where(rank, tick)
        by = await self._partners.source(rank, tick)
        name = self._partners.name(rank, tick)
        of = f" of rank {rank}" if rank != self._focus else ""
        return f"{self._expression} has been changed inside {name}{of}{where}{by}"

    async def _by_rank(self, rank: int, now: Instant) -> str:
        """To where another rank that has this memory has changed it."""
        if now.inside:
            return await self._in_call(rank, now)
        self.rank = rank
        end = await self._to_end(rank, now)
        put_back = await self._shared_as_at(rank, now)
        await put_back()
        hits = await self._stops.hits(rank, end)
        return await self._to_hit(rank, len(hits), put_back)

    async def _pass(self, cut: Cut) -> _Change | None:
        """Go on to a cut; its last change on the way."""
        lies, clock = self._watched.lies, self._traveller.recorded.clock(self._focus)
        clock.look_at(lies.address, lies.size)
        also = RankSet.of(lies.elsewhere)
        hits = await self._stops.pass_to(cut, self._focus, also=also)
        clock = self._traveller.recorded.clock(self._focus)
        changed = clock.read().looked_changed
        clock.look_no_more()
        return _latest(hits, changed)

    async def _before(self, piece: Instant) -> _Change:
        """Its last change before this piece of history."""
        traveller, until = self._traveller, piece.in_last_call
        cut = traveller.cut_for(self._focus, until) if until > 0 else ()
        useless: list[Base] = []
        useful: list[Base] = []
        while until > 0 and (base := self._below(cut, until, useless)) is not None:
            traveller.tell(Progress("back in time", f"looking for a change from {base.text} on"))
            try:
                await traveller.bring_back(base)
            except (Refused, StoreError):  # it does not fit any more; there are others
                useless.append(base)
                continue
            if self._watched.known:
                found = await self._pass(cut)
            elif base not in useful and await self._keep_first(base, cut, until):
                useful.append(base)  # once: snapshots may not fit
                await self._watched.find()
                continue  # from a snapshot of this incarnation
            else:
                found = await self._unsure(base, cut)
            if found is not None:
                return found
            # Not the base's own cut: the rank may be in a call there that others must end.
            until = base.cut[self._focus]
            cut = traveller.cut_for(self._focus, until)
        await self._stops.to_start()
        raise StartOfHistory("this is the start of history: no change before")

    def _below(self, cut: Cut, until: Instant, but: list[Base]) -> Base | None:
        for base in below(self._traveller.bases(), cut):
            if base.cut[self._focus] < until and base not in but:
                return base
        return None

    async def _keep_first(self, base: Base, cut: Cut, until: Instant) -> bool:
        """Is there a snapshot of this incarnation, which a checkpoint was brought back as, to
        search from? For a checkpoint from before MPI_Init, that is the first one that can be kept
        after it."""
        traveller = self._traveller
        if not all(base.cut):
            first = traveller.cut_for(self._focus, _INIT_DONE)
            others = (now for rank, now in enumerate(first) if rank != self._focus)
            if any(now <= _INIT_DONE for now in others) or until <= _INIT_DONE:
                return False
            await traveller.to_cut(first, self._focus)
            await traveller.near.keep(first)
        near = below(traveller.near.bases(), cut)
        return any(each.cut[self._focus] < until for each in near)

    async def _unsure(self, base: Base, cut: Cut) -> _Change | None:
        """Search from a checkpoint that was brought back: the result counts if the memory then lies
        where it was looked for."""
        for again in range(_TRIES):
            if again:
                await self._traveller.bring_back(base)
            found = await self._pass(cut)
            before = self._watched.lies.address
            await self._watched.find()
            if self._watched.lies.address == before:
                return found
        self.unsure = True
        return None


async def _nothing() -> None:
    """In place of what would set shared memory, where there is none."""


def _latest(hits: Sequence[Hit], changed: Instant | None) -> _Change | None:
    """The latest of the watchpoint's hits and the change that the layer has seen."""
    if hits and (changed is None or hits[-1].now >= changed):
        return _Change(hits[-1].now, by=hits[-1].by)
    return None if changed is None else _Change(changed, seen=False)
