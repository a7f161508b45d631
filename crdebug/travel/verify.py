"""Repeating a recorded piece twice, and comparing the ranks' variables: `verify`."""

from __future__ import annotations

import contextlib
import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, CrdebugError, Interrupted, Refused, StoreError
from crdebug.base.events import Event, Progress
from crdebug.base.instant import Cut, Instant
from crdebug.base.ranks import RankSet
from crdebug.debugger.question import asked
from crdebug.debugger.variables import Variable, variables
from crdebug.job.clocks import RankClock
from crdebug.node import proc
from crdebug.timeline.cuts import latest_cut, past
from crdebug.timeline.differences import Content, Difference, Seen, differences
from crdebug.travel.restore_points import Base, StartOfHistory, is_before
from crdebug.travel.seek import Traveller

_PLACES = 40  # at which memory is compared
_NEAR = 0.1  # of the way: so much later the piece may begin
_SHORT = 16  # bytes that are kept as they are
_WORD = 8
_MASKED = 1 << 16  # bytes: in larger variables addresses count, too
_HIGHEST = 1 << 47  # addresses are below: x86-64, without the kernel's part
_INTEGERS = frozenset("bBhHiIlLqQ")  # as in the struct module
_GAP, _SPAN = 1 << 12, 1 << 26  # bytes: variables that are as near are read at once; and so many


@dataclass(frozen=True, slots=True)
class Verified:
    """What two runs of a piece have shown.

    start: the state with which the piece begins.  places: where the ranks were there, and then
    where they were compared.  focus: the rank that came there.  compared: how many variables, on
    all ranks, at the last place.
    found: what differs.  other: how the second run went another way, or "".  partly: the ranks of
    which not all variables were compared, as there are too many.
    """

    start: str
    focus: int
    places: tuple[Cut, ...]
    compared: int
    found: tuple[Difference, ...]
    other: str = ""
    partly: RankSet = field(default_factory=RankSet)


