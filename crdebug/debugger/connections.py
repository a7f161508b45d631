"""What is on its way between the ranks of a job that stands: only the kernel has it.

A snapshot keeps what TCP has; when memory is put back, what is on its way then is dropped, and what
was on its way in the snapshot is sent again, by the sender's end. (DMTCP does so with all sockets
of a checkpoint: Ansel, Arya, Cooperman, "DMTCP: Transparent checkpointing for cluster computations
and the desktop", IPDPS 2009.) Datagrams on one host must be the same then and now: UCX's ranks wake
each other up with some that nobody ever reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused
from crdebug.base.ranks import RankSet
from crdebug.debugger.rank_host import Pids, RankHost, ThisHost
from crdebug.debugger.target import Target
from crdebug.node.in_flight import Channel

Ends = tuple[str, str]

# Seconds in which something comes further: a kernel may put off acknowledging for 0.2 s (Linux:
# TCP_DELACK_MAX), and what a network lost comes again.
_HERE, _OVER_A_NETWORK = 0.3, 1.0
_AT_MOST = 20.0  # seconds
_LOOK = 0.005
_MOST = 64 << 20  # bytes that are kept of what is on its way


@dataclass(frozen=True, slots=True)
class OnTheirWay:
    """streams: by the addresses of the receiver and of the sender.  datagrams: by rank and
    descriptor, those that wait there, and the size of those that others have not read."""

    streams: Mapping[Ends, bytes]
    datagrams: Mapping[tuple[int, int], tuple[tuple[bytes, ...], int]]

    @property
    def bytes(self) -> int:
        return sum(map(len, self.streams.values()))


@dataclass(frozen=True, slots=True)
class Place:
    """Ranks of one host. name: "" for this one."""

    name: str
    host: RankHost
    pids: Pids


def places_of(targets: Iterable[Target]) -> tuple[Place, ...]:
    """Where they are."""
    pids: dict[str, dict[int, int]] = {}
    hosts: dict[str, RankHost] = {}
    for each in targets:
        name = each.node.host if each.node is not None else ""
        if name not in hosts:
            hosts[name] = each.node.rank_host if each.node is not None else ThisHost()
        if each.pid is not None:
            pids.setdefault(name, {})[each.rank] = each.pid
    return tuple(Place(name, hosts[name], ranks) for name, ranks in pids.items())


@dataclass(frozen=True, slots=True)
class _End:
    """A rank's end of a connection."""

    place: Place
    rank: int
    channel: Channel

    @property
    def key(self) -> tuple[int, int]:
        return self.rank, self.channel.descriptor


