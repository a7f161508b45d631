"""Reverse execution of the selected thread, between a snapshot and the present stop.

Sourced last, into the namespace of all of crdebug's scripts (walk_search.py says what a place is).

-crdebug-walk-library PATH
    Where the compiled part is (native/walk.c); before anything else.
-crdebug-here ORIGIN
    {place, signalled}: where the thread stands, as one move from the snapshot ORIGIN. It stays
    there; but where it was about to get a signal (signalled=1) it is taken to the handler.
-crdebug-go ORIGIN PLACE [PC SP]
    Go to a place; an error if it is another one than it was.
-crdebug-reverse ORIGIN stepi|nexti|step|next|finish
    {place, pc, sp}: go back. {before, frame, function}: what is looked for lies before the origin;
    the thread stands where it stood. before: what to look for there; frame: what it is about.
Options of all three, before what is listed: --write ADDRESS=BYTES, to be written after each time
the snapshot is put back; --seconds LIMIT; --frame FRAME: not what the newest frame did, but this
one. Numbers are hexadecimal.

GDB shows the thread where it is then. That it stands there GDB learns by -crdebug-arrive only
(keep_mi.py), before the thread is to run on; here it would take the answer's place.
"""

import contextlib
import time

import gdb
from __main__ import (
    COMPARE,
    PORTION,
    PTRACE_SINGLESTEP,
    STOP,
    BeforeOrigin,
    Book,
    End,
    Engine,
    FromEarlier,
    Gone,
    Mark,
    Memory,
    Reverse,
    Search,
    Snapshot,
    WalkFailed,
    areas,
    extended_state,
    find,
    flush,
    held_signal,
    is_caught,
    is_own_memory,
    leave_call,
    levels_of,
    load_walk,
    point_at,
    process,
    ptrace,
    reach,
    read_content,
    refresh_watchpoints,
    registers_of,
    rseq_ranges,
    set_registers,
    stack_level,
    stop_signal,
    swap_watching,
    tids,
    wait,
    was_interrupted,
    write_content,
)

SECONDS = 30.0
KINDS = ("stepi", "nexti", "step", "next", "finish")
GENERAL = ("rip", "rsp", "rbp", "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r12")
MOST_NEAR = 6
CLOSE = 32  # so many passages of the present address before the present stop, a search starts
walking = {}  # "library"; "origin": the one that `near` belongs to; "landed": where a command led
near = {}  # states on ways from the origin: moves -> snapshot


# ---- places as text -----------------------------------------------------------------------------


def place_text(moves):
    return ";".join(move_text(move) for move in moves) or "-"


def move_text(move):
    if move[0] != "hit":
        return f"{move[0]}:{move[1]}"
    _, pc, level, count = move
    where = "-" if level is None else ",".join(f"{value:x}" for value in level)
    return f"hit:{pc:x}:{where}:{count}"


def place_of(text):
    moves = []
    for part in text.split(";") if text != "-" else ():
        kind, *rest = part.split(":")
        if kind == "hit":
            pc, where, count = rest
            level = None if where == "-" else tuple(int(value, 16) for value in where.split(","))
            moves.append((kind, int(pc, 16), level, int(count)))
        elif kind in ("flat", "stepi"):
            moves.append((kind, int(rest[0])))
        else:
            raise gdb.GdbError(f"'{text}' is no place")
    return tuple(moves)


# ---- states -------------------------------------------------------------------------------------


class Origin:
    """A snapshot to walk from."""

    def __init__(self, name, writes):
        self.snapshot = find(name)
        if walking.get("origin") != (self.snapshot, writes):
            near.clear()
            walking["origin"] = (self.snapshot, writes)
        self.writes = writes
        self.known = None

    def put_back_near(self, moves):
        """Put the nearest state back that is on the way; returns how many of the moves are done."""
        for count in range(len(moves), 0, -1):
            snapshot = near.get(moves[:count])
            if snapshot is not None:
                self.restore(snapshot)
                return count
        self.put_back()
        return 0

    def keep_near(self, moves):
        """Keep the present state, which these moves lead to."""
        flush()
        near.pop(moves, None)
        with contextlib.suppress(gdb.GdbError):
            near[moves] = Snapshot([])
        while len(near) > MOST_NEAR:
            del near[next(iter(near))]

    def restore(self, snapshot):
        problems, now = snapshot.problems()
        if problems:
            raise WalkFailed("cannot be put back: " + "; ".join(problems))
        snapshot.put_back(now)

    def put_back(self):
        self.restore(self.snapshot)
        if self.writes:
            with Memory(process()[0]) as memory:
                for address, data in self.writes:
                    memory.write(address, data)

    def levels(self):
        return self.known

    def learn(self, book):
        """To be called when it has just been put back."""
        flush()
        self.known = levels_of(book)


