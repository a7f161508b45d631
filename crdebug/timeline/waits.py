"""What each rank waits for, by the rules of MPI: from what it asks, and from all that is on record.

Pure. Where MPI leaves it open whether a call waits (a send may be buffered, the root of a broadcast
may leave at once), it does so for certain only for ranks that have stood in the call for long
(`still`). Where the record does not say enough, a rank is taken for one that can go on: no claim is
made of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from crdebug.native.matcher.library import Found
from crdebug.native.recorder.doing import Peer, Tag
from crdebug.timeline.asked import Asked, Way
from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.knots import Group, Option, Waits
from crdebug.timeline.matching import Matching
from crdebug.timeline.meetings import Meeting, Meetings
from crdebug.timeline.needs import NEVER
from crdebug.timeline.tables import BUFFERED, SYNCHRONOUS, UNKNOWN, UNMATCHED, mode_of

_STEPS = {"MPI_Win_start": 1, "MPI_Win_complete": 2, "MPI_Win_wait": 3}  # enum step
_OUTSIDE = ("MPI_Comm_accept", "MPI_Comm_connect", "MPI_Comm_join", "MPI_Comm_spawn")
_TOGETHER = ("_all", "_ordered", "_open", "_close", "_set_size", "_set_view", "_sync")
LOCKS = ("MPI_Win_lock", "MPI_Win_unlock")
NEVER_MET = Group((), every=False)


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message that was sent, or a receive; peer, tag: ANY of them where they are open."""

    rank: int
    peer: int
    comm: str
    tag: int
    tick: int
    bytes: int = 0


def fits(receive: Envelope, send: Envelope) -> bool:
    """Would this receive get this message?"""
    return (
        receive.rank == send.peer
        and receive.comm == send.comm
        and receive.peer in (send.rank, Peer.ANY)
        and receive.tag in (send.tag, Tag.ANY)
    )