class _Progress:
    """Over when the same is seen for so many seconds, or after very many."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._same, self._whole = Deadline(seconds), Deadline(_AT_MOST)
        self._seen: list[Channel] = []

    def is_over(self, ends: Iterable[_End]) -> bool:
        seen = [each.channel for each in ends]
        if seen != self._seen:
            self._seen, self._same = seen, Deadline(self._seconds)
        return not self._same.left or not self._whole.left


class Connections:
    """Those between the ranks at these places."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._found: dict[Ends, _End] = {}  # by the addresses here and there
        self._datagrams: list[_End] = []
        self._problems: tuple[str, ...] = ()

    async def _look(self) -> None:
        told = await asyncio.gather(*(each.host.channels(each.pids) for each in self._places))
        ends = [
            _End(place, rank, channel)
            for place, channels in zip(self._places, told, strict=True)
            for rank, some in channels.items()
            for channel in some
        ]
        self._found = _connected(ends)
        busy = [each for each in ends if each.channel.unread or each.channel.unsent]
        self._datagrams = [each for each in busy if each.channel.datagrams]
        self._problems = tuple(
            f"rank {each.rank}: {each.channel}"
            for each in busy
            if _key(each) not in self._found and not each.channel.datagrams
        )

    async def _settle(self) -> tuple[_End, ...]:
        """Look until everything that was sent is with its receiver, or nothing comes further.
        Returns the senders of the rest."""
        progress = self._progress()
        while True:
            await self._look()
            unsent = tuple(each for each in self._found.values() if each.channel.unsent)
            if not unsent:
                # Hosts are asked at once: a receiver perhaps before the sender's bytes came.
                await self._look()
                return ()
            if progress.is_over(self._found.values()):
                return unsent
            await asyncio.sleep(_LOOK)

    def _progress(self) -> _Progress:
        return _Progress(_OVER_A_NETWORK if len(self._places) > 1 else _HERE)

    async def obstacles(self, then: OnTheirWay) -> tuple[str, ...]:
        """Why the ranks cannot be taken back to when this was on its way, as lines."""
        await self._look()
        gone = [ends for ends in then.streams if ends[::-1] not in self._found]
        before, now = then.datagrams, await self._waiting_datagrams()
        others = [key for key in now.keys() | before if now.get(key) != before.get(key)]
        return (
            *self._problems,
            *(f"the connection from {sender} to {receiver} is closed" for receiver, sender in gone),
            *(
                f"rank {rank}: other datagrams wait in file descriptor {descriptor}"
                for rank, descriptor in sorted(others)
            ),
        )

    async def _waiting_datagrams(self) -> dict[tuple[int, int], tuple[tuple[bytes, ...], int]]:
        found = {}
        for place in self._places:
            ends = [each for each in self._datagrams if each.place is place]
            if ends:
                told = await place.host.datagrams(place.pids, [each.key for each in ends])
                for each, waiting in zip(ends, told, strict=True):
                    found[each.key] = waiting, each.channel.unsent
        return found

    async def kept(self) -> OnTheirWay:
        """What is on its way. Raises Refused if there is anything in another socket, or a pipe; or
        too much."""
        unsent = await self._settle()
        if self._problems:
            raise Refused(f"cannot keep a snapshot: {'; '.join(self._problems)}")
        if unsent:
            raise Refused(
                f"cannot keep a snapshot: {unsent[0].channel}, which no rank has received",
                ranks=RankSet.of([unsent[0].rank]),
            )
        waiting = {ends: each for ends, each in self._found.items() if each.channel.unread}
        if sum(each.channel.unread for each in waiting.values()) > _MOST:
            raise Refused("cannot keep a snapshot: too many bytes are on their way between ranks")
        found: dict[Ends, bytes] = {}
        for place, some in _by_place(waiting):
            wanted = {each.key: each.channel.unread for each in some.values()}
            data = await place.host.peek(place.pids, wanted)
            if [len(each) for each in data] != list(wanted.values()):
                raise Refused("cannot keep a snapshot: messages come in meanwhile")
            found |= dict(zip(some, data, strict=True))
        return OnTheirWay(found, await self._waiting_datagrams())

    async def clear(self) -> None:
        """Drop everything that is on its way. Raises Refused if that does not end."""
        progress, empty = self._progress(), False
        while True:
            await self._look()
            left = {ends: each for ends, each in self._found.items() if each.channel.unread}
            unsent = [each for each in self._found.values() if each.channel.unsent]
            if not left and not unsent:
                if empty:  # see _settle
                    return
                empty = True
                continue
            empty = False
            if progress.is_over(self._found.values()):
                some = RankSet.of(each.rank for each in (*left.values(), *unsent))
                raise Refused("messages on their way cannot be dropped", ranks=some)
            for place, ends in _by_place(left):
                await place.host.drop(place.pids, [each.key for each in ends.values()])
            if not left:
                await asyncio.sleep(_LOOK)

    async def send(self, again: OnTheirWay) -> None:
        """Send this again, in connections where nothing is on its way."""
        streams = again.streams
        if any(ends[::-1] not in self._found for ends in streams):
            raise Refused("a connection of that time does not exist any more")
        senders = {ends[::-1]: self._found[ends[::-1]] for ends in streams}
        for place, some in _by_place(senders):
            data = {each.key: streams[ends[::-1]] for ends, each in some.items()}
            await place.host.send(place.pids, data)


def _connected(ends: Sequence[_End]) -> dict[Ends, _End]:
    """Both ends of each connection between them, by the addresses here and there."""
    named: dict[Ends, list[_End]] = {}
    for each in ends:
        key = _key(each)
        if key is not None:
            named.setdefault(key, []).append(each)
    # What two hosts say they have is neither's.
    own = {
        key: some[0] for key, some in named.items() if len({each.place.name for each in some}) == 1
    }
    return {key: each for key, each in own.items() if key[::-1] in own}


def _key(end: _End) -> Ends | None:
    """The addresses of both ends, with the host's name if they are only that host's (127.0.0.1):
    another one may have the same."""
    ends = end.channel.ends
    if ends is None or not end.place.name:
        return ends
    here, there = (each.partition(" ")[0] for each in ends)
    if here == there or here.startswith("127."):
        return f"{ends[0]} of {end.place.name}", f"{ends[1]} of {end.place.name}"
    return ends


def _by_place(ends: Mapping[Ends, _End]) -> Iterator[tuple[Place, dict[Ends, _End]]]:
    found: dict[str, dict[Ends, _End]] = {}
    for each, end in ends.items():
        found.setdefault(end.place.name, {})[each] = end
    for some in found.values():
        yield next(iter(some.values())).place, some
