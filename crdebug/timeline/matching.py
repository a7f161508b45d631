"""Which receive got which send: the tables of a history, which native/matcher/history.c fills.

That file has MPI's rules. It reads some ten million calls a second, and takes some 65 bytes a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crdebug.native.matcher.library import (
    BEGIN,
    END,
    NO_COMM,
    NONE,
    SELF,
    CallStruct,
    Found,
    Library,
    Memory,
    NeedsStruct,
    RankStruct,
    SuccessionStruct,
    calls,
    ints,
    longs,
    pointed,
)
from crdebug.timeline.calls import Call, Kind, entered_last
from crdebug.timeline.collectives import Succession
from crdebug.timeline.functions import KIND_NUMBERS, NUMBERS, table
from crdebug.timeline.needs import NeedList
from crdebug.timeline.tables import RankCalls, Why

_WHYS = tuple(Why)
_SENT, _POSTED, _LOOKING = range(3)
_NAMES = {BEGIN: "(init)", END: "(finalize)", SELF: "self"}

Row = tuple[int, int, int]  # sender, receiver, and a row of a table


class Matching:
    """The calls of all ranks, matched; grows as logs are read into it, or lists, by `extend`.

    eager: sends of more bytes may wait for their receive to be posted.  trees: ranks may have to
    pass on the data of collectives to others (see Succession.held_up).
    Not for use by several threads.
    """

    def __init__(self, library: Library, *, eager: int = 1024, trees: bool = True) -> None:
        self.library = library
        self.eager = eager
        self.trees = trees
        history = library.history_new(eager, trees, table())
        self.memory = Memory(library, history, library.history_free)
        self.ranks: dict[int, RankCalls] = {}
        self.successions: dict[str, Succession] = {}
        self._names: list[str] = [_NAMES[number] for number in range(len(_NAMES))]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._read: dict[int, list[Call]] = {}  # what `extend` was given
        self._needs_known = 0
        self._starts_known = 0
        self._received: list[tuple[int, int, NeedList]] = []
        # needs by the rank that must enter, and by the one that waits
        self.awaited: dict[int, list[tuple[int, Why, NeedList]]] = {}
        self.waiting: dict[int, list[tuple[int, Why, NeedList]]] = {}

    # ---- reading -------------------------------------------------------------------------------

    def define(self, comm: str, members: Sequence[int]) -> int:
        """The number of a communicator whose members are known."""
        number = self.number_of(comm)
        self.library.history_members(self.memory.address, number, ints(members), len(members))
        return number

    def number_of(self, comm: str) -> int:
        """The number of a communicator in the tables."""
        if not comm:
            return NO_COMM
        if comm not in self._numbers:
            self._numbers[comm] = len(self._names)
            self._names.append(comm)
        return self._numbers[comm]

    def comm_name(self, number: int) -> str:
        if number < NO_COMM:  # of what persistent requests of several ranks are together
            number = self.library.history_comm(self.memory.address, number)
        return "" if number == NO_COMM else self._names[number]

    def grown(self, ranks: Sequence[int]) -> None:
        """Calls of these ranks have been read: find out what open receives have got meanwhile."""
        history = self.memory.address
        for rank in ranks:
            if rank not in self.ranks:
                struct = RankStruct.from_address(self.library.history_rank(history, rank))
                self.ranks[rank] = RankCalls(struct, self.memory)
            self.library.history_learn(history, rank)
        successions = self.library.history_successions(history).contents
        for number, struct in enumerate(pointed(successions, SuccessionStruct)):
            name = self._names[number] if struct is not None else ""
            if struct is not None and name not in self.successions:
                self.successions[name] = Succession(name, struct, self.memory)
        starts = self.library.history_starts(history).contents
        for number, struct in enumerate(pointed(starts, SuccessionStruct, self._starts_known)):
            name = f"(starts {self._starts_known + number})"
            comm = self._names[struct.comm]
            self.successions[name] = Succession(comm, struct, self.memory)
        self._starts_known = starts.count
        self._note_needs()

    def _note_needs(self) -> None:
        needs = self.library.history_needs(self.memory.address).contents
        for struct in pointed(needs, NeedsStruct, self._needs_known):
            self._needs_known += 1
            entered, waiter, why = struct.entered, struct.waiter, _WHYS[struct.why]
            found = NeedList(struct, self.memory)
            self.awaited.setdefault(entered, []).append((waiter, why, found))
            self.waiting.setdefault(waiter, []).append((entered, why, found))
            if why is Why.RECEIVED:
                self._received.append((entered, waiter, found))

    def extend(
        self,
        logs: Mapping[int, Sequence[Call]],
        comms: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        """Read new calls. logs: all calls of each rank.

        If a log no longer begins with the calls that were read (it was cut: a branch), everything
        is read anew. The call that posted a wild receive may be another object than the last time,
        with the message that it got. It should have that when all ranks are held, completed or not:
        otherwise receives that were posted later cannot be placed.
        """
        if not all(map(_continues, self._read.values(), (logs[rank] for rank in self._read))):
            by_name = self.successions.items()
            known = {name: each.members for name, each in by_name if name == each.comm}
            self.__init__(self.library, eager=self.eager, trees=self.trees)  # type: ignore[misc]
            comms = {**known, **(comms or {})}
        for name, members in (comms or {}).items():
            self.define(name, members)
        for rank, log in logs.items():
            self._learn(rank, log)
        for rank, log in logs.items():
            new = [self._struct(call) for call in log[len(self._read.get(rank, ())) :]]
            self.library.history_read(self.memory.address, calls(len(new), new), len(new))
            self._read[rank] = [*log]
        self.grown([*logs])
        for rank, log in logs.items():
            self._learn(rank, log)
        self._note_needs()

    def _struct(self, call: Call) -> CallStruct:
        none = [NONE if each is None else each for each in (call.peer, call.tag)]
        none += [NONE if each is None else each for each in (call.source2, call.tag2)]
        done = longs(call.completes or call.group)
        numbers = NUMBERS[call.name], KIND_NUMBERS[call.kind], 0, self.number_of(call.comm)
        times = call.tick, call.repeats, call.bytes, -1
        return CallStruct(
            *times, done, len(done), call.rank, *numbers, *none, call.wild, call.opens
        )

    def _learn(self, rank: int, log: Sequence[Call]) -> None:
        """By now, the call that posted an open receive may say what that got."""
        state = self.ranks.get(rank)
        for row in state.open if state is not None else ():
            tick = state.receives.tick[row]  # type: ignore[union-attr]
            call = entered_last(log, tick)
            if call is None:
                continue
            exchange = call.kind is Kind.POST_SENDRECV
            peer, tag = (call.source2, call.tag2) if exchange else (call.peer, call.tag)
            if call.tick == tick and peer is not None and tag is not None:
                history = self.memory.address
                self.library.history_learned(history, rank, row, peer, tag)

    # ---- for those who ask ---------------------------------------------------------------------

    def settle(self) -> None:
        """Bring the needs up to date; to be called before they are asked."""
        self.library.history_settle(self.memory.address)
        self._note_needs()

    def received(self) -> list[tuple[int, int, NeedList]]:
        """Sender, receiver, and at which ticks the sends were received."""
        return self._received

    def unmatched_sends(self) -> list[Row]:
        """Sends without a receive."""
        return self._waiting(_SENT)

    def unmatched_receives(self) -> list[Row]:
        """Receives without a send, if it is known what they wait for."""
        return self._waiting(_POSTED)

    def unmatched_probes(self) -> list[Row]:
        """Probes that said yes, without a send on record; with their ticks."""
        return self._waiting(_LOOKING)

    def unposted(self, absent: int) -> list[tuple[int, int, Why]]:
        """Completions of window calls (ranks and ticks) that need calls of a rank, of post and
        complete, which are not on record."""
        found = Found(self.library)
        self.library.history_unposted(self.memory.address, absent, found.reference)
        numbers = found.numbers()
        whys = [_WHYS[number] for number in numbers[2::3]]
        return [*zip(numbers[::3], numbers[1::3], whys, strict=True)]

    def _waiting(self, what: int) -> list[Row]:
        found = Found(self.library)
        self.library.history_waiting(self.memory.address, what, found.reference)
        numbers = found.numbers(3)
        return [*zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)]


def _continues(known: Sequence[Call], log: Sequence[Call]) -> bool:
    """Does the log begin with the calls that were read?"""
    return len(log) >= len(known) and all(map(_same, known, log))


def _same(one: Call, other: Call) -> bool:
    """Are they one call, read twice? A wild receive may have got its message meanwhile."""
    if one is other:
        return True
    if (one.name, one.tick, one.completes) != (other.name, other.tick, other.completes):
        return False
    return one.peer == other.peer or (one.wild > 0 and None in (one.peer, one.tag))
