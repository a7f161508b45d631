"""Looking at the ranks."""

from __future__ import annotations

from crdebug.deadline import Deadline
from crdebug.ranks import RankSet
from crdebug.target import reading
from crdebug.target.answers import Answers
from crdebug.target.interface import Frame, Target, ThreadInfo
from crdebug.target.summary import deviating
from crdebug.travel.history import heard
from crdebug.verbs.core import Core

_COMPLETION = 5.0  # seconds


class Looking(Core):
    """The verbs that ask ranks for something."""

    async def info_threads(self, ranks: RankSet) -> Answers[tuple[ThreadInfo, ...]]:
        return await self._group.threads(ranks)

    async def evaluate(self, ranks: RankSet, expression: str, format: str = "") -> Answers[str]:
        """print: the value as GDB prints it. format: "/x" and the like."""
        answers = await self._group.evaluate(ranks, expression, format)
        return await heard(self.history, f"print {expression}", answers)

    async def compare(self, ranks: RankSet, expression: str) -> tuple[Answers[str], RankSet]:
        """The value on each rank, and the ranks whose value is unlike the others'."""
        answers = await self.evaluate(ranks, expression)
        return answers, deviating(answers)

    async def backtrace(self, ranks: RankSet, limit: int = 0) -> Answers[tuple[Frame, ...]]:
        """Innermost frame first; at most `limit` frames unless it is 0."""
        return await self._group.backtrace(ranks, limit)

    async def select_frame(self, ranks: RankSet, move: str = "frame") -> Answers[Frame]:
        """Choose the frame that the ranks are asked about. move: ``frame 2``, ``up``, ``down 1``,
        or ``frame`` to stay."""
        limit = Deadline(self.settings.command)

        async def select(target: Target) -> Frame:
            await target.console(move, limit)
            listing = await target.mi("-stack-info-frame", limit)
            level = listing.payload.tuple("frame").number("level")
            arguments = await target.mi(
                f"-stack-list-arguments --simple-values {level} {level}", limit
            )
            return reading.frame(listing.payload.tuple("frame"), arguments.payload)

        return await self._group.ask(ranks, select)

    async def complete(self, rank: int, line: str) -> tuple[str, ...]:
        """How GDB would go on with a line at its own prompt: whole lines.

        A big program has many names: GDB has some seconds for it. Raises CrdebugError.
        """
        told = await self._group[rank].console(f"complete {line}", Deadline(_COMPLETION))
        return tuple(line for line in told.splitlines() if "max-completions" not in line)

    async def gdb(self, ranks: RankSet, command: str) -> Answers[str]:
        """A command for the ranks' GDBs as typed; the answer is what GDB printed."""
        return await heard(self.history, command, await self._group.console(ranks, command))
