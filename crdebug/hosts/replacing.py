"""Another agent in place of one that has ended: its ranks run on without a debugger meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from crdebug.acquire.mpir import ProcDesc
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.base.events import Event, JobSays
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.group import TargetGroup
from crdebug.hosts.node import RemoteNode
from crdebug.hosts.remote import RemoteTarget

if TYPE_CHECKING:
    from crdebug.hosts.attach import Agents

_OFTEN, _WHILE = 2, 60.0  # times, in so many seconds, after which it is left alone
_LOOK = 0.02  # seconds between two looks whether a run has ended


class Replacing:
    """Replaces the agents of one group.

    entries: the ranks of each host.  users: whose they have to be, see messages.Attach.
    """

    def __init__(
        self,
        agents: Agents,
        group: TargetGroup,
        entries: Mapping[str, Sequence[ProcDesc]],
        users: Sequence[int],
        settings: Settings,
        tell: Callable[[Event], None],
    ) -> None:
        self._agents = agents
        self._group = group
        self._entries = entries
        self._users = users
        self._settings = settings
        self._tell = tell
        self._times: defaultdict[str, list[float]] = defaultdict(list)

    def ended(self, node: RemoteNode) -> None:
        """This host's agent has ended. The group's next run waits for another one."""
        task = asyncio.create_task(self._replace(node))
        self._group.replacing.add(task)
        task.add_done_callback(self._group.replacing.discard)

    async def _replace(self, node: RemoteNode) -> None:
        host, now = node.host, time.monotonic()
        ranks = RankSet.of(each.rank for each in self._entries[host])
        self._times[host] = [each for each in self._times[host] if now - each < _WHILE] + [now]
        if len(self._times[host]) > _OFTEN:
            self._tell(JobSays(f"{ranks.words}: no other agent is started on {host} any more"))
            return
        while self._group.under_way is not None:  # it ends, because their GDBs have
            await asyncio.sleep(_LOOK)
        try:
            stand = await self._begin(node)
        except (CrdebugError, OSError) as error:
            self._tell(JobSays(f"{ranks.words}: no other agent on {host}: {error}"))
            return
        if stand:
            verb, it = ("stand", "they are") if len(stand) > 1 else ("stands", "it is")
            self._tell(
                JobSays(f"another agent on {host} has {stand.words}, which {verb} where {it} now")
            )

    async def _begin(self, node: RemoteNode) -> RankSet:
        """Have another agent take up the ranks that are left; returns these."""
        await node.close(Deadline(self._settings.stop))
        other = await self._agents.begin(node.host)
        try:
            taken = await self._take_up(other)
        except BaseException:
            await other.close(Deadline(self._settings.stop))
            raise
        self._group.nodes = tuple(
            other if each.host == other.host else each for each in self._group.nodes
        )
        self._agents.take_place(other)
        return taken

    async def _take_up(self, other: RemoteNode) -> RankSet:
        entries = self._entries[other.host]
        mirrors = await other.attach(entries, self._users, self._agents.layer, again=True)
        targets = {mirror.rank: RemoteTarget(other, mirror) for mirror in mirrors}
        for entry in entries:
            before = self._group[entry.rank]
            if entry.rank in targets:
                await self._group.replace(targets[entry.rank])
            elif isinstance(before, RemoteTarget):
                before.has_ended()
        return RankSet.of(targets)