def take_signal(tid):
    """Let a thread take the signal that it is about to get, if somebody sent it: to its handler.
    Returns whether it did."""
    told = stop_signal(tid)
    if told.code > 0 or not held_signal(tid) or not is_caught(tid, told.number):
        return False
    gdb.execute("queue-signal 0", to_string=True)
    ptrace(PTRACE_SINGLESTEP, tid, told.number)
    wait(tid)
    return True


class Here:
    """The state of the thread, and of all memory, at the present stop."""

    def __init__(self, tid):
        self.tid = tid
        pid, _ = process()
        # A catchpoint's stop: no walk ends in the middle of a call, or where a signal is to come.
        leave_call(tid, make=True)
        self.signalled = take_signal(tid)
        flush()
        self.registers = registers_of(tid)
        before = {"rax": self.registers.rax, "orig_rax": self.registers.orig_rax}
        self.inside = was_interrupted(before)
        self.xstate = extended_state(tid)
        self.areas = [each for each in areas(pid) if is_own_memory(each)]
        self.excepted = [*rseq_ranges(tids()), *self.dead_stack()]
        with Memory(pid) as memory:
            self.content, _ = read_content(memory, self.areas, {})
        self.snapshot = None  # not at a signal that is about to be delivered
        with contextlib.suppress(gdb.GdbError):
            self.snapshot = Snapshot([])

    def dead_stack(self):
        """What lies behind the end of the stack, red zone included, is nobody's any more: remains
        of signal frames, for one, which the processor lays out as it likes."""
        sp = self.registers.rsp
        return [(area.start, sp - 128) for area in self.areas if area.start <= sp < area.end]

    @property
    def pc(self):
        return self.registers.rip

    def same(self, memory):
        """Is the thread's state this one again, and the memory's? Registers have been compared."""
        if extended_state(self.tid) != self.xstate:
            return False
        now, changed = read_content(memory, self.areas, self.content.chunks)
        if not changed and now.chunks.keys() == self.content.chunks.keys():
            return True
        for start in now.chunks.keys() | self.content.chunks.keys():
            one, other = now.chunks.get(start), self.content.chunks.get(start)
            if one is other:
                continue
            size = len(one or other)
            if self.blanked(start, one or bytes(size)) != self.blanked(start, other or bytes(size)):
                return False
        return True

    def blanked(self, start, data):
        """A piece of memory without what does not count."""
        found = bytearray(data)
        for low, high in self.excepted:
            low, high = max(low - start, 0), min(high - start, len(found))
            if low < high:
                found[low:high] = bytes(high - low)
        return found


