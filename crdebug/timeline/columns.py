"""Where calls stand on a page: columns that follow causality, not each rank's own count of calls.

Ticks of two ranks tell nothing about each other: one may poll a million times while another one
makes a call. A call's column is after that of the rank's call before it, and after those of the
sends that it received (Lamport's clock); the calls of a collective operation have the same column,
and so have the halves of an exchange.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.collectives import is_collective

Index = tuple[int, int]  # rank, and which of its calls, from 0


@dataclass(slots=True, eq=False)
class _Meeting:
    """Calls for one column. here: the ranks that have come to theirs."""

    members: list[Index]
    here: set[int] = field(default_factory=set)


def columns(
    calls: Sequence[Sequence[Call]],
    messages: Iterable[tuple[int, int, int, int]],
    together: Iterable[Sequence[tuple[int, int]]],
) -> list[list[int]]:
    """A column, from 1, for each call.

    calls: of each rank, in order.  messages: sender, tick of the send, receiver, tick of the call
    that completed the receive.  together: rank and tick of those in one collective operation.
    Entries that name a call not among `calls` do not count.
    """
    return _Placing(calls, messages, together).columns


class _Placing:
    def __init__(
        self,
        calls: Sequence[Sequence[Call]],
        messages: Iterable[tuple[int, int, int, int]],
        together: Iterable[Sequence[tuple[int, int]]],
    ) -> None:
        self._calls = calls
        self.columns: list[list[int]] = [[] for _ in calls]
        self._needs: dict[Index, list[Index]] = {}
        self._meetings: dict[Index, _Meeting] = {}
        self._waiters: list[set[int]] = [set() for _ in calls]
        self._queue = deque(range(len(calls)))
        places = [{call.tick: at for at, call in enumerate(each)} for each in calls]
        for sender, sent, receiver, received in messages:
            at, source = places[receiver].get(received), places[sender].get(sent)
            if at is not None and source is not None and sender != receiver:
                self._needs.setdefault((receiver, at), []).append((sender, source))
        for meeting in together:
            members = [(rank, places[rank].get(tick, -1)) for rank, tick in meeting]
            members = [each for each in members if each[1] >= 0 and self._waits_for_all(each)]
            if len(members) > 1:
                self._meetings.update(dict.fromkeys(members, _Meeting(members)))
        self._place_all()

    def _waits_for_all(self, index: Index) -> bool:
        call = self._calls[index[0]][index[1]]
        return is_collective(call) and call.kind is not Kind.POST_COLLECTIVE

    def _place_all(self) -> None:
        while True:
            while self._queue:
                rank = self._queue.popleft()
                while self._advance(rank):
                    pass
            left = [rank for rank, each in enumerate(self._calls) if self._at(rank) < len(each)]
            if not left:
                return
            # MPI does not always wait as these rules assume: a rank went on without another.
            rank = min(left, key=self._least)
            meeting = self._meetings.pop((rank, self._at(rank)), None)
            if meeting is not None:
                for member in meeting.members:
                    self._meetings.pop(member, None)
                self._queue.extend(meeting.here)
            self._put(rank, self._least(rank))
            self._queue.append(rank)

    def _at(self, rank: int) -> int:
        return len(self.columns[rank])

    def _next(self, rank: int) -> int:
        own = self.columns[rank]
        return own[-1] + 1 if own else 1

    def _put(self, rank: int, column: int) -> None:
        self.columns[rank].append(column)
        self._queue.extend(self._waiters[rank])
        self._waiters[rank].clear()

    def _least(self, rank: int) -> int:
        """Where the rank's next call stands at the earliest, as far as its sends are known."""
        at = self._at(rank)
        after = 0 if self._calls[rank][at].kind is Kind.SENDRECV else 1
        column = self._next(rank)
        for sender, source in self._needs.get((rank, at), ()):
            if source < self._at(sender):
                column = max(column, self.columns[sender][source] + after)
            elif source == self._at(sender):
                column = max(column, self._next(sender) + after)
        return column

    def _advance(self, rank: int) -> bool:
        """Place the rank's next call, if all that it waits for is placed."""
        at = self._at(rank)
        if at == len(self._calls[rank]):
            return False
        exchange = self._calls[rank][at].kind is Kind.SENDRECV
        for sender, source in self._needs.get((rank, at), ()):
            reached = self._at(sender) + exchange  # for an exchange, that it has begun is enough
            if source >= reached:
                self._waiters[sender].add(rank)
                return False
        meeting = self._meetings.get((rank, at))
        if meeting is None:
            self._put(rank, self._least(rank))
            return True
        meeting.here.add(rank)
        if len(meeting.here) < len(meeting.members):
            return False
        column = max(self._least(member) for member, _ in meeting.members)
        for member, _ in meeting.members:
            self._put(member, column)
            self._queue.append(member)
        return True
