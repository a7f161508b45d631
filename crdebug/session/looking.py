"""Looking at the ranks."""

from __future__ import annotations

import re

from crdebug.base.answers import Answers, T, comparable, same_places
from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused
from crdebug.base.ranks import RankSet
from crdebug.base.summary import deviating
from crdebug.debugger import verbs
from crdebug.debugger.completion import complete
from crdebug.debugger.frames import Stack, select
from crdebug.debugger.question import asked
from crdebug.debugger.target import NO_PROCESS, Frame, ThreadInfo
from crdebug.session.core import Core
from crdebug.session.the_past import heard

_COMPLETION = 5.0  # seconds
# Commands that need no process: settings, and questions that the program's files answer.
_OF_FILES = re.compile(
    r"(set(?!\s+var)|show|handle|help|apropos|skip|directory|complete|ptype|whatis|search)\b"
    r"|(list|info\s+(line|scope))\s+\S"
    r"|info\s+(breakpoints|functions|macro|signals|sources|types|variables)\b"
)
# Commands that would put a process, another core file or nothing in a core file's place, as GDB
# abbreviates them.
_REPLACES = re.compile(
    r"(r|run?|start|starti|at|att|atta|attac|attach|tar|targ|targe|target|core(-file)?|det\w*"
    r"|disco\w*|k|kill?|file|exec-file|symbol-file|add-inferior|clone-inferior|inferior|checkpoint)\b"
)
# Commands that choose a frame, as GDB abbreviates them.
_SELECTS = re.compile(r"(frame|fr?|up(-silently)?|down?(-silently)?|select-frame|thread|t)\b")


class Looking(Core):
    """The verbs that ask ranks for something."""

    async def info_threads(self, ranks: RankSet) -> Answers[tuple[ThreadInfo, ...]]:
        return await self._group.threads(ranks)

    async def evaluate(self, ranks: RankSet, expression: str, format: str = "") -> Answers[str]:
        """print: the value as GDB prints it. format: "/x" and the like."""
        answers = await self._group.evaluate(ranks, expression, format)
        return await heard(self.history, f"print {expression}", answers)

    async def compare(self, ranks: RankSet, expression: str) -> tuple[Answers[str], RankSet]:
        """The value on each rank, and the ranks whose value is unlike the others'.

        Raises BadInput for addresses.
        """
        answers = comparable(expression, same_places(await self.evaluate(ranks, expression)))
        return answers, deviating(answers)

    async def backtrace(self, ranks: RankSet, limit: int = 0) -> Answers[tuple[Frame, ...]]:
        """Innermost frame first; at most `limit` frames unless it is 0."""
        return await self._group.backtrace(ranks, limit)

    async def stacks(self, ranks: RankSet, limit: int = 0) -> Answers[Stack]:
        """`backtrace`, for where many ranks are: those in the same calls have one Stack."""
        return await self._group.stacks(ranks, limit)

    async def select_frame(self, ranks: RankSet, move: str = "frame") -> Answers[Frame]:
        """Choose the frame that questions to the ranks apply to. move: ``frame 2``, ``up``,
        ``down 1``, or ``frame`` to stay."""
        limit = Deadline(self.settings.command)
        told = await self._group.look(ranks, asked(select, move, limit))
        if move != "frame":
            await self._selected(told)
        return told

    async def complete(self, rank: int, line: str) -> tuple[str, ...]:
        """GDB's completions of a line at its own prompt: whole lines, with the frame's and the
        program's names before those of libraries.

        GDB gets some seconds for it, because a big program has many names. Raises CrdebugError.
        """
        question = asked(complete, line, Deadline(_COMPLETION))
        told = await self._group.ask(RankSet.of([rank]), question)
        for error in told.errors.values():
            raise error
        return told.values[rank]

    async def gdb(self, ranks: RankSet, command: str) -> Answers[str]:
        """A command for the ranks' GDBs as typed; the answer is GDB's output. Ranks that have ended
        answer only settings, and questions that their files can answer."""
        if self.of_cores and _REPLACES.match(command):
            raise Refused(f"cannot {command}: {NO_PROCESS}", hint="'crdebug run' starts a job")
        of_files = _OF_FILES.match(command) is not None
        limit = Deadline(self.settings.command)
        told = await self._group.look(
            ranks, asked(verbs.console, command, limit), also_ended=of_files
        )
        if _SELECTS.match(command):
            await self._selected(told)
        return await heard(self.history, command, told)

    async def _selected(self, told: Answers[T]) -> None:
        """The user has chosen the frame of these ranks."""
        await self._group.ask(RankSet.of(told.values), asked(verbs.chosen))
