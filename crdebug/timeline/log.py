"""The log of one rank's MPI calls, as the layer inside the rank writes it (native/clock.h)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import FileIO
from pathlib import Path

from crdebug.native import clock, mpi_calls
from crdebug.native.clock import LogHeader, Refused
from crdebug.timeline.calls import Call, Kind

_MORE, _WILD_SOURCE, _WILD_TAG, _DONE, _NO, _ODD, _PACKED = (1 << n for n in range(9, 16))
_BIAS = 4
_TAG_MOST, _PEER_MOST, _SIZE_MOST = (1 << 28) - 1, (1 << 20) - 1, (1 << 32) - 1
_OTHER_JOB = (1 << 32) - 1
_LONGEST_NAME = 40


def read_log(path: Path) -> RankLog:
    """A rank's log as it is now; `refresh` reads on. Raises NotAvailable, or OSError."""
    log = RankLog(path)
    log.refresh()
    return log


def name_of(members: Sequence[int], earlier: int, world: int) -> str:
    """What a communicator is called on all its members: their world ranks, in order ("0-3", "2,0"),
    and from the second of the same members on its number ("0-3#2").

    earlier: how many of the same members there were before. The first of all ranks is "world".
    """
    if tuple(members) == tuple(range(world)):
        text = "world"
    else:
        text = ",".join(_ranges(members))
        if len(text) > _LONGEST_NAME:
            packed = struct.pack(f"<{len(members)}i", *members)
            text = f"{members[0]}+{len(members) - 1}:{_digest(packed):08x}"
    return text if earlier == 0 else f"{text}#{earlier + 1}"


def _ranges(members: Sequence[int]) -> Iterator[str]:
    first = last = None
    for member in [*members, None]:
        if last is not None and member is not None and member == last + 1:
            last = member
            continue
        if first is not None:
            yield f"{first}" if first == last else f"{first}-{last}"
        first = last = member


def _digest(data: bytes) -> int:
    value = 2166136261
    for byte in data:
        value = (value ^ byte) * 16777619 % 2**32
    return value