class Verify:
    """Verbs need the job stopped; they leave it at the end of the piece."""

    def __init__(self, traveller: Traveller, tell: Callable[[Event], None]) -> None:
        self._traveller = traveller
        self._tell = tell
        self._partly = RankSet()

    async def run(self, name: str) -> Verified:
        """name: of the checkpoint with which the piece begins; "" for the earliest state that can
        be brought back. It ends where the record does. Raises BadInput, CrdebugError."""
        base = await self._begin(name)
        focus, ticks = self._ticks(base)
        cuts = [self._cut(focus, Instant.within(tick)) for tick in ticks]
        runs: list[list[Seen]] = []
        for which in ("first", "second"):
            seen: list[Seen] = []
            try:
                if runs:
                    await self._traveller.bring_back(base)
                await self._repeat(which, focus, cuts, seen)
            except Interrupted:
                raise
            except CrdebugError as error:
                if not runs or not seen:
                    raise
                found = differences(runs[0][: len(seen)], seen)
                return self._verified(base, focus, cuts, seen, found, str(error))
            runs.append(seen)
        return self._verified(base, focus, cuts, runs[1], differences(*runs))

    async def _begin(self, name: str) -> Base:
        """Go to where the piece begins. If no way leads there, raises what the first one has."""
        problem: CrdebugError | None = None
        for base in self._bases(name):
            try:
                await self._traveller.bring_back(base)
                return base
            except (StoreError, Refused) as error:
                problem = problem or error
        raise problem or StartOfHistory(
            "there is nothing to begin from", hint="'checkpoint' takes one"
        )

    def _bases(self, name: str) -> list[Base]:
        """Where the piece may begin, in the order in which they are tried."""
        bases = self._traveller.bases()
        if name:
            found = [base for base in bases if base.number and base.name == name]
            if not found:
                raise BadInput(
                    f"there is no checkpoint {name} on this branch",
                    hint="'checkpoints' and 'info timeline' list them",
                )
            return found
        earliest = sorted(bases, key=lambda base: sum(base.cut))
        if not earliest:
            return []
        begin = sum(earliest[0].cut)
        length = sum(self._traveller.recorded.last_places()) - begin
        # To go back to memory is quick, and the job's processes stay.
        near = [b for b in earliest if b.kept and sum(b.cut) - begin <= length * _NEAR]
        return [*near[:1], *(base for base in earliest if base not in near[:1])]

    def _ticks(self, base: Base) -> tuple[int, Sequence[int]]:
        """The rank that makes most calls, and up to _PLACES of their ticks: the last among them."""
        ends = self._traveller.recorded.last_places()
        focus = max(range(len(ends)), key=lambda rank: ends[rank] - base.cut[rank])
        first, last = base.cut[focus].entered + 1, ends[focus].tick
        calls = self._traveller.recorded.logs()[focus].calls
        if calls and calls[-1].name == "MPI_Finalize" and calls[-1].tick == last:
            last -= 1  # it talks with the launcher, and no snapshot leads back from there
        if last < first:
            raise BadInput("no MPI call is on record after that", hint="'continue' runs on")
        count = min(last - first + 1, _PLACES)
        steps = [first + (last - first) * at // max(count - 1, 1) for at in range(count)]
        return focus, sorted({*steps, last})

    def _cut(self, focus: int, now: Instant) -> Cut:
        """Where the others are meanwhile: in front of a call, rather than inside it, if the focused
        rank does not need them there. Inside a call a rank's memory may change at any moment."""
        recorded, cut = self._traveller.recorded, self._traveller.cut_for(focus, now)
        matching = recorded.matching()
        least = past(matching, focus, now, size=len(cut), ended=recorded.ended)
        front = tuple(
            max(least[rank], Instant.before(place.entered)) if place.inside else place
            for rank, place in enumerate(cut)
        )
        front = (*front[:focus], now, *front[focus + 1 :])
        return latest_cut(matching, focus, now, front, recorded.ended)

    async def _finish(self, clocks: Sequence[RankClock], cut: Cut) -> None:
        """Let ranks that are inside a call come to its end, if it can end at this cut."""
        traveller, matching = self._traveller, self._traveller.recorded.matching()
        for clock in clocks:
            state = clock.read()
            if state.held or not state.now.inside:
                continue
            needed = past(matching, clock.rank, state.now, size=len(cut))
            if is_before(needed, cut):
                await traveller.replay(clocks, cut, clock.rank).run()

    async def _repeat(self, which: str, focus: int, cuts: Sequence[Cut], seen: list[Seen]) -> None:
        """From the beginning of the piece, where the job stands."""
        traveller = self._traveller
        await traveller.job.give_input_again()
        await traveller.awake()
        try:
            for number, cut in enumerate(cuts, 1):
                self._tell(Progress("verify", f"{which} time, place {number} of {len(cuts)}"))
                clocks = traveller.recorded.clocks_here()
                for clock in clocks:
                    clock.wipe_stack(True)
                await traveller.replay(clocks, cut, focus).run()
                await self._finish(clocks, cut)
                seen.append(await self._look(clocks))
        finally:
            for clock in traveller.recorded.clocks_here():
                with contextlib.suppress(ProcessLookupError):
                    clock.wipe_stack(False)

    async def _look(self, clocks: Sequence[RankClock]) -> Seen:
        """What the variables have on each rank that stands still inside MPI: held, with nothing on
        its way into its memory."""
        group = self._traveller.job.group
        still = {clock.rank: clock for clock in clocks if _stands_still(clock)}
        limit = Deadline(group.settings.command)
        told = await group.look(RankSet.of(still), asked(variables, limit))
        self._partly |= RankSet.of(rank for rank, each in told.values.items() if each.more)
        return {
            rank: dict(_contents(still[rank].pid, each.found)) for rank, each in told.values.items()
        }

    def _verified(
        self,
        base: Base,
        focus: int,
        cuts: Sequence[Cut],
        seen: Sequence[Seen],
        found: Sequence[Difference],
        other: str = "",
    ) -> Verified:
        compared = sum(map(len, seen[-1].values())) if seen else 0
        places = base.cut, *cuts[: len(seen)]
        return Verified(base.text, focus, places, compared, tuple(found), other, self._partly)


def _stands_still(clock: RankClock) -> bool:
    state = clock.read()
    return (
        bool(state.held)
        and not state.open_epochs
        and not any(request.is_active for request in clock.requests())
    )


def _contents(pid: int, places: Sequence[Variable]) -> Iterator[tuple[str, Content]]:
    mapped = [(each.start, each.end) for each in proc.maps(pid) if each.end <= _HIGHEST]
    for span in _spans(places):
        start = span[0].address & -_WORD
        end = max(each.address + each.size for each in span) + _WORD - 1 & -_WORD
        try:
            data = proc.read_memory(pid, start, end - start)
        except OSError:
            continue  # it has been freed, and unmapped
        for each in span:
            at = each.address - start
            own = data[at : at + each.size]
            if len(own) < each.size:
                continue
            kept = own
            if each.size <= _MASKED:
                kept = without_addresses(data, at, each.size, mapped)
            if each.size > _SHORT:
                yield each.name, ("", hashlib.blake2b(kept, digest_size=_SHORT).digest())
            elif kept == own or each.format not in _INTEGERS:
                yield each.name, (f"={each.format}", own)


def without_addresses(data: bytes, at: int, size: int, mapped: Sequence[tuple[int, int]]) -> bytes:
    """The bytes of a variable, with zeros for what is an address by value, or a part of one. The
    heap and the stack may be used in another way each time, for the MPI waits as long as it takes.

    data: whole words of memory, with the variable at `at`. mapped: in order, the beginning and end
    of each range in which addresses are.
    """
    first = at & -_WORD
    words = array("Q", data[first : at + size + _WORD - 1 & -_WORD])
    low, high = (mapped[0][0], mapped[-1][1]) if mapped else (0, 0)
    for index, value in enumerate(words):
        if low <= value < high:
            nearest = bisect_right(mapped, value, key=itemgetter(0)) - 1
            if value < mapped[nearest][1]:
                words[index] = 0
    return words.tobytes()[at - first :][:size]


def _spans(places: Sequence[Variable]) -> Iterator[list[Variable]]:
    span: list[Variable] = []
    end = 0
    for each in sorted(places, key=lambda each: each.address):
        near = span and each.address - end <= _GAP and each.address - span[0].address < _SPAN
        if span and not near:
            yield span
            span = []
        span.append(each)
        end = max(end, each.address + each.size) if len(span) > 1 else each.address + each.size
    if span:
        yield span
