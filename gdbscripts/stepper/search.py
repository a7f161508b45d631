"""Reverse execution of one thread: find the target by running forward from an earlier state.

The earlier state is the origin: a snapshot that we restore as often as needed. A place is a tuple
of moves from there, see wire.py.

The thread runs long stretches at full speed, from breakpoint to breakpoint. To find the last action
of a function before the present stop, we put breakpoints on landmarks: its entry, and one address
in each of its loops. Landmarks that are hit often retire, so that a loop inside costs nothing. Then
we search the stretch after the last hit of one that has not retired again, without the part before
it. In the end few instructions are left before the stop; we walk these one by one, a called
function as one.
"""

from __future__ import annotations

import time

from ..ptrace import WORD
from ..wire import NamedTuple, Reach, Steps
from .engine import (
    COUNT,
    OUT,
    POINT,
    RESUME,
    RETIRE,
    SIGNALLED,
    SP,
    STOP,
    WalkFailed,
    point_at,
    stack_level,
)
from .levels import REGISTER_NAMES, Level

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Literal

    from ..ptrace import UserRegisters
    from ..wire import Move, Moves, StackLevel
    from .code import Book
    from .engine import Engine, Point, Stepped
    from .states import Origin
    from .unwind import Rule

    Way = tuple[int, StackLevel]

PORTION = 4000  # passages after which we keep a state, on a way along a frequent address
LONG = 0.15  # seconds: after a longer way we keep the state at its end, not to repeat it
OFTEN = 32  # with so many hits we do not remember each


class End(NamedTuple):
    """The end of a search: the n-th time that the thread reaches an address at a level, counted
    from the mark where the search starts."""

    pc: int
    level: StackLevel | None
    hits: int


class Mark(NamedTuple):
    """A place on the way. seen: how often the thread has reached the end's address until there."""

    moves: Moves
    seen: int


class Segment(NamedTuple):
    """Instructions of a level, from a mark to the next segment, or to the search's end."""

    mark: Mark
    entries: list[Stepped]
    stop: End


