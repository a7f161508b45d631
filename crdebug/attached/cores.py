"""Open core files as the ranks of a job that is over: a GDB for each, and no process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from signal import valid_signals

from crdebug.acquire.core_files import Core
from crdebug.acquire.core_ranks import CoreRanks
from crdebug.attached.gdbs import launch_group
from crdebug.base import signal_names
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.base.events import Event, GroupStopped, JobSays, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.group import Identity, TargetGroup
from crdebug.debugger.target import Target


async def open_cores(
    found: CoreRanks, settings: Settings, tell: Callable[[Event], None] | None
) -> tuple[TargetGroup, GroupStopped]:
    """The ranks' debuggers, and how the ranks ended.

    tell: called with what `found` says, and with the reasons why a rank's GDB cannot read its file;
    such a rank has nothing to show. Raises the first error if none of them can.
    """
    say = tell or _to_nobody
    for sentence in found.said:
        say(JobSays(sentence))
    identities = {
        rank: Identity("", found.program[rank], core.path.name)
        for rank, core in found.cores.items()
    }
    group = await launch_group(found.cores, 0, settings, identities, tell)

    async def open_one(target: Target) -> RankStopped:
        core, limit = found.cores[target.rank], Deadline(settings.attach)
        program = Path(found.program[target.rank])
        return await target.open_core(core.path.resolve(), program, _end(core, target.rank), limit)

    try:
        answers = await group.ask(RankSet.of(found.cores), open_one)
        for error in answers.errors.values():
            if not answers.values:
                raise error
            say(JobSays(str(error)))
    except BaseException:
        with contextlib.suppress(CrdebugError):
            await group.close()
        raise
    stops = tuple(answers.values.values())
    return group, GroupStopped(stops, stops)


def _end(core: Core, rank: int) -> RankStopped:
    """How the process ended; if GDB has made the file, the process lived on."""
    if not core.signal:
        return RankStopped(rank, StopReason.OTHER)
    known = core.signal in valid_signals()
    name = signal_names.name_of(core.signal) if known else f"signal {core.signal}"
    return RankStopped(rank, StopReason.SIGNAL, name)


def _to_nobody(event: Event) -> None:
    pass
