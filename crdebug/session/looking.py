"""Looking at the ranks."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.ranks import RankSet
from crdebug.debugger import mi_values
from crdebug.debugger.answers import Answers, T, comparable, same_places
from crdebug.debugger.frames import at_program
from crdebug.debugger.summary import deviating
from crdebug.debugger.target import Frame, SelectedBy, Target, ThreadInfo
from crdebug.session.core import Core
from crdebug.travel.history import heard

_COMPLETION = 5.0  # seconds
_OWN = 500  # names of a kind
_OF_CRDEBUG = f"{Path(__file__).resolve().parents[1]}/"  # sources of what it puts into ranks
# An expression or a location that ends with the beginning of a name, but not of a member's.
_BEGUN = re.compile(r"((print|break) (?:.*(?<![\w.>:$]))?)([A-Za-z_]\w*)\Z", re.ASCII)
# Commands that are not about a process: settings, and what is read from the program's files.
_OF_FILES = re.compile(
    r"(set(?!\s+var)|show|handle|help|apropos|skip|directory|complete|ptype|whatis|search)\b"
    r"|(list|info\s+(line|scope))\s+\S"
    r"|info\s+(breakpoints|functions|macro|signals|sources|types|variables)\b"
)
# Commands that choose a frame, as GDB abbreviates them.
_SELECTS = re.compile(r"(frame|fr?|up(-silently)?|down?(-silently)?|select-frame|thread|t)\b")


async def _own_names(target: Target, line: str, deadline: Deadline) -> AsyncIterator[str]:
    """How a line goes on with names whose source is here, as that of few libraries is."""
    found = _BEGUN.match(line)
    if found is None:
        return
    before, begun = found[1], found[3]
    if found[2] == "print":
        listing = await target.mi("-stack-list-variables --no-values", deadline)
        for variable in listing.payload.list("variables").tuples():
            if variable.text("name").startswith(begun):
                yield before + variable.text("name")
    for kind in ("functions",) if found[2] == "break" else ("variables", "functions"):
        command = f"-symbol-info-{kind} --max-results {_OWN} --name ^{begun}"
        listing = await target.mi(command, deadline)
        symbols = listing.payload.tuple("symbols")
        for file in symbols.list("debug").tuples() if "debug" in symbols else ():
            source = file.text("fullname", "")
            if source.startswith(_OF_CRDEBUG) or not (source[:1] == "/" and Path(source).is_file()):
                continue
            for symbol in file.list("symbols").tuples():
                name = symbol.text("name")
                if name.startswith(begun) and name.isidentifier():
                    yield before + name


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
            return mi_values.frame(listing.payload.tuple("frame"), arguments.payload)

        told = await self._group.look(ranks, select)
        if move != "frame":
            self._selected(told)
        return told

    async def complete(self, rank: int, line: str) -> tuple[str, ...]:
        """How GDB would go on with a line at its own prompt: whole lines, the frame's and the
        program's names before those of libraries.

        A big program has many names: GDB has some seconds for it. Raises CrdebugError.
        """
        limit = Deadline(_COMPLETION)
        target = self._group[rank]
        await at_program(target, limit)
        # GDB ends its list at some 200 names, in the order of the alphabet.
        own = [each async for each in _own_names(target, line, limit)]
        told = await target.console(f"complete {line}", limit)
        others = (each for each in told.splitlines() if "max-completions" not in each)
        return tuple(dict.fromkeys([*sorted(set(own)), *others]))

    async def gdb(self, ranks: RankSet, command: str) -> Answers[str]:
        """A command for the ranks' GDBs as typed; the answer is what GDB printed. Ranks that have
        ended answer only what their files tell as well, and settings."""
        of_files = _OF_FILES.match(command) is not None
        limit = Deadline(self.settings.command)
        told = await self._group.look(
            ranks, lambda each: each.console(command, limit), also_ended=of_files
        )
        if _SELECTS.match(command):
            self._selected(told)
        return await heard(self.history, command, told)

    def _selected(self, told: Answers[T]) -> None:
        """The user has chosen the frame of these ranks."""
        for rank in told.values:
            self._group[rank].selection.by = SelectedBy.USER