class Search:
    """engine: walks the thread. origin: restores the earlier state. book: knows the code.

    late: searches start somewhere after the origin.
    """

    def __init__(self, engine: Engine, book: Book, origin: Origin, late: bool = False) -> None:
        self.engine = engine
        self.book = book
        self.origin = origin
        self.late = late

    # ---- going --------------------------------------------------------------------------------

    def go(self, mark: Mark) -> None:
        """Restore the origin and go to a mark."""
        began = time.monotonic()
        for move in mark.moves[self.origin.put_back_near(mark.moves) :]:
            self.move(move)
        if time.monotonic() - began > LONG:
            self.origin.keep_near(mark.moves)

    def go_for(self, mark: Mark, end: End) -> Point:
        """As `go`; returns the point of the search's end."""
        self.go(mark)
        point = point_at(end.pc, STOP, end.hits, end.level)
        point.hits = mark.seen
        return point

    def move(self, move: Move, counter: Point | None = None) -> None:
        if isinstance(move, Steps):
            self.engine.step(move.times)
            return
        points = [point_at(move.pc, STOP, move.times, move.level)]
        self.engine.run(points if counter is None else [*points, counter])

    def resumes(self) -> list[Point]:
        """Points to which a jump out of called functions may lead from the present place."""
        registers = self.engine.registers
        code = self.book.code(registers.rip)
        rule = self.book.rule(registers.rip)
        frame = None if rule is None else self.frame_by(rule, registers)
        if code is None or frame is None:
            return []
        found = []
        for address in code.after_calls():
            level = code.level(address, frame)
            if level is not None:
                found.append(point_at(address, RESUME, 0, level))
        return found

    def frame_by(self, rule: Rule, registers: UserRegisters) -> int | None:
        base, offset, indirect = rule
        at: int = (getattr(registers, REGISTER_NAMES[base]) + offset) & WORD
        if indirect:
            try:
                at = int.from_bytes(self.engine.memory.read(at, 8), "little")
            except OSError:
                return None
        return at

    # ---- the last place of a level ------------------------------------------------------------

    def closest(
        self,
        start: Mark,
        end: End,
        level: Level,
        extra: Iterable[Way] = (),
        addresses: Iterable[int] | None = None,
    ) -> Mark | None:
        """The last of some addresses of a function that the thread reached before the end, in this
        frame.

        Returns a mark, or None if there is none after `start`. extra: (pc, level) besides.
        addresses: by default its landmarks.
        """
        places = list(extra)
        if level.code is not None:
            for pc in level.code.landmarks() if addresses is None else addresses:
                where = level.code.level(pc, level.frame)
                if where is not None:
                    places.append((pc, where))
        best = None
        while True:
            stop = self.go_for(start, end)
            points = [point_at(pc, RETIRE, OFTEN, where) for pc, where in places]
            self.engine.run([*points, stop])
            retired = [each for each in points if each.retired]
            kept = [each for each in points if each.hits and not each.retired]
            last = max(kept, key=lambda each: each.last, default=None)
            if not retired:
                if last is None:
                    return best
                return self.mark_at(start, end, last, last.hits)
            latest = max(retired, key=lambda each: each.last)
            if last is not None and last.last > latest.last:
                start = best = self.mark_at(start, end, last, last.hits)
                continue
            # Only frequent ones: take the last hit of the rarest of them.
            start = best = self.last_passage(start, end, latest)

    def last_passage(self, start: Mark, end: End, place: Point) -> Mark:
        """The last passage of a point before the end; keeps states on the way."""
        stop, level = self.go_for(start, end), level_of(place)
        while True:
            portion = point_at(place.address, STOP, PORTION, level)
            if self.engine.run([portion, stop]) is not portion:
                break
            start = Mark((*start.moves, Reach(place.address, level, PORTION)), stop.hits)
            self.origin.keep_near(start.moves)
        hits = portion.hits
        if place.address == end.pc and self.is_at(level):
            hits -= 1  # the end itself
        return self.mark_at(start, end, portion, hits) if hits else start

    def is_at(self, level: StackLevel | None) -> bool:
        """Is the thread at a level?"""
        return level is None or self.frame_by(level[:3], self.engine.registers) == level[3]

    def mark_at(self, start: Mark, end: End, point: Point, count: int) -> Mark:
        """The place where the thread reaches a point for the count-th time after `start`."""
        stop = self.go_for(start, end)
        began = time.monotonic()
        level = level_of(point)
        here = point_at(point.address, STOP, count, level)
        reached = self.engine.run([here, stop])
        if reached is not here:
            raise WalkFailed("did not come back to the same state")
        mark = Mark((*start.moves, Reach(point.address, level, count)), stop.hits)
        if time.monotonic() - began > LONG:
            self.origin.keep_near(mark.moves)
        return mark

    def window(
        self, mark: Mark, end: End, frame: int | None, limit: int | None = None
    ) -> tuple[int, list[Stepped]]:
        """The instructions of a level from a mark to the end; the end itself is not one."""
        stop = self.go_for(mark, end)
        points = [*self.resumes(), stop]
        count = WORD if limit is None else limit
        event, point, entries = self.engine.flat(points, WORD if frame is None else frame, count)
        if event == POINT and point is not stop:
            raise WalkFailed("did not come back to the same state")
        return event, entries

    # ---- backward through a level ---------------------------------------------------------------

    def back_from(
        self, start: Mark, end: End, level: Level, fresh: bool
    ) -> Iterator[tuple[Segment, int] | None]:
        """A level's instructions before the end, the last first.

        Yields (segment, index), and None before it goes on to an earlier segment. Ends at the
        beginning of the level; raises BeforeOrigin if the level existed at the origin.  fresh: the
        level begins at `start`.
        """
        extra: tuple[Way, ...] = ()
        whole = fresh
        late = not fresh and self.late
        way = "" if fresh or late else self.return_at_origin(level)
        if way is None:
            whole = True  # the level exists at the start, and so do its instructions
        elif way:
            extra = (way,)
        stop, at_start = end, False
        while not at_start:
            mark = self.closest(start, stop, level, extra)
            if mark is None:
                if late and not self.is_in(start, level):
                    raise FromEarlier
                whole = whole or late
                if way:
                    raise BeforeOrigin(level)
                if not whole:
                    return
                mark, at_start = start, True
            event, entries = self.window(mark, stop, level.frame)
            if event == OUT and not fresh and not self.is_over(level, stop):
                return  # that was an earlier call of the function
            segment = Segment(mark, entries, stop)
            for index in range(len(entries) - 1, -1, -1):
                yield segment, index
            if at_start:
                break
            if level.code is not None and ends_at(mark, level.code.entry):
                return
            if extra and mark.moves == (Reach(*extra[0], 1),):
                raise BeforeOrigin(level)
            yield None
            stop = self.end_at(start, mark)
        if late:
            raise FromEarlier
        if not fresh:
            raise BeforeOrigin(level)

    def is_over(self, level: Level, end: End) -> bool:
        """Is the end the place to which the level has just returned?"""
        return end.level == stack_level(level.frame)

    def is_in(self, mark: Mark, level: Level) -> bool:
        """Is a mark in a level, as far as the mark shows?"""
        last = mark.moves[-1]
        if isinstance(last, Steps) or level.code is None or not level.code.contains(last.pc):
            return False
        return last.level in (level.code.level(last.pc, level.frame), self.stack_of(last.pc, level))

    def stack_of(self, pc: int, level: Level) -> StackLevel | None:
        """The stack pointer at an address in a frame, if it determines the frame."""
        rule = self.book.rule(pc)
        if rule is None or rule[0] != SP or rule[2]:
            return None
        return stack_level(level.frame - rule[1])

    def end_at(self, start: Mark, mark: Mark) -> End:
        """A mark as the end of a search from `start` on."""
        last = mark.moves[-1]
        assert isinstance(last, Reach)
        pc, level, _ = last
        self.go(start)
        counter = point_at(pc, COUNT, 0, level)
        for move in mark.moves[len(start.moves) :]:
            self.move(move, counter)
        # The end of a move is not counted on the way.
        own = sum(move[:2] == (pc, level) for move in mark.moves[len(start.moves) :])
        return End(pc, level, counter.hits + own)

    def place(self, segment: Segment, index: int) -> Moves:
        """An instruction of a segment as moves; to be reached at full speed, if possible."""
        mark, entries, _ = segment
        if index == 0:
            return mark.moves
        pc, sp, flags = entries[index]
        if flags & SIGNALLED:
            # A thread that goes on from there takes the signal first: it cannot stop there.
            return self.place(segment, index - 1)
        same = sum(
            each[:2] == (pc, sp) and not each[2] & SIGNALLED for each in entries[1 : index + 1]
        )
        return (*mark.moves, Reach(pc, stack_level(sp), same))

    # ---- the origin ---------------------------------------------------------------------------

    def return_at_origin(self, level: Level) -> Way | Literal[""] | None:
        """Where a frame that existed at the origin is returned to, as (pc, stack level); "" if it
        did not exist, None if it was the innermost one there."""
        inner = None
        for each in self.origin.levels():
            if each.frame == level.frame and each.code is level.code:
                return None if inner is None else (each.pc, stack_level(inner))
            inner = each.frame
        return ""

    def returned(self, level: Level) -> list[tuple[Level, End]]:
        """The levels of the functions that a level had called at the origin, directly or not, the
        oldest first. Each comes with the end of a search through all its actions until it
        returned."""
        found: list[tuple[Level, End]] = []
        newer = None
        for each in self.origin.levels():
            if newer is not None:
                found.append((newer, End(each.pc, stack_level(newer.frame), 1)))
            if each.frame == level.frame and each.code is level.code:
                return found[::-1]
            newer = each
        return []


class FromEarlier(Exception):
    """The search has to start earlier: its target is not after its start."""


class BeforeOrigin(Exception):
    """The target lies before the origin. kind: the kind of target there, if it is another."""

    def __init__(self, level: Level, kind: str = "") -> None:
        super().__init__()
        self.level = level
        self.kind = kind


def level_of(point: Point) -> StackLevel | None:
    if point.base < 0:
        return None
    return (point.base, point.offset, point.indirect, point.value)


def ends_at(mark: Mark, address: int) -> bool:
    """Does the last move to a mark lead to an address?"""
    last = mark.moves[-1]
    return isinstance(last, Reach) and last.pc == address
