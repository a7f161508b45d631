"""The beginning of a session on a job over hosts: its agents, its ranks, their debuggers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from crdebug.attached.far_record import FarRecord
from crdebug.attached.gdbs import SetGate, to_main
from crdebug.base.deadline import Deadline
from crdebug.base.events import Event
from crdebug.base.settings import Settings
from crdebug.debugger.group import TargetGroup
from crdebug.hosts import ssh
from crdebug.hosts.launch import OverHosts
from crdebug.job.directory import JobDirectory, JobRecord
from crdebug.job.ending import end
from crdebug.job.incarnation import Incarnation
from crdebug.job.output import tell_phase
from crdebug.job.over_hosts import Spread

Subscriber = Callable[[Event], None] | None
Launched = Awaitable[tuple[JobDirectory, JobRecord]]


async def run(
    launch: Callable[[], Launched],
    argv: Sequence[str],
    place: Path,
    spread: Spread,
    settings: Settings,
    subscriber: Subscriber,
) -> tuple[TargetGroup, Incarnation, FarRecord | None, dict[int, SetGate]]:
    """Start a job; returns the debuggers of its ranks, which are held before main, the job, its
    record, and the ranks' gates.

    launch: starts the launcher.  argv: its command.  place: the directory in which it is run.
    Raises NotAvailable, and the launcher's last words if it ends early; then nothing of the job is
    left.
    """
    begin = ssh.starter(settings)
    agents = OverHosts(spread.hosts, spread.mark, settings, subscriber, begin)
    try:
        await agents.prepare(argv, place)
        directory, record = await launch()
        try:
            found = await agents.all_ranks(directory, record)
            tell_phase(subscriber, "run", "attach")
            now = Incarnation(directory, record)
            far = agents.records(found, record, now.run)
            group = await agents.attach(found)
        except BaseException:
            await end(record, Deadline(settings.stop))
            directory.forget_if_over()
            raise
    except BaseException:
        await agents.close()
        raise
    return group, now, far, agents.gates()


async def attach(
    directory: JobDirectory, record: JobRecord, settings: Settings, subscriber: Subscriber
) -> tuple[TargetGroup, Incarnation, FarRecord | None]:
    """Debuggers for the ranks of a job that is there, and its record. Ranks that still wait before
    their main, because an earlier crdebug has died, can go on from there. Raises NotAvailable."""
    begin = ssh.starter(settings)
    agents = OverHosts(record.hosts, record.mark, settings, subscriber, begin)
    try:
        found = await agents.ranks_now(directory, record)
        now = Incarnation(directory, record)
        far = agents.records(found, record, now.run)
        group = await agents.attach(found)
        await _open(agents.gates())
    except BaseException:
        await agents.close()
        raise
    return group, now, far


async def let_begin(
    group: TargetGroup,
    gates: dict[int, SetGate],
    settings: Settings,
    subscriber: Subscriber,
    *,
    stop_at_main: bool,
) -> None:
    """The ranks are at the first line of main then, or may go there."""
    if stop_at_main:
        tell_phase(subscriber, "run", "main")
        await to_main(group, gates, settings)
    else:
        await _open(gates)


async def _open(gates: dict[int, SetGate]) -> None:
    await asyncio.gather(*(set_gate(1) for set_gate in gates.values()))
