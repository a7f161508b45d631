"""What is asked about the ranks of another host, as messages to the agent there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from crdebug.debugger.rank_host import HostRoom, Pids, Rest
from crdebug.hosts.codec import BadMessage
from crdebug.hosts.messages import AskHost
from crdebug.node.in_flight import Channel
from crdebug.node.sharing import SharedMapping

if TYPE_CHECKING:
    from crdebug.hosts.node import RemoteNode

T = TypeVar("T")


class RemoteHost:
    """See RankHost. seconds: for each answer."""

    def __init__(self, node: RemoteNode, seconds: float) -> None:
        self._node = node
        self._seconds = seconds

    async def _ask(self, verb: str, *arguments: object) -> object:
        return await self._node.call(AskHost(verb, arguments), self._seconds)

    def _of(self, pids: Pids, found: Mapping[int, T]) -> Mapping[int, T]:
        if found.keys() != pids.keys():
            raise BadMessage(f"{self._node.host} answers for ranks that are not there")
        return found

    async def room(self, pids: Pids) -> HostRoom:
        return cast(HostRoom, await self._ask("room", pids))

    async def available(self) -> int:
        return cast(int, await self._ask("available"))

    async def rest(self, mark: str, pids: Pids) -> Rest:
        return cast(Rest, await self._ask("rest", mark, pids))

    async def channels(self, pids: Pids) -> Mapping[int, tuple[Channel, ...]]:
        found = cast(Mapping[int, tuple[Channel, ...]], await self._ask("channels", pids))
        return self._of(pids, found)

    async def ranges(
        self, pids: Pids, others: Collection[int] | None, logs: str
    ) -> Mapping[int, tuple[str, ...]]:
        known = None if others is None else tuple(others)
        found = await self._ask("ranges", pids, known, logs)
        return self._of(pids, cast(Mapping[int, tuple[str, ...]], found))

    async def mappings(self, pids: Pids) -> Mapping[int, tuple[SharedMapping, ...]]:
        found = await self._ask("mappings", pids)
        return self._of(pids, cast(Mapping[int, tuple[SharedMapping, ...]], found))

    async def peek(self, pids: Pids, wanted: Mapping[tuple[int, int], int]) -> list[bytes]:
        return cast(list[bytes], await self._ask("peek", pids, wanted))

    async def datagrams(
        self, pids: Pids, wanted: Collection[tuple[int, int]]
    ) -> list[tuple[bytes, ...]]:
        found = await self._ask("datagrams", pids, tuple(wanted))
        return cast(list[tuple[bytes, ...]], found)

    async def drop(self, pids: Pids, wanted: Collection[tuple[int, int]]) -> None:
        await self._ask("drop", pids, tuple(wanted))

    async def send(self, pids: Pids, wanted: Mapping[tuple[int, int], bytes]) -> None:
        await self._ask("send", pids, wanted)