class RankLog:
    """One rank's calls, in order, with what they completed.

    A log that has been cut (a branch) since it was read is read anew by `refresh`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self._header = LogHeader(-1, 0, 0, 0, 0, 0, Refused.NO, 0, 0)
        self._calls: list[Call] = []
        self._comms: dict[str, tuple[int, ...]] = {}
        self._names: dict[int, str] = {}  # by their numbers in the log
        self._peers: dict[int, tuple[int, ...]] = {}  # whom ranks in it are: the remote group
        self._seen: dict[tuple[int, ...], int] = {}
        self._posted: list[int] = []  # ticks of the postings
        self._open: dict[int, int] = {}  # wild postings: index of the call, and record
        self._tick = 0
        self._place = 0
        self._run: int | None = None  # the last record is a run that may grow
        self._sites: tuple[int, ...] = ()

    @property
    def rank(self) -> int:
        return self._header.rank

    @property
    def world(self) -> int:
        """Ranks in the job."""
        return self._header.world

    @property
    def calls(self) -> Sequence[Call]:
        """In order; of equal calls that said no, one with their number."""
        return self._calls

    @property
    def comms(self) -> Mapping[str, tuple[int, ...]]:
        """World ranks of the members, in order; of an intercommunicator, of both groups."""
        return self._comms

    @property
    def tail_now(self) -> int:
        """The clock when all these calls are done."""
        return self._header.tail_now

    @property
    def refused(self) -> Refused:
        """Why it does not go on, if it does not."""
        return self._header.refused

    @property
    def records(self) -> int:
        """How many records of 16 bytes there are."""
        return self._header.tail

    def refresh(self) -> None:
        """Read on to the tail."""
        with self.path.open("rb", buffering=0) as file:
            header = _up_to_the_cut(file, LogHeader.parse(file.read(clock.LOG_SIZE)))
            if header.tail < self._place or header.cuts != self._header.cuts:
                self._forget()
            elif self._run is not None:  # it may have grown
                self._place -= 1
                self._tick -= self._calls.pop().repeats
            self._header = header
            file.seek(clock.SITES_OFFSET)
            self._sites = struct.unpack(f"<{header.sites}Q", file.read(8 * header.sites))
            file.seek(clock.LOG_HEADER + 16 * self._place)
            data = file.read(16 * (header.tail - self._place))
            self._run = None
            self._read(data)
            for number, place in list(self._open.items()):
                file.seek(clock.LOG_HEADER + 16 * place)
                self._settle(number, *clock.RECORD.unpack(file.read(16)))

    def _read(self, data: bytes) -> None:
        place, base = 0, self._place
        while place * 16 < len(data):
            head, body = clock.RECORD.unpack_from(data, place * 16)
            words: tuple[int, ...] = ()
            more = 0
            if head & _MORE:
                (more,) = struct.unpack_from("<I", data, place * 16 + 16)
                words = struct.unpack_from(f"<{4 * more - 1}I", data, place * 16 + 20)
            if head & 0x1FF:
                self._add(head, body, words, base + place)
            else:
                self._define(head, body, words)
            place += 1 + more
        self._place = base + place

    # ---- communicators ---------------------------------------------------------------------------

    def _define(self, head: int, body: int, words: tuple[int, ...]) -> None:
        local_words, inter = words[0], words[1]
        local = tuple(_members(words[2 : 2 + local_words]))
        remote = tuple(_members(words[2 + local_words : head >> 32])) if inter else ()
        first, second = sorted((local, remote)) if inter else (local, ())
        earlier = self._seen.get((*first, -2, *second), 0)
        self._seen[(*first, -2, *second)] = earlier + 1
        if inter:
            one, two = (name_of(group, 0, self.world) for group in (first, second))
            name = f"{one}|{two}" + (f"#{earlier + 1}" if earlier else "")
        elif len(self._comms) == 1:
            name = "self"  # defined at MPI_Init, after the one of all ranks
        else:
            name = name_of(local, earlier, self.world)
        self._comms[name] = first + second
        self._names[body >> 48] = name
        self._peers[body >> 48] = remote if inter else local

    # ---- calls -----------------------------------------------------------------------------------

    def _add(self, head: int, body: int, words: tuple[int, ...], place: int) -> None:
        function = mpi_calls.BY_NUMBER[head & 0x1FF]
        number, size = body >> 48, head >> 32
        site = head >> 16 & 0xFFFF
        call = Call(
            self.rank,
            self._tick + 1,
            function.full,
            Kind[function.kind],
            site=self._sites[site] if site < len(self._sites) else 0,
            comm=self._names.get(number, ""),
            wild=bool(head & (_WILD_SOURCE | _WILD_TAG)),
        )
        if head & _NO:
            probe = function.kind == "PROBE"
            call = replace(
                call,
                kind=Kind.NOTHING,
                repeats=size,
                comm=call.comm if probe else "",
                peer=self._peer(body) if probe else None,
                tag=_tag(body) if probe else None,
            )
            self._run = place
        elif call.kind is Kind.TIME:
            (value,) = struct.unpack("<d", struct.pack("<Q", body))
            call = replace(call, comm="", value=value)
        elif call.kind is Kind.COMPLETE:
            call = replace(call, completes=self._completed(function.name, head, size, words))
        elif call.kind is Kind.SENDRECV:
            call = self._both(call, head, body, words)
        elif call.kind is Kind.CANCEL or function.name == "Request_free":
            pass
        else:
            call = self._plain(call, head, body, words)
        if function.name == "Start":
            call = replace(call, kind=Kind.POST_RECV if head & _ODD else Kind.POST_SEND)
        if function.name == "Startall":
            self._posted += [call.tick] * size
            call = replace(call, bytes=0)
        elif function.posts:
            self._posted.append(call.tick)
            if call.wild and not head & _DONE:
                self._open[len(self._calls)] = place
        if not head & _NO:
            self._run = None
        self._calls.append(call)
        self._tick += call.repeats

    def _plain(self, call: Call, head: int, body: int, words: tuple[int, ...]) -> Call:
        size = head >> 32
        large = len(words) >= 4 and (
            size == _SIZE_MOST
            or body & _TAG_MOST == _TAG_MOST
            or body >> 28 & _PEER_MOST == _PEER_MOST
        )
        peer, tag = self._peer(body), _tag(body)
        if large:
            size = words[0] | words[1] << 32
            if body & _TAG_MOST == _TAG_MOST:
                tag = words[3]
            if body >> 28 & _PEER_MOST == _PEER_MOST:
                peer = self._world_rank(body >> 48, words[2])
        return replace(call, peer=peer, tag=tag, bytes=size)

    def _both(self, call: Call, head: int, body: int, words: tuple[int, ...]) -> Call:
        number = body >> 48
        if head & _PACKED:
            to, source, tag = body >> 32 & 0xFFFF, body >> 16 & 0xFFFF, body & 0xFFFF
            tag2 = tag
        else:
            to, tag = words[0], words[1]
            source, tag2 = body >> 28 & _PEER_MOST, body & _TAG_MOST
        return replace(
            call,
            peer=self._coded(number, to),
            tag=tag - _BIAS if tag >= _BIAS else None,
            bytes=head >> 32,
            source2=self._coded(number, source),
            tag2=tag2 - _BIAS if tag2 >= _BIAS else None,
        )

    def _completed(
        self, name: str, head: int, size: int, words: tuple[int, ...]
    ) -> tuple[int, ...]:
        if name in ("Waitall", "Testall"):
            ages = range(size, 0, -1) if head & _PACKED else words[:size]
        elif name in ("Waitsome", "Testsome"):
            ages = words[1 : 2 * size : 2]
        elif name == "Request_get_status":
            ages = ()  # it is still to be completed
        else:
            ages = (size,)
        end = len(self._posted)
        return tuple(self._posted[end - age] for age in ages if 0 < age <= end)

    def _settle(self, index: int, head: int, body: int) -> None:
        if head & _DONE:
            call = self._calls[index]
            self._calls[index] = replace(call, peer=self._peer(body), tag=_tag(body))
            del self._open[index]

    # ---- ranks -----------------------------------------------------------------------------------

    def _peer(self, body: int) -> int | None:
        return self._coded(body >> 48, body >> 28 & _PEER_MOST)

    def _coded(self, number: int, code: int) -> int | None:
        return self._world_rank(number, code - _BIAS) if code >= _BIAS else None

    def _world_rank(self, number: int, rank: int) -> int | None:
        if number == 0:
            return rank
        members = self._peers.get(number, ())
        return members[rank] if rank < len(members) else None


def _up_to_the_cut(file: FileIO, header: LogHeader) -> LogHeader:
    """Without the record which only says that the log was cut there from outside."""
    if header.tail:
        file.seek(clock.LOG_HEADER + 16 * (header.tail - 1))
        if clock.RECORD.unpack(file.read(16)) == clock.CUT_HERE:
            return replace(header, tail=header.tail - 1)
    return header


def _tag(body: int) -> int | None:
    tag = body & _TAG_MOST
    return tag - _BIAS if tag >= _BIAS else None


def _members(words: Sequence[int]) -> Iterator[int]:
    """World ranks from pairs of a first one and their number; -1 is a process of another job."""
    for first, count in zip(words[::2], words[1::2], strict=True):
        if first == _OTHER_JOB:
            yield from [-1] * count
        else:
            yield from range(first, first + count)
