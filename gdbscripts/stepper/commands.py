"""Reverse execution of the selected thread, between a snapshot and the present stop.

wire.py defines places.

-crdebug-walk-library PATH
    Load the compiled part (native/stepper/walk.c); before all other commands.
-crdebug-here ORIGIN
    {place, signalled}: the thread's stop, as one move from the snapshot ORIGIN. The thread stays
    there; but if it was about to get a signal (signalled=1), it goes to the handler.
-crdebug-go ORIGIN PLACE [PC SP]
    Go to a place; an error if it differs from before.
-crdebug-reverse ORIGIN stepi|nexti|step|next|finish
    {place, pc, sp}: go back. {before, frame, function}: the target lies before the origin; the
    thread is where it was. before: the kind of target to look for there; frame: its frame.
All three take options, before the words above: --write ADDRESS=BYTES, to write each time after the
snapshot is restored; --seconds LIMIT; --frame FRAME: go back in this frame instead of the newest;
--limit ADDRESS: of the function that holds the thread at its next MPI call; --dead-end 1: the
thread is known to crash after the origin, and must not run a handler of the crash, whose effects
could not be undone. Numbers are hexadecimal.

GDB then shows the thread's new place. It learns of the stop there only by -crdebug-arrive
(snapshot/commands.py), before the thread runs on; a stop reported here would replace the answer.
"""

from __future__ import annotations

import contextlib

import gdb

from ..ptrace import Gone, registers_of
from ..snapshot.commands import flush, process, refresh_watchpoints
from ..snapshot.kernel import SYSCALL_INSTRUCTION
from ..snapshot.memory import Memory
from ..wire import Command, Reach, place_of, place_text
from .code import Book
from .engine import (
    COMPARE,
    CRASHES,
    STOP,
    AtOrigin,
    EndAhead,
    Engine,
    SignalAhead,
    WalkFailed,
    load_walk,
    point_at,
    stack_level,
    swap_watching,
)
from .levels import levels_of
from .lines import Reverse
from .search import PORTION, BeforeOrigin, End, FromEarlier, Mark, Search
from .states import Here, Origin, general, near, walking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..wire import Answer, Moves

SECONDS = 30.0
KINDS = ("stepi", "nexti", "step", "next", "finish")
OVER_CALLS = ("rsp", "rbp", "rbx", "r12", "r13", "r14", "r15")
CLOSE = 32  # a search starts so many passages of the present address before the present stop