class Walk:
    """One command: the options, the engine, and the way back if it fails."""

    def __init__(self, arguments):
        self.seconds, self.frame, writes = SECONDS, None, []
        rest = list(arguments)
        while rest and rest[0].startswith("--"):
            option, value = rest.pop(0), rest.pop(0)
            if option == "--seconds":
                self.seconds = float(value)
            elif option == "--frame":
                self.frame = int(value, 16)
            elif option == "--write":
                address, data = value.split("=")
                writes.append((int(address, 16), bytes.fromhex(data)))
            else:
                raise gdb.GdbError(f"there is no option {option}")
        if "library" not in walking:
            raise gdb.GdbError("the library for walking is not loaded")
        self.rest = rest[1:]
        self.origin = Origin(rest[0], writes)
        self.pid, _ = process()
        self.tid = gdb.selected_thread().ptid[1]

    def __enter__(self):
        self.memory = Memory(self.pid)
        self.engine = Engine(walking["library"], self.memory, self.tid, self.seconds)
        self.book = Book(self.memory)
        self.watching = swap_watching(self.tid, 0)
        return self

    def __exit__(self, *problem):
        with contextlib.suppress(Gone):
            swap_watching(self.tid, self.watching)
        self.memory.__exit__()

    def find_here(self, here):
        """The present stop as an end of searches; returns it and the moves where they start.

        On a long way states are kept now and then, and the last is where searches start.
        """
        start, registers = walking.pop("landed", ((), None))
        if registers != general(here.registers) or start not in near:
            start = ()
        self.origin.put_back()
        self.origin.learn(self.book)
        if not start and registers_of(self.tid).rip == here.pc and self.is_here(here):
            raise WalkFailed("this is where the snapshot was made")
        self.origin.put_back_near(start)
        level = stack_level(here.registers.rsp)
        self.engine.wanted = here.registers
        passed = 0  # since `start`
        while True:
            compare = point_at(here.pc, COMPARE, 0, level)
            portion = point_at(here.pc, STOP, PORTION - passed, level)
            passed += self.engine.run([compare, portion]).hits
            if self.is_here(here):
                return self.nearer(End(here.pc, level, passed), start)
            if passed == PORTION:
                start, passed = (*start, reach(here.pc, level, passed)), 0
                self.origin.keep_near(start)

    def nearer(self, end, start):
        """The end of a search, which is to start shortly before it."""
        if end.hits > 4 * CLOSE:
            ahead = (*start, reach(end.pc, end.level, end.hits - CLOSE))
            Search(self.engine, self.book, self.origin).go(search_mark(ahead))
            self.origin.keep_near(ahead)
            if ahead in near:
                return end._replace(hits=CLOSE), ahead
        return end, start

    def is_here(self, here):
        return general(registers_of(self.tid)) == general(here.registers) and here.same(self.memory)

    def land(self):
        """Have GDB show the thread where it stands."""
        flush()
        refresh_watchpoints()

    def reverse(self, kind):
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
                raise WalkFailed(f"{error}; the thread is elsewhere now") from None
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
            self.engine.deadline = time.monotonic() + self.seconds
            self.go(search, self.back)
            raise

    def find(self, search, kind):
        moves = getattr(search, kind)()
        self.go(search, moves)
        return self.told(moves)

    def go(self, search, moves):
        search.go(search_mark(moves))
        self.land()
        # What the next search for this place may start with; not the place itself, which is kept
        # too if the way was long: nobody who starts there comes to it.
        before = range(len(moves) - 1, 0, -1)
        kept = next((moves[:n] for n in before if moves[:n] in near), None)
        if kept is not None:
            walking["landed"] = kept, general(registers_of(self.tid))

    def told(self, moves):
        now = registers_of(self.tid)
        return {"place": place_text(moves), "pc": f"{now.rip:x}", "sp": f"{now.rsp:x}"}


def place_moves(end):
    return (("hit", end.pc, end.level, end.hits),)


def search_mark(moves):
    return Mark(tuple(moves), 0)


def general(registers):
    """What tells a thread's stops from each other."""
    return tuple(getattr(registers, name) for name in GENERAL)


class WalkLibrary(gdb.MICommand):
    def invoke(self, arguments):
        walking["library"] = load_walk(arguments[0])


class WhereHere(gdb.MICommand):
    def invoke(self, arguments):
        with Walk(arguments) as walk:
            here = Here(walk.tid)
            walking.pop("landed", None)
            end, start = walk.find_here(here)  # the moves are of the same point, all of them
            walk.land()
            hits = end.hits + sum(count for _, _, _, count in start)
            told = walk.told(place_moves(end._replace(hits=hits)))
            return {**told, "signalled": str(int(here.signalled))}


class Go(gdb.MICommand):
    def invoke(self, arguments):
        with Walk(arguments) as walk:
            text, *expected = walk.rest
            search = Reverse(walk.engine, walk.book, walk.origin, None, [])
            walk.go(search, place_of(text))
            told = walk.told(place_of(text))
            if expected and [told["pc"], told["sp"]] != expected:
                raise gdb.GdbError("did not come back to the same state")
            return told


class ReverseCommand(gdb.MICommand):
    def invoke(self, arguments):
        with Walk(arguments) as walk:
            (kind,) = walk.rest
            if kind not in KINDS:
                raise gdb.GdbError(f"there is no reverse-{kind}")
            return walk.reverse(kind)


WalkLibrary("-crdebug-walk-library")
WhereHere("-crdebug-here")
Go("-crdebug-go")
ReverseCommand("-crdebug-reverse")

assert (Snapshot, set_registers, write_content) is not None
