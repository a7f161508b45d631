"""Ranks' GDBs as a group, without a job of crdebug's."""

from __future__ import annotations

from collections.abc import Mapping

from crdebug.base.answers import Answers
from crdebug.base.deadline import Deadline
from crdebug.base.events import RankStopped
from crdebug.base.ranks import RankSet
from crdebug.debugger.group import TargetGroup


async def attach_all(group: TargetGroup, pids: Mapping[int, int]) -> Answers[RankStopped]:
    """Attach to processes, by rank, all at once. Ranks that are not named are left alone."""
    limit = Deadline(group.settings.attach)
    return await group.ask(RankSet.of(pids), lambda each: each.attach(pids[each.rank], limit))
