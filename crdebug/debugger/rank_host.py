"""What snapshots and ways back ask the host of ranks, besides their debuggers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from crdebug.base.errors import Refused
from crdebug.base.ranks import RankSet
from crdebug.node import bare, in_flight, memory, proc, rest, sharing, waiting_data
from crdebug.node.in_flight import Channel
from crdebug.node.leaderless import leader_has_ended
from crdebug.node.sharing import SharedMapping

Pids = Mapping[int, int]
"""Of ranks of one host, by rank."""

_SHARED_MEMORY = ("/dev/shm/", "/dev/zero")


@dataclass(frozen=True, slots=True)
class HostRoom:
    """private: bytes of memory that its ranks have for themselves.  available: bytes that new
    processes can use.  leaderless: the ranks whose main thread has ended."""

    private: int
    available: int
    leaderless: RankSet


@dataclass(frozen=True, slots=True)
class Rest:
    """The job's processes on a host that are no ranks. asleep: see node.rest."""

    pids: tuple[int, ...]
    asleep: Mapping[int, int] | None


class RankHost(Protocol):
    """All of these raise Refused if a rank has ended or cannot be looked at, CrdebugError if the
    host is lost."""

    async def room(self, pids: Pids) -> HostRoom: ...

    async def available(self) -> int:
        """See HostRoom."""
        ...

    async def rest(self, mark: str, pids: Pids) -> Rest:
        """mark: the job's, see node.bare."""
        ...

    async def channels(self, pids: Pids) -> Mapping[int, tuple[Channel, ...]]:
        """By rank, see in_flight.in_flight."""
        ...

    async def ranges(
        self, pids: Pids, others: Collection[int] | None, logs: str
    ) -> Mapping[int, tuple[str, ...]]:
        """By rank, the shared mappings that it keeps, as arguments of -crdebug-keep. others: the
        job's other processes there; None if they are not known.  logs: how the paths of the record
        begin, which stays as it is.

        Raises Refused when a rank maps memory of a device, which we must not read or write.
        """
        ...

    async def mappings(self, pids: Pids) -> Mapping[int, tuple[SharedMapping, ...]]:
        """By rank, see sharing.shared_mappings."""
        ...

    async def peek(self, pids: Pids, wanted: Mapping[tuple[int, int], int]) -> list[bytes]:
        """What is on its way to ranks. wanted: by rank and descriptor, how many bytes."""
        ...

    async def datagrams(
        self, pids: Pids, wanted: Collection[tuple[int, int]]
    ) -> list[tuple[bytes, ...]]:
        """Those that wait, by rank and descriptor."""
        ...

    async def drop(self, pids: Pids, wanted: Collection[tuple[int, int]]) -> None:
        """Drop what is on its way to ranks, by rank and descriptor."""
        ...

    async def send(self, pids: Pids, wanted: Mapping[tuple[int, int], bytes]) -> None:
        """Send this in the ranks' place, by rank and descriptor."""
        ...


class ThisHost:
    """The host of this process."""

    async def room(self, pids: Pids) -> HostRoom:
        with _in_words():
            whole = sum(map(proc.private_memory, pids.values()))
            gone = RankSet.of(rank for rank, pid in pids.items() if leader_has_ended(pid))
            return HostRoom(whole, memory.available(), gone)

    async def available(self) -> int:
        return memory.available()

    async def rest(self, mark: str, pids: Pids) -> Rest:
        ranks = set(pids.values())
        others = tuple(pid for pid in bare.processes_of(mark) if pid not in ranks)
        try:
            return Rest(others, rest.asleep(others))
        except ProcessLookupError:
            return Rest(others, None)

    async def channels(self, pids: Pids) -> Mapping[int, tuple[Channel, ...]]:
        with _in_words():
            return {rank: in_flight.in_flight(pid) for rank, pid in pids.items()}

    async def ranges(
        self, pids: Pids, others: Collection[int] | None, logs: str
    ) -> Mapping[int, tuple[str, ...]]:
        with _in_words():
            if others is None:
                others = proc.processes_in_namespace_of(next(iter(pids.values())))
            return _ranges(pids, set(others).difference(pids.values()), logs)

    async def mappings(self, pids: Pids) -> Mapping[int, tuple[SharedMapping, ...]]:
        with _in_words():
            return {rank: sharing.shared_mappings(pid) for rank, pid in pids.items()}

    async def peek(self, pids: Pids, wanted: Mapping[tuple[int, int], int]) -> list[bytes]:
        with _in_words():
            return [waiting_data.peek(pids[rank], fd, size) for (rank, fd), size in wanted.items()]

    async def datagrams(
        self, pids: Pids, wanted: Collection[tuple[int, int]]
    ) -> list[tuple[bytes, ...]]:
        with _in_words():
            return [waiting_data.datagrams(pids[rank], fd) for rank, fd in wanted]

    async def drop(self, pids: Pids, wanted: Collection[tuple[int, int]]) -> None:
        with _in_words():
            for rank, descriptor in wanted:
                waiting_data.drop(pids[rank], descriptor)

    async def send(self, pids: Pids, wanted: Mapping[tuple[int, int], bytes]) -> None:
        with _in_words():
            for (rank, descriptor), data in wanted.items():
                # It waits for the receiver's kernel.
                await asyncio.to_thread(waiting_data.send, pids[rank], descriptor, data)


VERBS = frozenset(
    (
        *("room", "available", "rest", "channels", "ranges", "mappings"),
        *("peek", "datagrams", "drop", "send"),
    )
)


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except (ProcessLookupError, FileNotFoundError):
        raise Refused("a rank has ended, or closed a connection") from None
    except OSError as error:
        raise Refused(f"a rank cannot be looked at: {error.strerror or error}") from None


def _ranges(pids: Pids, others: Collection[int], logs: str) -> dict[int, tuple[str, ...]]:
    outside = sharing.written_by(others)
    taken: set[tuple[str, int, int, int]] = set()
    found: dict[int, tuple[str, ...]] = {}
    for rank, pid in sorted(pids.items()):
        ranges = []
        for each in sharing.shared_mappings(pid):
            if not each.writable or each.identity in taken or each.path.startswith(logs):
                continue
            if each.path.startswith("/dev/") and not each.path.startswith(_SHARED_MEMORY):
                raise Refused(
                    f"cannot keep a snapshot: memory of the device {each.path} is in use",
                    ranks=RankSet.of([rank]),
                )
            taken.add(each.identity)
            mark = "=" if each.file in outside else ""
            ranges.append(f"{mark}{each.start:x}-{each.end:x}")
        found[rank] = tuple(ranges)
    return found
