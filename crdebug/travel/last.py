"""`last`: back to where the memory that an expression stands for was last changed."""

from __future__ import annotations

from crdebug.errors import Refused, StoreError
from crdebug.events import Progress
from crdebug.timeline.messages import Cut
from crdebug.travel.bases import Base, StartOfHistory, below
from crdebug.travel.reverse import Reverse
from crdebug.travel.stops import End, Hit, Stops, syscall_of
from crdebug.travel.traveller import Traveller
from crdebug.travel.watched import Watched

_INIT_DONE = 1  # the clock of a rank that is held before it leaves MPI_Init
_TRIES = 3  # of the part of history before the first snapshot that can be kept


class Last:
    """Finds it, with what goes back to stops; and stands there."""

    def __init__(self, traveller: Traveller, reverse: Reverse, stops: Stops) -> None:
        self._traveller = traveller
        self._reverse = reverse
        self._stops = stops

    async def back(self, focus: int, expression: str) -> str:
        """Returns what is to be said of the place. Raises GdbError for what is no place in memory,
        Refused."""
        async with Watched(self._traveller, self._reverse, focus, expression) as watched:
            try:
                await _Search(self._traveller, self._reverse, self._stops, focus, watched).run()
            except StartOfHistory:
                return f"{expression} has not been changed since the start of history"
        return f"{expression} has just been changed here"


class _Search:
    """One search."""

    def __init__(
        self,
        traveller: Traveller,
        reverse: Reverse,
        stops: Stops,
        focus: int,
        watched: Watched,
    ) -> None:
        self._traveller = traveller
        self._reverse = reverse
        self._stops = stops
        self._focus = focus
        self._watched = watched

    async def run(self) -> None:
        """Raises StartOfHistory; the job then stands where history begins."""
        hits = await self._stops.hits(self._focus, await self._end_here())
        while not hits:
            found = await self._hit_before(self._reverse.piece)
            if found.now % 2:
                await self._stops.into_call(self._focus, found)
                return
            hits = await self._stops.hits(self._focus, await self._end_of(found.now))
        await self._stops.again(self._focus, len(hits))

    async def _end_here(self) -> End:
        """Where the rank stands, with an origin from which that is gone to."""
        syscall = syscall_of(self._traveller.job.group[self._focus].last_stop)
        inside = self._traveller.cut()[self._focus] % 2
        end = End.of(*await self._reverse.here(self._focus), syscall)
        if not inside:
            await self._watched.here()
        elif not self._watched.known:
            return await self._end_of(self._reverse.piece)
        return end

    async def _end_of(self, piece: int) -> End:
        """The end of a piece of history, which is gone to from an origin in this incarnation."""
        end = End.of(await self._reverse.to_end(self._focus, piece))
        for _ in range(_TRIES):
            if self._watched.known:
                return end
            before = self._watched.lies.address
            await self._watched.find()
            end = End.of(await self._reverse.to_end(self._focus, piece))
            if self._watched.lies.address == before:
                return end  # as in the incarnation before, and so it will be in this one
        self._doubt()
        return end

    # ---- over MPI calls -------------------------------------------------------------------------

    async def _hit_before(self, piece: int) -> Hit:
        """The last hit in the rank's history before this piece of it."""
        traveller, until = self._traveller, piece - 1
        cut = traveller.cut_for(self._focus, until) if until > 0 else ()
        useless: list[Base] = []
        while until > 0 and (base := self._below(cut, until, useless)) is not None:
            traveller.tell(Progress("back in time", f"looking for a change from {base.text} on"))
            try:
                await traveller.bring_back(base)
            except (Refused, StoreError):  # it does not fit any more; there are others
                useless.append(base)
                continue
            if self._watched.known:
                hits = await self._stops.pass_to(cut, self._focus)
            elif await self._keep_first(base, cut, until):
                await self._watched.find()
                continue  # from a snapshot of this incarnation
            else:
                hits = await self._unsure(base, cut)
            if hits:
                return hits[-1]
            until, cut = base.cut[self._focus], base.cut
        await self._stops.to_start()
        raise StartOfHistory("this is the start of history: no change before")

    def _below(self, cut: Cut, until: int, but: list[Base]) -> Base | None:
        for base in below(self._traveller.bases(), cut):
            if base.cut[self._focus] < until and base not in but:
                return base
        return None

    async def _keep_first(self, base: Base, cut: Cut, until: int) -> bool:
        """Is there a snapshot of the incarnation that a checkpoint was brought back as, to search
        from? Of one from before MPI_Init that is the first that can be kept behind it."""
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

    async def _unsure(self, base: Base, cut: Cut) -> list[Hit]:
        """From a checkpoint, which was brought back: what was found counts if the memory then lies
        where it was looked for."""
        for again in range(_TRIES):
            if again:
                await self._traveller.bring_back(base)
            hits = await self._stops.pass_to(cut, self._focus)
            before = self._watched.lies.address
            await self._watched.find()
            if self._watched.lies.address == before:
                return hits
        self._doubt()
        return []

    def _doubt(self) -> None:
        self._traveller.doubts.append(
            "it may have been changed later: what was allocated lies elsewhere in each replay"
        )
