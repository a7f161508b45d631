"""What the machines have that a job may have its ranks on."""

from __future__ import annotations

from collections.abc import Sequence

from crdebug.base.settings import Settings
from crdebug.hosts import ssh
from crdebug.hosts.survey import Survey, survey


async def machines(hosts: Sequence[str], settings: Settings | None = None) -> Survey:
    """Ask hosts, by agents that are started by ssh and end then. Raises nothing for a host that
    cannot be asked: its error is the answer."""
    chosen = settings or Settings()
    return await survey(hosts, chosen, ssh.starter(chosen))
