"""Notice that no rank of a job comes further while it runs under the debugger, and tell why."""

from __future__ import annotations

from collections.abc import Callable

from crdebug.base.events import Event
from crdebug.debugger.target import TargetState
from crdebug.job.verdict_lines import standstill
from crdebug.travel.recorded_job import RecordedJob
from crdebug.travel.stood import Stood
from crdebug.travel.why import judged


class Standstill:
    """Tells it once, until a rank has come further."""

    def __init__(self, recorded: RecordedJob, stood: Stood, tell: Callable[[Event], None]) -> None:
        self._recorded = recorded
        self._stood = stood
        self._tell = tell
        self._told = -1.0  # of the last one that was told, when it began

    async def look(self) -> None:
        """After each `Stood.look`. Where all ranks compute, that is their business.

        Raises CrdebugError, OSError if a rank cannot be read.
        """
        job = self._recorded.job
        patience, (quiet, since) = job.settings.patience, self._stood.quiet
        if not patience or quiet < patience or since == self._told:
            return
        self._told = since
        if any(state.now.inside for _, state in self._recorded.states()):
            lines, stuck = await judged(self._recorded, self._stood, job.group.ranks)
            alive = job.group.in_state(TargetState.RUNNING, TargetState.STOPPED)
            self._tell(standstill(patience, lines, for_ever=not alive - stuck))
