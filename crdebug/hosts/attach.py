"""Attach debuggers to the ranks of a job wherever they are: here, and by agents on other hosts."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from crdebug.acquire.daemons import Daemon
from crdebug.acquire.discovery import FoundJob
from crdebug.acquire.mpir import ProcDesc
from crdebug.attached.by_pid import attach_found
from crdebug.attached.gdbs import clear_code, raise_first
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.base.events import Event, JobSays
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.group import Identity, TargetGroup
from crdebug.debugger.target import Target
from crdebug.hosts.node import RemoteNode
from crdebug.hosts.remote import RemoteTarget
from crdebug.hosts.replacing import Replacing
from crdebug.hosts.starting import Start
from crdebug.job.far_clocks import ClockLook
from crdebug.node import owners

T = TypeVar("T")

# Where there are so many ranks, Python looks less often for objects to free: to look through theirs
# takes half of the time that a command does.
_MANY = 1000
_THRESHOLDS = 50_000, 20, 100


async def attach_everywhere(
    found: FoundJob,
    ranks: str,
    settings: Settings,
    subscriber: Callable[[Event], None] | None,
    start: Start,
) -> tuple[FoundJob, TargetGroup]:
    """Attach a GDB to each of the ranks that a user names, as in ``0,3-5``; empty is all.

    start: starts an agent.  Returns the part of the job that was chosen, and its debuggers.

    Raises the first error, after letting every rank go.
    """
    agents = Agents(settings, subscriber or (lambda event: None), start)
    try:
        if found.daemons:
            found = await agents.find(found)
        chosen = found.only(ranks)
        ended = found.ended if not ranks else RankSet()
        return chosen, await agents.attach(chosen, ended, subscriber)
    except BaseException:
        await agents.close()
        raise


class Agents:
    """Those of the other hosts, on the way to their ranks."""

    def __init__(self, settings: Settings, tell: Callable[[Event], None], start: Start) -> None:
        self._settings = settings
        self._tell = tell
        self._start = start
        self.layer = ""  # of the ranks, see messages.Attach
        # see RemoteNode
        self.on_clock: Callable[[int, bytes, ClockLook], None] = lambda rank, clock, look: None
        self._nodes: dict[str, RemoteNode] = {}
        self._replacing: Replacing | None = None

    async def find(self, found: FoundJob) -> FoundJob:
        """The same job, with the ranks that the launcher's daemons have."""
        users = _users(found)

        async def ask(daemon: Daemon) -> tuple[ProcDesc, ...]:
            return await (await self.on(daemon.host)).find(daemon, users)

        entries = [entry for part in await gather_all(map(ask, found.daemons)) for entry in part]
        entries.sort(key=lambda entry: entry.rank)
        return replace(found, elsewhere=found.elsewhere + tuple(entries), daemons=())

    async def attach(
        self, found: FoundJob, ended: RankSet, subscriber: Callable[[Event], None] | None
    ) -> TargetGroup:
        users = _users(found)

        async def there(host: str, entries: Sequence[ProcDesc]) -> list[RemoteTarget]:
            node = await self.on(host)
            mirrors = await node.attach(entries, users, self.layer)
            return [RemoteTarget(node, mirror) for mirror in mirrors]

        hosts = _by_host(found.elsewhere)
        here = asyncio.create_task(attach_found(found, self._settings, subscriber, ended))
        outcomes = await asyncio.gather(
            here, *(there(host, entries) for host, entries in hosts), return_exceptions=True
        )
        try:
            raise_first(outcomes)
        except BaseException:
            if isinstance(outcomes[0], TargetGroup):
                with contextlib.suppress(CrdebugError):
                    await outcomes[0].close()
            raise
        own = here.result()
        targets: list[Target] = [own[rank] for rank in own.ranks]
        for (host, entries), theirs in zip(hosts, outcomes[1:], strict=True):
            assert isinstance(theirs, list)
            targets += theirs
            ranks = RankSet.of(entry.rank for entry in entries)
            self._tell(JobSays(f"{ranks.words}: an agent on {host}"))
        return await self._group(targets, found)

    async def _group(self, targets: Sequence[Target], found: FoundJob) -> TargetGroup:
        """One group of all, that ends the agents which have ranks; the others end now."""
        used = dict(_by_host(found.elsewhere))
        idle = [self._nodes.pop(host) for host in self._nodes.keys() - used.keys()]
        await _close(idle, self._settings)
        if len(targets) > _MANY:
            gc.set_threshold(*_THRESHOLDS)
        names = {each.rank: Identity(each.host, each.executable) for each in found.everywhere}
        group = TargetGroup(
            targets,
            settings=self._settings,
            identities=names,
            nodes=tuple(self._nodes[host] for host in used),
        )
        group.on_death = clear_code
        self._replacing = Replacing(self, group, used, _users(found), self._settings, self._tell)
        for node in group.nodes:
            self.take_place(self._nodes[node.host])
        return group

    def take_place(self, node: RemoteNode) -> None:
        """It is its host's agent from now on, and is replaced if it ends."""
        self._nodes[node.host] = node
        assert self._replacing is not None
        node.on_end = partial(self._replacing.ended, node)
        if node.lost:
            self._replacing.ended(node)

    async def on(self, host: str) -> RemoteNode:
        """The agent of a host, started if there is none yet. Raises NotAvailable."""
        if host not in self._nodes:
            self._nodes[host] = await self.begin(host)
        return self._nodes[host]

    async def begin(self, host: str) -> RemoteNode:
        """Start an agent, which the caller closes, or has take the place of the host's one. Raises
        NotAvailable."""
        deadline = Deadline(self._settings.attach)
        node = RemoteNode(host, await self._start(host, deadline), self._settings, self._tell)
        node.on_clock = self.on_clock
        try:
            await node.greet(deadline)
        except BaseException:
            await _close([node], self._settings)
            raise
        return node

    def of(self, host: str) -> RemoteNode:
        """The agent of a host that has ranks; it may be lost."""
        return self._nodes[host]

    async def close(self) -> None:
        """End all of them, which lets their ranks go."""
        await _close(self._nodes.values(), self._settings)


async def _close(nodes: Iterable[RemoteNode], settings: Settings) -> None:
    closing = [node.close(Deadline(settings.stop)) for node in nodes]
    for outcome in await asyncio.gather(*closing, return_exceptions=True):
        with contextlib.suppress(CrdebugError):
            if isinstance(outcome, BaseException):
                raise outcome


async def gather_all(asking: Iterable[Awaitable[T]]) -> list[T]:
    """The results of all; when all are there, the first error is raised."""
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    raise_first(outcomes)
    return [each for each in outcomes if not isinstance(each, BaseException)]


def _users(found: FoundJob) -> tuple[int, ...]:
    """Whose ranks they have to be: the launcher's user's."""
    return tuple(owners.users_of(found.root))


def _by_host(entries: Iterable[ProcDesc]) -> list[tuple[str, list[ProcDesc]]]:
    found: dict[str, list[ProcDesc]] = {}
    for entry in entries:
        found.setdefault(entry.host, []).append(entry)
    return sorted(found.items())