class Scene:
    """The ranks of a job at one moment.

    asked: of those that are in an MPI call. still: of these, those that have been in it for long.
    matching: all that is on record, up to these calls.
    """

    def __init__(
        self,
        matching: Matching,
        asked: Mapping[int, Asked],
        size: int,
        still: Collection[int] = (),
        holders: Mapping[tuple[str, int], Mapping[int, bool]] | None = None,
        calls: Mapping[int, Sequence[Call]] | None = None,
    ) -> None:
        """holders: by window and target, the ranks that have locked it, where somebody waits, and
        whether that excludes others. opened: by rank, the ticks at which the requests were posted
        that it waits for; `waits` finds them. calls: of each rank, as far as they are known."""
        self.matching = matching
        self.asked = asked
        self.size = size
        self.still = still
        self.holders = holders or {}
        self.meetings = Meetings(matching, asked, size, calls or {})
        self.opened: dict[int, tuple[int, ...]] = {}
        self._members: dict[str, Group] = {}

    # ---- messages ------------------------------------------------------------------------------

    @cached_property
    def sent(self) -> Mapping[int, list[Envelope]]:
        """By receiver, the messages that no receive on record has got; those also that are being
        sent."""
        found: dict[int, list[Envelope]] = {}
        matching = self.matching
        for sender, receiver, row in matching.unmatched_sends():
            sends = matching.ranks[sender].sends
            if not sends.cancelled[row]:
                comm = matching.comm_name(sends.comm[row])
                one = sends.tag[row], sends.tick[row], sends.bytes[row]
                found.setdefault(receiver, []).append(Envelope(sender, receiver, comm, *one))
        for each in self.asked.values():
            for peer, tag, size in _sending(each):
                sending = Envelope(each.rank, peer, each.comm, tag, each.tick, size)
                found.setdefault(peer, []).append(sending)
        return found

    @cached_property
    def receives(self) -> Mapping[int, list[Envelope]]:
        """By rank, the receives that have no send on record; those also that wait in a call."""
        found: dict[int, list[Envelope]] = {}
        matching = self.matching
        for rank, state in matching.ranks.items():
            for row in state.open:
                found.setdefault(rank, []).append(self._receive(rank, row))
        for _, receiver, row in matching.unmatched_receives():
            found.setdefault(receiver, []).append(self._receive(receiver, row))
        for each in self.asked.values():
            if _receiving(each):
                one = Envelope(each.rank, each.peer, each.comm, each.tag, each.tick)
                found.setdefault(each.rank, []).append(one)
        return found

    def is_under_way(self, message: Envelope) -> bool:
        """Is its sender in the call that sends it?"""
        sender = self.asked.get(message.rank)
        return sender is not None and sender.tick == message.tick

    def wanted(self, message: Envelope) -> bool:
        """Has a receive asked for this message?"""
        return any(fits(receive, message) for receive in self.receives.get(message.peer, ()))

    def _receive(self, rank: int, row: int) -> Envelope:
        receives = self.matching.ranks[rank].receives
        peer, tag = receives.peer[row], receives.tag[row]
        return Envelope(
            rank,
            Peer.ANY if peer == UNKNOWN else peer,
            self.matching.comm_name(receives.comm[row]),
            Tag.ANY if tag == UNKNOWN else tag,
            receives.tick[row],
        )

    def _for_message(self, receive: Envelope) -> Iterator[Group]:
        """What a receive, or a probe, waits for."""
        if receive.peer == Peer.PROC_NULL or (receive.peer < 0 and receive.peer != Peer.ANY):
            return
        if not receive.comm or any(fits(receive, s) for s in self.sent.get(receive.rank, ())):
            return
        if receive.peer == Peer.ANY:
            yield self._any_of(receive.comm)
        else:
            yield Group((receive.peer,))

    def _any_of(self, comm: str) -> Group:
        if comm not in self._members:
            self._members[comm] = Group(self.meetings.members(comm), every=False)
        return self._members[comm]

    def _for_receive(self, send: Envelope, mode: int, rank: int) -> Iterator[Group]:
        """What a send of this rank waits for."""
        if mode == BUFFERED or send.peer < 0 or not send.comm:
            return
        if not any(fits(receive, send) for receive in self.receives.get(send.peer, ())):
            yield Group((send.peer,), certain=mode == SYNCHRONOUS or rank in self.still)

    # ---- calls ---------------------------------------------------------------------------------

    def waits(self) -> Waits:
        """What each rank that waits needs to go on; of those that may go on, nothing."""
        found = {}
        for rank, each in self.asked.items():
            options = self._options(each)
            if options and all(options):
                found[rank] = options
        return found

    def _options(self, each: Asked) -> tuple[Option, ...]:
        if each.way is Way.PASSES or (each.moves and each.way is Way.BLOCKS):
            return ()
        word = each.call.removeprefix("MPI_")
        options: tuple[Option, ...]
        if each.kind is Kind.COMPLETE:
            options = self._completes(each, word)
        else:
            options = (tuple(self._needs(each)),)
        if each.way is Way.POLLS or each.blind:  # it may do something else any time
            return tuple(tuple(_doubtful(group) for group in option) for option in options)
        return options

    def _completes(self, each: Asked, word: str) -> tuple[Option, ...]:
        single = [tuple(self._request(each, tick, slot)) for tick, slot in each.requests]
        ticks = (tick for (tick, _), groups in zip(each.requests, single, strict=True) if groups)
        self.opened[each.rank] = tuple(dict.fromkeys(ticks))
        if word.endswith(("any", "some")):
            return () if each.more else tuple(single)
        return (tuple(group for option in single for group in option),)

    def _needs(self, each: Asked) -> Iterator[Group]:
        if each.kind in (Kind.RECV, Kind.PROBE, Kind.SENDRECV):
            one = Envelope(each.rank, each.peer, each.comm, each.tag, each.tick)
            yield from self._for_message(one)
        for peer, tag, size in _sending(each):
            send = Envelope(each.rank, peer, each.comm, tag, each.tick, size)
            yield from self._for_receive(send, mode_of(each.call), each.rank)
        if each.call in _STEPS:
            yield from self._for_step(each)
        elif each.call in LOCKS:
            yield from self._for_lock(each)
        elif not each.call.startswith(_OUTSIDE):
            meeting = self.meetings.of(each)
            if meeting is not None:
                yield from self._for_others(meeting, each.rank)
            else:
                yield from self._for_alike(each)

    def _for_others(self, meeting: Meeting, rank: int) -> Iterator[Group]:
        """What a member waits for in a collective."""
        if meeting.differs:
            yield NEVER_MET
            return
        needed = meeting.needed_by(rank)
        if needed is not None:
            yield needed
        elif (
            meeting.missing
        ):  # it could leave, but it does not: it passes data on, or waits for all
            yield meeting.doubtful(certain=rank in self.still)

    def _for_step(self, each: Asked) -> Iterator[Group]:
        """What a call of post, start, complete and wait waits for."""
        found, step = Found(self.matching.library), _STEPS[each.call]
        history, comm = self.matching.memory.address, self.matching.number_of(each.comm)
        if not each.comm:
            return
        self.matching.library.history_unexposed(history, comm, each.rank, step, found.reference)
        ranks = tuple(found.numbers())
        if step == _STEPS["MPI_Win_start"]:
            posted = {each.rank, *ranks}
            ranks = tuple(rank for rank in each.group if rank not in posted)
        if step == _STEPS["MPI_Win_wait"]:
            in_it = {o.rank for o in self.asked.values() if o.call == "MPI_Win_complete"}
            ranks = tuple(rank for rank in ranks if rank not in in_it)
        else:
            in_it = {o.rank for o in self.asked.values() if o.call == "MPI_Win_post"}
            ranks = tuple(rank for rank in ranks if rank not in in_it)
        if ranks:
            certain = step == _STEPS["MPI_Win_wait"] or each.rank in self.still
            yield Group(ranks, certain=certain)

    def _for_lock(self, each: Asked) -> Iterator[Group]:
        """What a lock waits for; MPIs may lock only where it is unlocked."""
        held = self.holders.get((each.comm, each.peer), {})
        alone = each.tag == 1 if each.call == "MPI_Win_lock" else held.get(each.rank, False)
        others = [rank for rank, excludes in held.items() if excludes or alone]
        holders = tuple(rank for rank in others if rank != each.rank)
        if each.call == "MPI_Win_lock" and each.rank in held:  # MPI allows one lock of a target
            holders = (each.rank,)
        if holders:
            yield Group(holders, certain=each.rank in self.still)

    def _for_alike(self, each: Asked) -> Iterator[Group]:
        """Of a file, and of ranks whose record is not whole, nobody knows how often they have been
        together: the others may have to make the same call."""
        file = each.call.startswith("MPI_File_") and any(map(each.call.count, _TOGETHER))
        if not each.comm or not (file or (each.blind and each.kind is Kind.COLLECTIVE)):
            return
        there = {other.rank for other in self.asked.values() if other.call == each.call}
        others = tuple(rank for rank in self.meetings.members(each.comm) if rank not in there)
        if others:
            yield Group(others, certain=False)

    def _request(self, each: Asked, tick: int, slot: int) -> Iterator[Group]:
        """What a request waits for; nothing if it is complete, or of something else."""
        state = self.matching.ranks.get(each.rank)
        if state is None:
            return
        sends, receives = [*state.sends.at(tick)], [*state.receives.at(tick)]
        if slot and (sends or receives):
            one = state.started(tick, slot)
            sends = [one[1]] if one is not None and one[0] else []
            receives = [one[1]] if one is not None and not one[0] else []
        for row in receives:
            if (
                state.receives.done[row] == NEVER
                and state.receives.partner[row] == UNMATCHED
                and not state.receives.cancelled[row]
            ):
                yield from self._for_message(self._receive(each.rank, row))
        for row in sends:
            table = state.sends
            if table.done[row] == NEVER and table.partner[row] == UNMATCHED:
                if table.cancelled[row]:
                    continue
                comm = self.matching.comm_name(table.comm[row])
                send = Envelope(each.rank, table.peer[row], comm, table.tag[row], tick)
                yield from self._for_receive(send, table.mode[row], each.rank)
        taken = state.collected(tick, slot)
        if taken is not None and taken[0] >= 0:
            meeting = self.meetings.number(self.matching.comm_name(taken[0]), taken[1])
            if meeting is not None:
                yield from self._for_others(meeting, each.rank)


def _sending(each: Asked) -> Iterator[tuple[int, int, int]]:
    """Peer, tag and bytes of what a call sends."""
    if each.sends is not None:
        yield each.sends
    elif each.kind in (Kind.SEND, Kind.POST_SEND) and each.peer >= 0:
        yield each.peer, each.tag, each.bytes


def _receiving(each: Asked) -> bool:
    kinds = (Kind.RECV, Kind.SENDRECV, Kind.POST_RECV, Kind.POST_SENDRECV)
    return each.kind in kinds and (each.peer >= 0 or each.peer == Peer.ANY)


def _doubtful(group: Group) -> Group:
    return Group(group.ranks, group.every, certain=False)
