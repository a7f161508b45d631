"""Looking at ranks that run Python."""

from __future__ import annotations

from crdebug.base.answers import Answers, some
from crdebug.base.deadline import Deadline
from crdebug.base.ranks import RankSet
from crdebug.debugger import python
from crdebug.debugger.question import asked
from crdebug.debugger.stacktree import StackTree, merge
from crdebug.debugger.target import Frame
from crdebug.session.core import Core


class Python(Core):
    """The verbs for Python's stacks. A rank that runs no Python has an error that says so."""

    async def python_backtrace(
        self, ranks: RankSet, limit: int = 0, *, both: bool = False
    ) -> Answers[tuple[Frame, ...]]:
        """The Python frames of the ranks' selected threads (if a selected thread runs no Python, of
        the oldest that does), innermost first, at most `limit` unless it is 0. both: with the C
        frames in between."""
        deadline = Deadline(self.settings.command)
        return await self._group.look(ranks, asked(python.top, limit, both, deadline))

    async def python_tree(
        self,
        ranks: RankSet,
        *,
        both: bool = False,
        all_threads: bool = False,
        depth: int = 0,
        function_only: bool = False,
    ) -> StackTree:
        """The same as a tree, see `stack_tree`. all_threads: all threads that run Python; with
        both, all threads. Raises NoRankAnswered."""
        question = asked(python.stacks, all_threads, both, Deadline(self.settings.command))
        found = some(await self._group.look(ranks, question))
        branches = merge(found.values, depth=depth, function_only=function_only)
        return StackTree(branches, all_threads, found.merged_errors())

    async def python_variable(self, ranks: RankSet, name: str, level: int = 0) -> Answers[str]:
        """A local variable of the Python function at a level, or of the nearest of its callers that
        has one of this name, as Python's repr shows it (long ones in part)."""
        deadline = Deadline(self.settings.command)
        return await self._group.look(ranks, asked(python.variable, name, level, deadline))

    async def python_variables(
        self, ranks: RankSet, level: int = 0
    ) -> Answers[tuple[tuple[str, str], ...]]:
        """All local variables of the Python function at a level, with their values."""
        deadline = Deadline(self.settings.command)
        return await self._group.look(ranks, asked(python.innermost_variables, level, deadline))
