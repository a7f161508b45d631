"""The memory that `last` watches: that of an expression where the user asked.

The same variable may lie elsewhere once the job has been restarted: what MPI allocates while it
begins depends on what comes first, and so does the place of everything that the program allocates
after it (seen in one of three runs of five ranks from the same checkpoint). So its address is asked
anew in each incarnation, at the very place where the user stood.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused
from crdebug.base.ranks import RankSet
from crdebug.debugger import own_breakpoints
from crdebug.debugger.connections import places_of
from crdebug.debugger.frames import at_program
from crdebug.debugger.question import asked
from crdebug.debugger.rank_commands import InMemory, in_memory, read_memory, write_memory
from crdebug.debugger.scalars import Kind, scalar
from crdebug.debugger.target import Target
from crdebug.node import proc
from crdebug.travel.reverse_step import Reverse
from crdebug.travel.seek import Traveller


@dataclass(frozen=True, slots=True)
class Lies:
    """Where an expression lies in one incarnation of the job. kind: of number.  fixed: in each of
    them.  elsewhere: where other ranks have it, if it is in memory that they share."""

    incarnation: int
    address: int
    size: int
    kind: Kind
    fixed: bool
    elsewhere: Mapping[int, int]


class Watched:
    """Inside the block, an expression has a watchpoint of its own, also in the ranks that share its
    memory. Nothing else stops any of these meanwhile.
    """

    def __init__(self, traveller: Traveller, reverse: Reverse, focus: int, expression: str) -> None:
        self._traveller = traveller
        self._reverse = reverse
        self._focus = focus
        self._expression = expression
        self._set: dict[int, tuple[Target, str]] = {}  # by rank, the target and the watchpoint

    async def __aenter__(self) -> Watched:
        group, focus = self._traveller.job.group, RankSet.of([self._focus])
        for error in (await group.ask(focus, asked(at_program, self._limit))).errors.values():
            raise error
        told = await self._ask()
        self._outer = told.outer
        self._now = self._traveller.recorded.cut()[self._focus]
        self._state = await self._reverse.recall(self._focus)
        self.lies = await self._as_told(told)
        await self._watch()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self._unwatch()

    @property
    def known(self) -> bool:
        """Is the watchpoint where the memory lies in the present incarnation?"""
        placed = self.lies.fixed or self.lies.incarnation == self._incarnation
        group = self._traveller.job.group
        return placed and all(target is group[rank] for rank, (target, _) in self._set.items())

    async def here(self) -> None:
        """The rank stands where the user stood: put the watchpoint at the right address."""
        if not self.known:
            self.lies = await self._as_told(await self._ask(self._outer))
            await self._watch()

    async def find(self) -> None:
        """Take the job to where the user stood, to learn where it lies in this incarnation."""
        if not self.known:
            await self._reverse.to_state(self._focus, self._now, self._state)
            await self.here()

    async def value(self) -> bytes:
        """The bytes there now; none if nothing is mapped."""
        lies = self.lies
        return await read_memory(self._rank, lies.address, lies.size, self._limit)

    async def change(self, before: bytes) -> str:
        """From which number to which it changed, as words to follow; "" if it is no number."""
        old, new = scalar(self.lies.kind, before), scalar(self.lies.kind, await self.value())
        return f", from {old} to {new}" if old and new else ""

    async def write(self, value: bytes) -> None:
        """Write these bytes there."""
        await write_memory(self._rank, self.lies.address, value, self._limit)

    # ---- the watchpoint -----------------------------------------------------------------------

    async def _watch(self) -> None:
        await self._unwatch()
        for rank, address in {self._focus: self.lies.address, **self.lies.elsewhere}.items():
            await self._watch_in(rank, address)

    async def _watch_in(self, rank: int, address: int) -> None:
        target = self._traveller.job.group[rank]
        await own_breakpoints.switch_off(target, self._limit)
        self._set[rank] = target, ""
        size = self.lies.size
        number = await own_breakpoints.watch_memory(target, address, size, self._limit)
        self._set[rank] = target, number

    async def _unwatch(self) -> None:
        for rank, (target, number) in self._set.items():
            if target is not self._traveller.job.group[rank]:  # that GDB is gone
                continue
            if number:
                await own_breakpoints.delete(target, number, self._limit)
            await own_breakpoints.switch_on(target, self._limit)
        self._set.clear()

    # ---- asking -------------------------------------------------------------------------------

    async def _ask(self, outer: int | None = None) -> InMemory:
        return await in_memory(self._rank, self._expression, self._limit, outer)

    async def _as_told(self, told: InMemory) -> Lies:
        address, fixed = told.address, self._is_fixed(told.address)
        elsewhere = await self._elsewhere(address)
        return Lies(self._incarnation, address, told.size, told.kind, fixed, elsewhere)

    async def _elsewhere(self, address: int) -> dict[int, int]:
        """By rank, where other ranks have this memory: those of the same host."""
        group = self._traveller.job.group
        (at,) = (
            each
            for each in places_of(map(group.__getitem__, group.ranks))
            if self._focus in each.pids
        )
        try:
            told = await at.host.mappings(at.pids)
        except Refused:  # a rank has ended
            return {}
        shared = {rank: [each for each in some if each.writable] for rank, some in told.items()}
        own = [each for each in shared[self._focus] if each.start <= address < each.end]
        found = {}
        for rank, some in shared.items() if own else ():
            place = own[0].place(address)
            same = [each.address(place) for each in some]
            there = next((each for each in same if each is not None), None)
            if rank != self._focus and there is not None:
                found[rank] = there
        return found

    def _is_fixed(self, address: int) -> bool:
        """Is it the program's own data, or its stack? Everything that existed when the job was
        launched is at the same place in each image. (A job over hosts has one incarnation.)"""
        pid = self._rank.pid
        if pid is None or self._rank.node is not None:
            return False
        program, path, end = proc.executable(pid), "", 0
        for mapping in proc.maps(pid):
            named = mapping.path or (path if mapping.start == end else "")  # .bss is after .data
            if mapping.start <= address < mapping.end:
                return named in (program, "[stack]")
            path, end = named, mapping.end
        return False

    @property
    def _rank(self) -> Target:
        return self._traveller.job.group[self._focus]

    @property
    def _incarnation(self) -> int:
        return self._traveller.job.record.incarnation

    @property
    def _limit(self) -> Deadline:
        return Deadline(self._traveller.job.group.settings.command)
