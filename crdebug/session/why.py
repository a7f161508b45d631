"""Why ranks wait."""

from __future__ import annotations

import re

from crdebug.base.errors import Refused
from crdebug.base.ranks import RankSet
from crdebug.debugger.target import Frame
from crdebug.session.stacks import Stacks
from crdebug.timeline.verdict_text import named
from crdebug.travel.why import why_blocked

_MPI = re.compile(r"P?(MPI_\w+)")


class Why(Stacks):
    """The verb that tells why ranks wait."""

    async def why(self, ranks: RankSet) -> list[str]:
        """Who waits for whom, who can never go on, and who is waited for, in lines: of a recorded
        job from its record; of another one only what the stacks say.

        Raises Refused in the past, NoRankAnswered.
        """
        past = self.history
        if past is None or not past.recorded:
            return await self._by_stacks(ranks)
        if past.in_the_past:
            raise Refused(
                "the job is in its past: what its ranks wait for there is over",
                hint="'info messages' shows what is in flight; 'continue' goes to the present",
            )
        return await why_blocked(past.traveller.recorded, past.stood, ranks)

    async def _by_stacks(self, ranks: RankSet) -> list[str]:
        """Which MPI call each rank is in, and where."""
        answers = await self.calls(self.ranks)
        calls: dict[str, list[int]] = {}
        outside = []
        for rank, stack in answers.values.items():
            call = _call(stack.path.frames)
            if call is None:
                outside.append(rank)
            elif rank in ranks:
                calls.setdefault(call, []).append(rank)
        found = []
        for call, callers in sorted(calls.items(), key=lambda item: item[1]):
            found.append(f"{named(callers)} {'are' if len(callers) > 1 else 'is'} in {call}")
        for each, error in answers.merged_errors():
            found.append(f"{named(each)} cannot be asked: {error}")
        if outside:
            verb, them = ("are", "them") if len(outside) > 1 else ("is", "it")
            others = f": perhaps the others wait for {them}" if calls else ""
            found.append(f"{named(outside)} {verb} not in MPI{others}")
        elif calls:
            found.append("perhaps a deadlock: all that answer are in MPI")
        return [*found, "(from the stacks: this job's MPI calls are not recorded)"]


def _call(frames: tuple[Frame, ...]) -> str | None:
    """The outermost MPI function of a stack, and the line that called it."""
    for level in range(len(frames) - 1, -1, -1):
        match = _MPI.fullmatch(frames[level].location.function)
        if match is None:
            continue
        caller = frames[level + 1].location if level + 1 < len(frames) else None
        at = f" ({caller.file}:{caller.line})" if caller is not None and caller.file else ""
        return f"{match[1]}{at}"
    return None
