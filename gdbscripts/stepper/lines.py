"""Reverse execution: the instruction to which each command goes back.

A line begins at an instruction if an entry of the line table begins there, marked as a statement,
and if the previously executed instruction of the same frame belongs to another line, or to the code
that sets up the function's frame. We do not stop in that code. At the origin nobody knows which
instruction was executed before; the code may show that every one that can be is of another line.

reverse-step goes to the last beginning of a line in any function that has lines and was called from
one that has lines; reverse-next only in this frame and its callers. Inlined functions count as
called ones.
"""

from __future__ import annotations

import contextlib

from ..wire import Reach, Steps
from .engine import CALLED, COUNT, OUT, STEPS, WalkFailed, point_at, stack_level
from .levels import Level
from .search import BeforeOrigin, End, FromEarlier, Mark, Search, Segment, ends_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..wire import Moves
    from .code import Book, Line
    from .engine import Engine
    from .states import Origin

    Item = tuple[Segment, int]


class Reverse(Search):
    """end: the thread's stop. levels: its frames, the newest first. outer: newer frames are left
    out, which do not matter to the search."""

    def __init__(
        self,
        engine: Engine,
        book: Book,
        origin: Origin,
        end: End,
        levels: list[Level],
        outer: bool = False,
        start: Moves = (),
    ) -> None:
        super().__init__(engine, book, origin, bool(start))
        self.outer = outer
        self.start = Mark(start, 0)
        self.end = end
        self.levels = levels

    # ---- by instructions ------------------------------------------------------------------------

    def stepi(self) -> Moves:
        return self.instruction(True)

    def nexti(self) -> Moves:
        return self.instruction(False)

    def instruction(self, enter: bool) -> Moves:
        for level in self.levels:
            if level.is_signal:
                continue
            item, whole = None, self.is_whole(level)
            if not self.at_entry(level):
                try:
                    item = self.last_of(self.end, level)
                except BeforeOrigin:
                    item = self.last_returned(level) if enter and whole else None
                    if item is None:
                        raise
            if item is None and whole:
                item = self.last_since_call(level)
            if item is None:
                continue
            segment, index = item
            if enter and whole and segment.entries[index][2] & CALLED:
                return self.last_inside(segment, index)
            return self.place(segment, index)
        raise WalkFailed("there is nothing before")

    def last_returned(self, level: Level) -> Item | None:
        """The last instruction of a function that a level had called at the origin, and that has
        returned; None if there is none."""
        found = self.returned(level)
        if not found:
            return None
        inner, end = found[0]
        return self.last_of(end, inner)

    def last_of(self, end: End, level: Level) -> Item | None:
        """The last instruction of a level before an end; None if there is none."""
        items = self.back_from(self.start, end, level, False)
        return next((item for item in items if item is not None), None)

    def at_entry(self, level: Level) -> bool:
        """Is the thread at the entry of this level's function?"""
        code = level.code
        if code is None or not level.pc == code.entry == self.end.pc:
            return False
        return self.end.level == stack_level(level.frame - 8)

    def last_since_call(self, level: Level) -> Item | None:
        """The last instruction of a level without landmarks, such as a stub of the dynamic linker;
        None if the thread is at the first."""
        try:
            start, inner = self.call_of(level)
        except (WalkFailed, BeforeOrigin):
            return None
        if inner.pc == self.end.pc and self.end.level == stack_level(level.frame - 8):
            return None
        stop = self.end._replace(hits=self.end.hits - self.hits_until(start))
        return next(self.back_from(start, stop, inner, True), None)

    def head_of(self, level: Level) -> tuple[Mark, Level, End] | None:
        """The code at a level that jumped to its function: another function or a stub of the
        dynamic linker. The result is like that of `called`; None if the function was called."""
        try:
            start, inner = self.call_of(level)
        except (WalkFailed, BeforeOrigin):
            return None
        assert level.code is not None
        if inner.pc == level.code.entry:
            return None
        return start, inner, End(level.code.entry, stack_level(level.frame - 8), 1)

    def call_of(self, level: Level) -> tuple[Mark, Level]:
        """The start of a level's call, and the called function."""
        outer = (e for e in self.levels if e.frame > level.frame and not e.is_signal)
        for each in outer:
            for item in self.back_from(self.start, self.end, each, False):
                if item is None:
                    continue
                segment, index = item
                entry = segment.entries[index]
                if not entry[2] & CALLED or entry[1] != level.frame:
                    break
                return self.called(segment, index)[:2]
            break
        raise WalkFailed("it is unknown how this function was called")

    def hits_until(self, mark: Mark) -> int:
        """How often the thread reaches the end's address before a mark."""
        self.go(self.start)
        counter = point_at(self.end.pc, COUNT, 0, self.end.level)
        for move in mark.moves[len(self.start.moves) :]:
            self.move(move, counter)
        return counter.hits

    def is_whole(self, level: Level) -> bool:
        """Is the thread in this level itself, not in a function that it called?"""
        return level is self.levels[0] and not self.outer

    def last_inside(self, segment: Segment, index: int) -> Moves:
        start, inner, stop = self.called(segment, index)
        for item in self.back_from(start, stop, inner, True):
            if item is None:
                continue
            within, last = item
            if within.entries[last][2] & CALLED:
                return self.last_inside(within, last)
            return self.place(within, last)
        raise WalkFailed("there is nothing before")

    def called(self, segment: Segment, index: int) -> tuple[Mark, Level, End]:
        """The level that an instruction called: its beginning, itself, and its end."""
        entries = segment.entries
        sp = entries[index][1]
        start = Mark((*self.place(segment, index), Steps(1)), 0)
        self.go(start)
        pc = self.engine.registers.rip
        if index + 1 < len(entries):
            after = End(entries[index + 1][0], stack_level(entries[index + 1][1]), 1)
        else:
            after = segment.stop._replace(hits=1)
        return start, Level(sp, pc, self.book.code(pc), (), "", False), after

    # ---- by lines ---------------------------------------------------------------------------

    def step(self) -> Moves:
        return self.line(True)

    def next(self) -> Moves:
        return self.line(False)

    def line(self, enter: bool) -> Moves:
        for level in self.levels:
            if level.is_signal or not self.has_lines(level):
                continue
            found = None
            if not self.at_entry(level):
                whole = self.is_whole(level)
                try:
                    found = self.last_line(self.start, self.end, level, enter, whole, False)
                except BeforeOrigin:
                    found = self.line_returned(level) if enter else None
                    if found is None:
                        raise
            if found is None:
                head = self.head_of(level)
                if head is not None:
                    found = self.last_line(head[0], head[2], head[1], enter, True, True)
            if found is not None:
                return found
        raise BeforeOrigin(self.levels[-1])

    def line_returned(self, level: Level) -> Moves | None:
        """The last beginning of a line in a function that a level had called at the origin, and
        that has returned; None if there is none."""
        for inner, end in self.returned(level):
            if inner.is_signal or not self.has_lines(inner):
                break  # a step does not enter functions that this one called
            with contextlib.suppress(BeforeOrigin):
                found = self.last_line(self.start, end, inner, True, True, False)
                if found is not None:
                    return found
        return None

    def has_lines(self, level: Level) -> bool:
        return level.code is not None and level.code.has_lines()

    def last_line(
        self, start: Mark, end: End, level: Level, enter: bool, whole: bool, fresh: bool
    ) -> Moves | None:
        """The last beginning of a line of a level before the end; None if there is none.

        whole: the last instruction before the end has completed; otherwise it is a call, and the
        thread is inside.
        """
        chain, jumped = level.expanded, False
        seen: set[Line | None] = set()
        unfinished = None  # the call that contains the thread
        waiting = None  # a beginning, if the instruction before it belongs to another line
        held = (
            None  # the same of a call that contains the thread, while the last other line is sought
        )
        source = self.back_from(start, end, level, fresh)
        while True:
            try:
                item = next(source)
            except StopIteration:
                waiting = waiting or held
                return waiting[0] if waiting else None
            except BeforeOrigin:
                waiting = waiting or held
                if waiting and self.line_at_origin(level) not in (None, waiting[1]):
                    return waiting[0]
                if waiting and self.begins_at_origin(waiting[0], level):
                    return waiting[0]
                raise
            if item is None:
                if len(seen) != 1 or jumped:
                    continue
                # It is all one line, perhaps for long: search for the last other line.
                jumped = True
                if unfinished is not None:
                    end = self.end_at(start, Mark(unfinished, 0))
                (only,) = seen
                source = self.back_from_other_line(start, end, level, fresh, only, enter)
                held, waiting = waiting if unfinished is not None else None, None
                continue
            segment, index = item
            pc, _, flags = segment.entries[index]
            line, here = self.book.line(pc), self.book.chain(pc)
            if held is not None:  # was the call all that the thread has done of its line?
                waiting = held if line != held[1] else None
                held = None
            if waiting is not None and (enter or here == waiting[2][: len(here)]):
                if line != waiting[1] or self.sets_up(pc):
                    return waiting[0]
                waiting = None
            if not whole:
                unfinished = self.place(segment, index)
            if enter and flags & CALLED and whole:
                found = self.line_inside(segment, index)
                if found is not None:
                    return found
            whole = True
            if not enter:
                if here != chain[: len(here)]:
                    continue
                chain = here
            seen.add(line)
            if waiting is None and self.book.starts_line(pc) and not self.sets_up(pc):
                waiting = (self.place(segment, index), line, here)

    def line_at_origin(self, level: Level) -> Line | None:
        """The line of the call in which a frame was at the origin."""
        way = self.return_at_origin(level)
        return self.book.line(way[0] - 1) if way else None

    def begins_at_origin(self, moves: Moves, level: Level) -> bool:
        """Is this beginning of a line the origin itself, and is it one, whatever was before?"""
        if moves or level.code is None or self.return_at_origin(level) is not None:
            return False
        return level.code.comes_from_other_lines(self.origin.levels()[0].pc)

    def sets_up(self, pc: int) -> bool:
        code = self.book.code(pc)
        return code is not None and code.entry <= pc < code.body()

    def line_inside(self, segment: Segment, index: int) -> Moves | None:
        """The last beginning of a line in the function that an instruction called; None if there is
        none."""
        target = self.book.call_target(segment.entries[index][0])
        if target is not None and not self.book.leads_to_lines(target):
            return None
        start, inner, stop = self.called(segment, index)
        if not self.has_lines(inner):
            start, behind = self.through_stub(start, inner)
            if behind is None:
                return None
            inner = behind
        return self.last_line(start, stop, inner, True, True, True)

    def through_stub(self, start: Mark, inner: Level) -> tuple[Mark, Level | None]:
        """Go on from a stub of the dynamic linker to its function."""
        for count in range(1, 5):
            self.engine.step()
            registers = self.engine.registers
            if registers.rsp != inner.frame - 8:
                break
            code = self.book.code(registers.rip)
            if code is not None and code.has_lines():
                moves = (*start.moves[:-1], Steps(1 + count))
                return Mark(moves, 0), inner._replace(pc=registers.rip, code=code)
        return start, None

    def back_from_other_line(
        self, start: Mark, end: End, level: Level, fresh: bool, line: Line | None, enter: bool
    ) -> Iterator[Item | None]:
        """As `back_from`, but starting where the thread last came to the line."""
        code = level.code
        assert code is not None
        addresses = {
            each
            for each in self.book.line_starts(code) | code.joints()
            if code.contains(each) and self.book.line(each) != line
        }
        addresses.add(code.entry)
        if enter:
            addresses |= {
                each
                for each in code.calls()
                if self.book.leads_to_lines(self.book.call_target(each))
            }
        late = not fresh and self.late
        way = "" if fresh or late else self.return_at_origin(level)
        mark = self.closest(start, end, level, (way,) if way else (), addresses)
        if mark is None and late:
            raise FromEarlier
        if mark is None:
            mark = start
        count = 64
        while True:
            event, entries = self.window(mark, end, level.frame, count)
            if event == OUT and not fresh and not self.is_over(level, end):
                return
            first = next(
                (i for i, each in enumerate(entries) if i and self.book.line(each[0]) == line),
                None,
            )
            if first is not None or event != STEPS:
                break
            count *= 16
        entries = entries[: (len(entries) if first is None else first + 1)]
        segment = Segment(mark, entries, end)
        for index in range(len(entries) - 1, -1, -1):
            yield segment, index
        if not mark.moves or mark == start:
            if fresh:
                return
            raise BeforeOrigin(level)
        if ends_at(mark, code.entry):
            return
        if way and mark.moves == (Reach(*way, 1),):
            raise BeforeOrigin(level)
        yield from self.back_from(start, self.end_at(start, mark), level, fresh)

    # ---- to the caller ----------------------------------------------------------------------

    def finish(self) -> Moves:
        """Back to the instruction that called the function of the first level."""
        level = self.levels[0]
        while level.expanded:
            place = self.expanded_start(level)
            if place is not None:
                return place
            # The thread is at its beginning: GDB shows a stop there as one before the call.
            level = level._replace(expanded=level.expanded[:-1])
        outer = next((each for each in self.levels[1:] if not each.is_signal), None)
        if outer is None:
            raise WalkFailed("the outermost function has no caller")
        try:
            item = self.last_of(self.end, outer)
        except BeforeOrigin:  # in the caller it is the last instruction there
            raise BeforeOrigin(outer, "nexti") from None
        if item is None:
            raise WalkFailed("there is nothing before")
        return self.place(*item)

    def expanded_start(self, level: Level) -> Moves | None:
        """Back to the beginning of an inlined function."""
        place, wanted = None, level.expanded
        try:
            for item in self.back_from(self.start, self.end, level, False):
                if item is None:
                    continue
                segment, index = item
                here = self.book.chain(segment.entries[index][0])
                if here[: len(wanted)] != wanted:
                    break
                place = (segment, index)
        except BeforeOrigin:
            way = self.return_at_origin(level)
            if place is None or not way or self.book.chain(way[0] - 1)[: len(wanted)] == wanted:
                raise
        return None if place is None else self.place(*place)
