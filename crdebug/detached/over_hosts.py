"""A job over hosts without a debugger."""

from __future__ import annotations

from crdebug.base.settings import Settings
from crdebug.hosts import ssh
from crdebug.hosts.launch import OverHosts
from crdebug.job.directory import JobRecord


async def release_there(record: JobRecord, settings: Settings) -> tuple[str, ...]:
    """Let the ranks go on that wait before their main on any host, because their debugger has died.
    Returns a line for each."""
    agents = OverHosts(record.hosts, record.mark, settings, None, ssh.starter(settings))
    try:
        return tuple(f"rank {rank} let go" for rank in await agents.let_begin(record.shim))
    finally:
        await agents.close()