class Walk:
    """One command: the options, the engine, and the way back if it fails."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.seconds, self.dead_end, self.limit = SECONDS, False, 0
        self.frame: int | None = None
        writes = []
        rest = list(arguments)
        while rest and rest[0].startswith("--"):
            option, value = rest.pop(0), rest.pop(0)
            if option == "--seconds":
                self.seconds = float(value)
            elif option == "--frame":
                self.frame = int(value, 16)
            elif option == "--limit":
                self.limit = int(value, 16)
            elif option == "--dead-end":
                self.dead_end = value == "1"
            elif option == "--write":
                address, data = value.split("=")
                writes.append((int(address, 16), bytes.fromhex(data)))
            else:
                raise gdb.GdbError(f"there is no option {option}")
        if walking.library is None:
            raise gdb.GdbError("the library for walking is not loaded")
        self.library = walking.library
        self.rest = rest[1:]
        self.origin = Origin(rest[0], writes)
        self.pid, _ = process()

    def __enter__(self) -> Walk:
        self.tid = gdb.selected_thread().ptid[1]
        self.memory = Memory(self.pid)
        self.engine = Engine(self.library, self.memory, self.tid, self.seconds)
        self.engine.dead_end = self.dead_end
        self.book = Book(self.memory)
        self.watching = swap_watching(self.tid, 0)
        return self

    def __exit__(self, *problem: object) -> None:
        with contextlib.suppress(Gone):
            swap_watching(self.tid, self.watching)
        self.memory.__exit__()

    def find_here(self, here: Here) -> tuple[End, Moves]:
        """The present stop as an end of searches; returns it and the moves to their start.

        On a long way we keep states now and then, and searches start from the last one.
        """
        landed, walking.landed = walking.landed, None
        start: Moves = ()
        if landed is not None and landed[1] == general(here.registers) and landed[0] in near:
            start = landed[0]
        self.origin.put_back()
        self.origin.learn(self.book)
        if not start and registers_of(self.tid).rip == here.pc and self.is_here(here):
            raise AtOrigin
        self.origin.put_back_near(start)
        level = stack_level(here.registers.rsp)
        self.engine.wanted, self.engine.limits = here.registers, CRASHES
        if here.pc == self.limit:
            # The thread comes there once, and waits. Memory may differ from the last time: an MPI
            # that looks for messages while it waits may keep the time.
            self.engine.run([point_at(here.pc, STOP, 1)])
            return End(here.pc, level, 1), start
        passed = 0  # since `start`
        alike = []  # passages with the same registers, but other memory
        beyond = [point_at(self.limit, STOP, 1)] if self.limit else []
        while True:
            compare = point_at(here.pc, COMPARE, 0, level)
            portion = point_at(here.pc, STOP, PORTION - passed, level)
            ahead = None
            try:
                reached = self.engine.run([compare, portion, *beyond])
            except (SignalAhead, EndAhead) as error:
                reached, ahead = None, error
            passed += compare.hits
            if reached is not None and reached not in beyond:
                if self.is_here(here):
                    return self.nearer(End(here.pc, level, passed), start)
                if reached is compare:
                    alike.append((End(here.pc, level, passed), start))
            elif isinstance(ahead, SignalAhead) and passed and self.is_crash_of(here):
                return self.nearer(End(here.pc, level, passed), start)
            elif len(alike) == 1:  # the thread must not repeat its actions from here on
                return self.nearer(*alike[0])
            elif ahead is None:
                beyond = []  # the thread may be inside the function that holds it there
            elif isinstance(ahead, EndAhead) or not self.engine.give(ahead.number):
                raise ahead
            if passed == PORTION:
                start, passed = (*start, Reach(here.pc, level, passed)), 0
                self.origin.keep_near(start)

    def is_crash_of(self, here: Here) -> bool:
        """Does the thread crash at its old place? Never go beyond that, even if other state
        differs."""
        now, then = registers_of(self.tid), here.registers
        if general(now) == general(then):
            return True
        kept = all(getattr(now, name) == getattr(then, name) for name in OVER_CALLS)
        calls = self.memory.read(then.rip, len(SYSCALL_INSTRUCTION)) == SYSCALL_INSTRUCTION
        return kept and calls and now.rip == then.rip + len(SYSCALL_INSTRUCTION)

    def nearer(self, end: End, start: Moves) -> tuple[End, Moves]:
        """Make the search for an end start shortly before it."""
        if end.hits > 4 * CLOSE:
            ahead = (*start, Reach(end.pc, end.level, end.hits - CLOSE))
            Search(self.engine, self.book, self.origin).go(search_mark(ahead))
            self.origin.keep_near(ahead)
            if ahead in near:
                return end._replace(hits=CLOSE), ahead
        return end, start

    def is_here(self, here: Here) -> bool:
        return general(registers_of(self.tid)) == general(here.registers) and here.same(self.memory)

    def to_origin(self) -> None:
        """Go to the origin if the search found no other place: nothing has happened there yet."""
        self.origin.put_back()
        self.land()

    def land(self) -> None:
        """Make GDB show the thread's present place."""
        flush()
        refresh_watchpoints()

    def reverse(self, kind: str) -> Answer:
        here = Here(self.tid)
        found = levels_of(self.book)
        if self.frame is not None:
            while found and found[0].frame != self.frame:
                found.pop(0)
        if not found:
            raise WalkFailed("there is no such frame")
        try:
            end, start = self.find_here(here)
        except WalkFailed as error:
            if here.snapshot is None:
                raise WalkFailed(f"{error}; the thread is in another place now") from None
            self.origin.restore(here.snapshot)
            self.land()
            raise
        self.back = (*start, *place_moves(end))
        outer = self.frame is not None
        search = Reverse(self.engine, self.book, self.origin, end, found, outer, start)
        try:
            try:
                return self.find(search, kind)
            except FromEarlier:
                search = Reverse(self.engine, self.book, self.origin, end, found, outer)
                search.end = search.end_at(search.start, search_mark(self.back))
                return self.find(search, kind)
        except BeforeOrigin as error:
            level = error.level
            self.go(search, self.back)
            told = {"before": error.kind or kind, "frame": f"{level.frame:x}"}
            return {**told, "function": level.function}
        except WalkFailed:
            self.engine.begin()
            self.go(search, self.back)
            raise

    def find(self, search: Reverse, kind: str) -> Answer:
        moves = getattr(search, kind)()
        self.go(search, moves)
        return self.told(moves)

    def go(self, search: Search, moves: Moves) -> None:
        search.go(search_mark(moves))
        self.land()
        # Moves with which the next search for this place may start. Not the place itself, which is
        # kept too after a long way: a search that starts there would not reach it.
        before = range(len(moves) - 1, 0, -1)
        kept = next((moves[:n] for n in before if moves[:n] in near), None)
        if kept is not None:
            walking.landed = kept, general(registers_of(self.tid))

    def told(self, moves: Moves) -> Answer:
        now = registers_of(self.tid)
        return {"place": place_text(moves), "pc": f"{now.rip:x}", "sp": f"{now.rsp:x}"}


def place_moves(end: End) -> Moves:
    return (Reach(end.pc, end.level, end.hits),)


def search_mark(moves: Moves) -> Mark:
    return Mark(tuple(moves), 0)


class WalkLibrary(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        walking.library = load_walk(arguments[0])
        return {}


class WhereHere(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        with Walk(arguments) as walk:
            here = Here(walk.tid)
            walking.landed = None
            end, start = walk.find_here(here)  # all the moves lead to the same point
            walk.land()
            hits = end.hits + sum(each.times for each in start)
            told = walk.told(place_moves(end._replace(hits=hits)))
            return {**told, "signalled": str(int(here.signalled))}


class Go(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        with Walk(arguments) as walk:
            text, *expected = walk.rest
            moves = place_of(text)
            walk.go(Search(walk.engine, walk.book, walk.origin), moves)
            told = walk.told(moves)
            if expected and [told["pc"], told["sp"]] != expected:
                raise gdb.GdbError("did not come back to the same state")
            return told


class ReverseCommand(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        with Walk(arguments) as walk:
            (kind,) = walk.rest
            if kind not in KINDS:
                raise gdb.GdbError(f"there is no reverse-{kind}")
            return walk.reverse(kind)


WalkLibrary(Command.WALK_LIBRARY)
WhereHere(Command.HERE)
Go(Command.GO)
ReverseCommand(Command.REVERSE)
