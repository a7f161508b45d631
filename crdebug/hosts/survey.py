"""What hosts have and lack, each asked by an agent there; for `crdebug doctor --hosts`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from crdebug.acquire.mpir import is_here
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.base.events import Event
from crdebug.base.settings import Settings
from crdebug.hosts.node import RemoteNode
from crdebug.hosts.starting import Start
from crdebug.node import probes
from crdebug.node.probes import Machine

Survey = Mapping[str, Machine | CrdebugError]
"""By host: what it has, or why it could not be asked."""


async def survey(hosts: Sequence[str], settings: Settings, start: Start) -> Survey:
    """Ask all of them at once; the one that crdebug is on needs no agent.

    start: starts an agent.  settings: `attach` is how long one may take to come and to answer.
    """

    async def one(host: str) -> Machine | CrdebugError:
        try:
            if is_here(host):
                return await asyncio.to_thread(
                    probes.probe_machine, gdb=settings.gdb, compiler=settings.compiler
                )
            return await _asked(host, settings, start)
        except CrdebugError as error:
            return error

    answers = await asyncio.gather(*map(one, hosts))
    return dict(zip(hosts, answers, strict=True))


async def _asked(host: str, settings: Settings, start: Start) -> Machine:
    deadline = Deadline(settings.attach)
    node = RemoteNode(host, await start(host, deadline), settings, _ignore)
    try:
        await node.greet(deadline)
        return await node.probe()
    finally:
        await node.close(Deadline(settings.stop))


def _ignore(event: Event) -> None:
    """It has no ranks, of which it could say anything."""
