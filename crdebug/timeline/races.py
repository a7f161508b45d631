"""Receives and probes that could have got another message than they did. Pure.

A wild receive is in a race if another rank can have sent it a message that fits while the receiver
has not got the one that it got: if the receiver is held in the call that completes the receive, and
everybody else goes on as far as that lets them (`cuts.latest_cut`), the other message has been
sent. It must not have been taken by a receive that was posted earlier. Messages of one sender do
not overtake each other (MPI 4.1, 3.5), so only the first that fits of each other sender counts.

That a call completes only after others have come, the rules of cuts assume rather too often; so a
race that is named is one, and some are not found. Netzer, Brennan and Damodaran-Kamal 1996,
"Debugging Race Conditions in Message-Passing Programs", define them so.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from crdebug.base.errors import BadInput, Refused
from crdebug.base.instant import BEGINNING, Cut, Instant
from crdebug.timeline.calls import Call, Calls, Kind, entered_last
from crdebug.timeline.cuts import latest_cut, past
from crdebug.timeline.matching import Matching
from crdebug.timeline.needs import NEVER
from crdebug.timeline.tables import ANY_SOURCE, ANY_TAG, SYNCHRONOUS, UNMATCHED

# Of receives at one source line so many are looked at, until one is in a race; and of all, so many
# times as the square of the number of ranks goes into this.
_TRIES = 50
_WORK = 1_000_000
_SENDS = 1_000_000  # of each rank, the first ones
_ROWS = 1 << 16  # that are looked at together

_Way = tuple[int, int, int | None]  # receiver, communicator, tag; None: any


@dataclass(frozen=True, slots=True)
class Race:
    """A choice that could have been another one.

    call: the receive or the probe.  source, sent: the rank whose message it got, and the tick of
    the send.  others: the same of messages that it could have got.
    """

    call: Call
    source: int
    sent: int
    others: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    """row: receives from this one on have not been posted.  done: where it is made.  known: the
    tick at which its sender knows of it, by a synchronous send, or NEVER."""

    call: Call
    comm: int
    source: int
    sent: int
    tag: int | None  # None for any
    row: int
    done: int
    known: int = NEVER


def races(matching: Matching, calls: Mapping[int, Calls]) -> Iterator[Race]:
    """At most one for each source line of each rank, in the order of ranks; of many ranks, not of
    all.

    calls: of all ranks, from the beginning.
    """
    matching.settle()
    sent = _Sent(matching)
    ends = [each[-1].returned if each else BEGINNING for _, each in sorted(calls.items())]
    left = max(_WORK // max(len(ends), 1) ** 2, 2)
    for rank in sorted(matching.ranks):
        tries: Counter[int] = Counter()
        for choice in _choices(matching, rank, calls[rank], sent, tries):
            site = choice.call.site
            tries[site] += 1
            fitting = _fitting(matching, rank, choice, sent)
            if not fitting:
                continue
            if left == 0:
                return
            left -= 1
            others = tuple(_others(matching, rank, choice, tuple(ends), fitting))
            if others:
                tries[site] = _TRIES
                yield Race(choice.call, choice.source, choice.sent, others)


class _Sent:
    """The messages of each rank by where they go, looked up when they are asked for."""

    def __init__(self, matching: Matching) -> None:
        self._matching = matching
        self._by_sender: dict[int, dict[_Way, list[tuple[int, int]]]] = {}

    def first(self, sender: int, receiver: int, comm: int, tag: int | None, row: int) -> int | None:
        """The tick of the first that fits, and that no receive before this row has taken."""
        sends = self._of(sender).get((receiver, comm, tag), [])
        # Of equal envelopes, what was sent first is received first.
        least = 0 if tag is None else bisect_left(sends, row, key=lambda each: each[0])
        return next((tick for partner, tick in sends[least:] if partner >= row), None)

    def _of(self, sender: int) -> dict[_Way, list[tuple[int, int]]]:
        if sender not in self._by_sender:
            found: defaultdict[_Way, list[tuple[int, int]]] = defaultdict(list)
            sends = self._matching.ranks[sender].sends
            those = slice(_SENDS)
            for at, (receiver, cancelled) in enumerate(
                zip(sends.peer[those], sends.cancelled[those], strict=True)
            ):
                partner = sends.partner[at]
                each = NEVER if partner == UNMATCHED else partner, sends.tick[at]
                for tag in () if cancelled else (sends.tag[at], None):
                    found[receiver, sends.comm[at], tag].append(each)
            self._by_sender[sender] = dict(found)
        return self._by_sender[sender]


def _choices(
    matching: Matching, rank: int, calls: Calls, sent: _Sent, tries: Mapping[int, int]
) -> Iterator[_Choice]:
    """What a rank has got of messages that anyone could have sent.

    tries: how many of a site were looked at, which grows meanwhile.
    """
    receives = matching.ranks[rank].receives
    for row, site in _wild(matching, rank, calls):
        if tries[site] >= _TRIES:
            continue
        call = entered_last(calls, receives.tick[row])
        assert call is not None, "its site is on record"
        source, partner = receives.peer[row], receives.partner[row]
        sends = matching.ranks[source].sends
        tag = None if receives.wild[row] & ANY_TAG else receives.tag[row]
        known = sends.done[partner] if sends.mode[partner] == SYNCHRONOUS else NEVER
        done = receives.done[row]
        yield _Choice(call, receives.comm[row], source, sends.tick[partner], tag, row, done, known)
    for call in calls.of(Kind.PROBE):
        peer = call.peer
        if call.kind is not Kind.PROBE or tries[call.site] >= _TRIES:
            continue
        if call.wild & ANY_SOURCE and peer in matching.ranks:
            comm, row = matching.number_of(call.comm), receives.tick.first_at(call.tick)
            tag = None if call.wild & ANY_TAG else call.tag
            seen = sent.first(peer, rank, comm, call.tag, row)
            if seen is not None:
                yield _Choice(call, comm, peer, seen, tag, row, call.tick)


def _wild(matching: Matching, rank: int, calls: Calls) -> Iterator[tuple[int, int]]:
    """The rows and sites of receives from anyone that have got a message."""
    receives = matching.ranks[rank].receives
    for first in range(0, len(receives.wild), _ROWS):
        rows = slice(first, first + _ROWS)
        columns = receives.wild, receives.partner, receives.done, receives.cancelled
        each = enumerate(zip(*(column[rows] for column in columns), strict=True), first)
        found = [
            row
            for row, (wild, partner, done, cancelled) in each
            if wild & ANY_SOURCE and partner != UNMATCHED and done != NEVER and not cancelled
        ]
        for row, head in zip(
            found, calls.heads([receives.tick[row] for row in found]), strict=True
        ):
            if head is not None:
                yield row, head.site


def _fitting(matching: Matching, rank: int, choice: _Choice, sent: _Sent) -> list[tuple[int, int]]:
    """Messages that it would have taken had they come first: their senders, and the ticks."""
    found = []
    for sender in matching.ranks:
        if sender not in (choice.source, rank):
            tick = sent.first(sender, rank, choice.comm, choice.tag, choice.row)
            found += [(sender, tick)] if tick is not None else []
    return found


def _others(
    matching: Matching, rank: int, choice: _Choice, ends: Cut, fitting: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Those of them that can have come first."""
    try:
        cut = latest_cut(matching, rank, Instant.within(choice.done), ends)
    except (BadInput, Refused):
        return
    for sender, tick in fitting:
        if tick <= cut[sender].entered and not _follows(matching, choice, sender, tick, len(ends)):
            yield sender, tick


def _follows(matching: Matching, choice: _Choice, sender: int, tick: int, size: int) -> bool:
    """Has another been sent only when the sender of the first knew that it was received?"""
    if choice.known == NEVER:
        return False
    least = past(matching, sender, Instant.before(tick), size=size)
    return least[choice.source].tick >= choice.known
