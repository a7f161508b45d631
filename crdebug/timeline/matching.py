"""Reading the calls of all ranks, and finding which receive got which send.

The k-th send from S to D on a communicator with a tag is received by the k-th receive that D posts
for S, that communicator and that tag: MPI's messages do not overtake (MPI 4.1, section 3.5). A wild
receive counts with the source and tag that it got; while it has not completed, these are not known,
and it takes its place among the others when they are. A probe looks without consuming, a matched
probe consumes: it takes the place of the receive, which MPI_Mrecv or MPI_Imrecv then completes.
A call of kind CANCEL takes back what the calls it `completes` had posted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence

from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.collectives import Succession, communicator_of
from crdebug.timeline.needs import NEVER, NeedList
from crdebug.timeline.tables import (
    UNKNOWN,
    UNMATCHED,
    RankCalls,
    Why,
)

_CHUNK = 4096  # calls of one rank before those of the next: what is not matched yet stays little
_MATCHED_PROBES = frozenset(("MPI_Mprobe", "MPI_Improbe"))
_MATCHED_RECEIVES = frozenset(("MPI_Mrecv", "MPI_Imrecv"))

_Key = tuple[int, int, int, int]  # sender, receiver, communicator, tag


class Matching:
    """The calls of all ranks, matched; grows by `extend`, which reads only what is new.

    eager: sends of more bytes may wait for their receive to be posted.  trees: ranks may have to
    pass on the data of collectives to others (see Succession.held_up).
    Not for use by several threads. Memory: some 150 bytes a message.
    """

    def __init__(self, *, eager: int = 1024, trees: bool = True) -> None:
        self.eager = eager
        self.trees = trees
        self.ranks: dict[int, RankCalls] = {}
        self.successions: dict[str, Succession] = {}
        self._comm_names: list[str] = []
        self._comm_ids: dict[str, int] = {}
        # what is not matched yet, oldest first
        self.sent: dict[_Key, deque[int]] = {}
        self.posted: dict[_Key, deque[int]] = {}
        # probes that said yes before their send was read: (number of receives before it, tick)
        self.looking: dict[_Key, list[tuple[int, int]]] = {}
        # (rank that must enter, rank that then may complete, why) → at which ticks
        self._needs: dict[tuple[int, int, Why], NeedList] = {}
        # the same by the rank that must enter, and by the one that waits
        self.awaited: dict[int, list[tuple[int, Why, NeedList]]] = {}
        self.waiting: dict[int, list[tuple[int, Why, NeedList]]] = {}
        self._stale: set[tuple[int, int]] = set()  # sender, receiver: matched anew

    # ---- reading -------------------------------------------------------------------------------

    def extend(
        self,
        logs: Mapping[int, Sequence[Call]],
        comms: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        """Read the calls that were not there the last time. logs: per rank all of its calls.

        Where what was read is not there any more (a log was cut: a branch), all is read anew.
        A posting call of a wild receive may be another object than the last time, with what it got.
        It should have that when all ranks are held, whether it was completed or not: a receive that
        was posted later cannot be placed otherwise.
        """
        if any(not state.continues(logs[rank]) for rank, state in self.ranks.items()):
            known = {name: each.members for name, each in self.successions.items()}
            self.__init__(eager=self.eager, trees=self.trees)  # type: ignore[misc]
            comms = {**known, **(comms or {})}
        for rank, calls in logs.items():
            self.ranks.setdefault(rank, RankCalls()).calls = calls
        for name, members in (comms or {}).items():
            self._succession(name).members = members
        left = True
        while left:
            left = False
            for rank in logs:
                state = self.ranks[rank]
                first, state.seen = state.seen, min(state.seen + _CHUNK, len(state.calls))
                for at in range(first, state.seen):
                    self._read(state, state.calls[at])
                left |= state.seen < len(state.calls)
        for rank in logs:
            for index in sorted(self.ranks[rank].open):
                self._learn(self.ranks[rank], rank, index)
        for needs in self._needs.values():
            needs.summarise()

    def _read(self, state: RankCalls, call: Call) -> None:
        kind = call.kind
        if kind is Kind.NOTHING or kind is Kind.TIME:
            return
        if kind is Kind.SEND:
            self._send(state, call, call.tick)
        elif kind is Kind.RECV:
            self._receive(state, call, call.tick)
        elif kind is Kind.POST_SEND:
            self._send(state, call, NEVER)
        elif kind is Kind.POST_RECV:
            self._receive(state, call, NEVER)
        elif kind is Kind.SENDRECV:
            self._send(state, call, call.tick)
            self._post(state, call, call.tick, call.source2, call.tag2)
        elif kind is Kind.PROBE:
            self._probe(state, call)
        elif kind is Kind.CANCEL:
            for tick in call.completes:
                self._cancel(state, call.rank, tick)
            return
        else:
            comm = communicator_of(call)
            if comm:
                self._collective(state, call, self._succession(comm))
        if call.completes:
            self._complete(state, call)

    def _send(self, state: RankCalls, call: Call, done: int) -> None:
        if call.peer is None or call.peer < 0:  # MPI_PROC_NULL
            state.blind |= call.name == "MPI_Startall"
            return
        rank, peer, tag = call.rank, call.peer, call.tag or 0
        slot = self.needs(rank, peer, Why.RECEIVED).add(call.tick, NEVER)
        comm = self._comm_id(call.comm)
        index = state.sends.add(call, done, peer, comm, tag, slot)
        key = (rank, peer, comm, tag)
        if self.looking and key in self.looking:
            self._seen_by_probes(key, call.tick)
        posted = self.posted.get(key)
        if posted:
            self._join(rank, index, peer, posted.popleft())
            if not posted:
                del self.posted[key]
        elif key in self.sent:
            self.sent[key].append(index)
        else:
            self.sent[key] = deque((index,))

    def _receive(self, state: RankCalls, call: Call, done: int) -> None:
        if call.name in _MATCHED_RECEIVES:
            index = state.grabbed_by(call)
            if index is not None:
                state.grabs[call.tick] = index
                if done != NEVER:
                    self._received(state, call.rank, index, done)
                return
        self._post(state, call, done, call.peer, call.tag)

    def _post(
        self, state: RankCalls, call: Call, done: int, source: int | None, tag: int | None
    ) -> int | None:
        comm = self._comm_id(call.comm)
        if source is None and not call.wild:  # from MPI_PROC_NULL
            return None
        known = source is not None and tag is not None
        peer = UNKNOWN if source is None else source
        if known and peer < 0:
            return None
        index = state.receives.add(call, done, peer, comm, UNKNOWN if tag is None else tag)
        if not known:
            state.open.add(index)
        elif tag is not None:
            self._queue(state, call.rank, index, peer, comm, tag)
        return index

    def _queue(
        self, state: RankCalls, rank: int, index: int, peer: int, comm: int, tag: int
    ) -> None:
        """A receive takes the next send of its channel, or waits for it."""
        key = (peer, rank, comm, tag)
        sent = self.sent.get(key)
        if sent:
            self._join(peer, sent.popleft(), rank, index)
            if not sent:
                del self.sent[key]
        elif key in self.posted:
            self.posted[key].append(index)
        else:
            self.posted[key] = deque((index,))

    def _probe(self, state: RankCalls, call: Call) -> None:
        if call.peer is None or call.tag is None or call.peer < 0:
            return
        rank, peer = call.rank, call.peer
        key = (peer, rank, self._comm_id(call.comm), call.tag)
        sent = self.sent.get(key)
        if sent:
            tick = self.ranks[peer].sends.tick[sent[0]]
            self.needs(peer, rank, Why.LOOKED).add(tick, call.tick)
        else:
            before = len(self.posted.get(key, ()))
            self.looking.setdefault(key, []).append((before, call.tick))
        if call.name in _MATCHED_PROBES:
            index = self._post(state, call, NEVER, peer, call.tag)
            if index is not None:
                state.grabbed.append(index)

    def _seen_by_probes(self, key: _Key, sent: int) -> None:
        """A send was read that probes, read before, may have seen."""
        peer, rank = key[:2]
        probes = self.looking.pop(key)
        for before, tick in probes:
            if before == 0:
                self.needs(peer, rank, Why.LOOKED).add(sent, tick)
        later = [(before - 1, tick) for before, tick in probes if before]
        if later:
            self.looking[key] = later

    def _collective(self, state: RankCalls, call: Call, succession: Succession) -> None:
        number = succession.enter(call)
        if number not in succession.posted:
            return
        state.collectives.setdefault(call.tick, []).append((succession, number))
        for other, ticks in succession.completed.items():
            if other != call.rank and number < len(ticks) and ticks[number] != NEVER:
                self._passed(succession, number, call.rank, other)

    def _passed(self, succession: Succession, number: int, entered: int, done: int) -> None:
        """`done` completed a posted collective that `entered` has posted."""
        certain = succession.needs(number, done, entered)
        if certain or self.trees:
            why = Why.LOOKED if certain else Why.TREE
            key, value = succession.entered[entered][number], succession.completed[done][number]
            self.needs(entered, done, why).add(key, value)

    # ---- completing ----------------------------------------------------------------------------

    def _complete(self, state: RankCalls, call: Call) -> None:
        rank, done = call.rank, call.tick
        sends, receives = state.sends, state.receives
        for tick in call.completes:
            send = next((i for i in sends.at(tick) if sends.done[i] == NEVER), None)
            if send is not None:
                sends.done[send] = done
                self._freed(rank, send)
                continue
            index = state.grabs.get(tick)
            if index is None:
                index = next((i for i in receives.at(tick) if receives.done[i] == NEVER), None)
            if index is not None:
                self._received(state, rank, index, done)
                continue
            posted = state.collectives.get(tick)
            if posted:
                succession, number = posted.pop(0)
                if not posted:
                    del state.collectives[tick]
                succession.completed[rank][number] = done
                for other, ticks in succession.entered.items():
                    if other != rank and number < len(ticks):
                        self._passed(succession, number, other, rank)

    def _received(self, state: RankCalls, rank: int, index: int, done: int) -> None:
        receives = state.receives
        receives.done[index] = done
        if receives.peer[index] == UNKNOWN or receives.tag[index] == UNKNOWN:
            self._learn(state, rank, index)
        partner = receives.partner[index]
        if partner != UNMATCHED:
            sender = receives.peer[index]
            slot = self.ranks[sender].sends.slot[partner]
            self.needs(sender, rank, Why.RECEIVED).put(slot, done)

    def _learn(self, state: RankCalls, rank: int, index: int) -> None:
        """A wild receive has completed: the call that posted it says by now what it got."""
        receives, tick = state.receives, state.receives.tick[index]
        at = bisect_left(state.calls, tick, key=lambda call: call.tick)
        asked = [call for call in state.calls[at : at + 1] if call.tick == tick]
        if not asked or asked[0].peer is None or asked[0].tag is None:
            return  # it was cancelled, or the record has no more to tell
        peer, tag = asked[0].peer, asked[0].tag
        state.open.discard(index)
        receives.peer[index], receives.tag[index] = peer, tag
        self._renumber(rank, index, peer, receives.comm[index], tag)

    def _cancel(self, state: RankCalls, rank: int, tick: int) -> None:
        sends, receives = state.sends, state.receives
        for index in sends.at(tick):
            sends.cancelled.add(index)
            peer, comm, tag = sends.peer[index], sends.comm[index], sends.tag[index]
            sent, partner = self.sent.get((rank, peer, comm, tag)), sends.partner[index]
            if sent and index in sent:
                sent.remove(index)
            elif partner != UNMATCHED:
                sends.partner[index] = UNMATCHED
                self.needs(rank, peer, Why.RECEIVED).put(sends.slot[index], NEVER)
                self.ranks[peer].receives.partner[partner] = UNMATCHED
                self._renumber(peer, partner, rank, comm, tag)
        for index in receives.at(tick):
            receives.cancelled.add(index)
            state.open.discard(index)
            if receives.peer[index] != UNKNOWN and receives.tag[index] != UNKNOWN:
                peer, comm, tag = receives.peer[index], receives.comm[index], receives.tag[index]
                self._renumber(rank, index, peer, comm, tag)

    # ---- matching ------------------------------------------------------------------------------

    def _join(self, sender: int, send: int, receiver: int, receive: int) -> None:
        sends, receives = self.ranks[sender].sends, self.ranks[receiver].receives
        sends.partner[send] = receive
        receives.partner[receive] = send
        if receives.done[receive] != NEVER:
            received = self.needs(sender, receiver, Why.RECEIVED)
            received.put(sends.slot[send], receives.done[receive])
        if sends.done[send] != NEVER:
            self._freed(sender, send)

    def _freed(self, sender: int, send: int) -> None:
        """A send has completed: with its receive, it may be a need."""
        sends = self.ranks[sender].sends
        partner, receiver = sends.partner[send], sends.peer[send]
        if partner == UNMATCHED or receiver == sender:
            return
        why = sends.waits(send, self.eager)
        if why is None:
            return
        posted = self.ranks[receiver].receives.tick[partner]
        self.needs(receiver, sender, why).add(posted, sends.done[send])

    def _renumber(self, receiver: int, first: int, sender: int, comm: int, tag: int) -> None:
        """Match a channel anew from the receive of index `first` on: it came late, or is gone."""
        key = (sender, receiver, comm, tag)
        receives = self.ranks[receiver].receives
        affected = [
            index
            for index in range(first, len(receives.tick))
            if receives.tag[index] == tag
            and receives.peer[index] == sender
            and receives.comm[index] == comm
        ]
        matched = [receives.partner[i] for i in affected if receives.partner[i] != UNMATCHED]
        sent = deque(sorted((*matched, *self.sent.pop(key, ()))))
        posted = deque(i for i in self.posted.pop(key, ()) if i < first)
        posted.extend(i for i in affected if i not in receives.cancelled)
        for index in affected:
            receives.partner[index] = UNMATCHED
        if sent:
            sends = self.ranks[sender].sends
            received = self.needs(sender, receiver, Why.RECEIVED)
            for send in sent:
                sends.partner[send] = UNMATCHED
                received.put(sends.slot[send], NEVER)
        if matched:  # what was noted of them may be wrong
            self._stale.add((sender, receiver))
        while sent and posted:
            self._join(sender, sent.popleft(), receiver, posted.popleft())
        if sent:
            self.sent[key] = sent
        if posted:
            self.posted[key] = posted

    def settle(self) -> None:
        """Bring the needs up to date; to be called before they are asked."""
        for sender, receiver in self._stale:
            for why in (Why.SYNCHRONOUS, Why.RENDEZVOUS):
                self.needs(receiver, sender, why).clear()
            sends = self.ranks[sender].sends
            for send, peer in enumerate(sends.peer):
                if peer == receiver and sends.done[send] != NEVER:
                    self._freed(sender, send)
        self._stale.clear()

    # ---- names ---------------------------------------------------------------------------------

    def needs(self, entered: int, waiter: int, why: Why) -> NeedList:
        """At which ticks `waiter` completes what needs `entered` to have entered a call."""
        found = self._needs.get((entered, waiter, why))
        if found is None:
            found = self._needs[entered, waiter, why] = NeedList()
            self.awaited.setdefault(entered, []).append((waiter, why, found))
            self.waiting.setdefault(waiter, []).append((entered, why, found))
        return found

    def received(self) -> list[tuple[int, int, NeedList]]:
        """Sender, receiver, and at which ticks the sends were received."""
        return [
            (sender, receiver, found)
            for (sender, receiver, why), found in self._needs.items()
            if why is Why.RECEIVED
        ]

    def comm_name(self, number: int) -> str:
        return self._comm_names[number]

    def _comm_id(self, name: str) -> int:
        found = self._comm_ids.get(name)
        if found is None:
            found = self._comm_ids[name] = len(self._comm_names)
            self._comm_names.append(name)
        return found

    def _succession(self, comm: str) -> Succession:
        found = self.successions.get(comm)
        if found is None:
            found = self.successions[comm] = Succession(comm)
        return found
