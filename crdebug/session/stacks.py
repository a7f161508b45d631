"""Stacks as a tree, and threads."""

from __future__ import annotations

from collections.abc import Mapping

from crdebug.base.answers import Answers, T, some
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.base.ranks import RankSet
from crdebug.debugger import threads
from crdebug.debugger.frames import Stack
from crdebug.debugger.question import asked
from crdebug.debugger.stacktree import StackTree, merge
from crdebug.debugger.target import Frame, ThreadInfo
from crdebug.session.looking import Looking
from crdebug.session.the_past import heard


class Stacks(Looking):
    """The verbs for stacks and threads."""

    async def stack_tree(
        self,
        ranks: RankSet,
        *,
        all_threads: bool = False,
        depth: int = 0,
        function_only: bool = False,
    ) -> StackTree:
        """The merged tree of calls of the ranks' selected threads, or of all threads.

        depth: take only so many of the outermost frames; 0 is all.
        function_only: frames of a function are equal whatever their line.
        Raises NoRankAnswered.
        """
        limit = Deadline(self.settings.command)
        if all_threads:
            found = some(await self._group.look(ranks, asked(threads.stacks, limit)))
            stacks, errors = found.values, found.merged_errors()
        else:
            one = some(await self.calls(ranks))
            stacks = {rank: (stack.path.frames,) for rank, stack in one.values.items()}
            errors = one.merged_errors()
        branches = merge(stacks, depth=depth, function_only=function_only)
        return StackTree(branches, all_threads, errors)

    async def calls(self, ranks: RankSet) -> Answers[Stack]:
        """The stacks of the selected threads, without arguments."""
        limit = Deadline(self.settings.command)
        return await self._group.look(ranks, asked(threads.calls, limit))

    async def selected_thread(self, ranks: RankSet) -> Answers[tuple[ThreadInfo, ...]]:
        """The thread that other verbs apply to, at its selected frame."""
        limit = Deadline(self.settings.command)
        return await self._group.look(ranks, asked(threads.selected, limit))

    async def select_thread(self, ranks: RankSet, number: int) -> Answers[None]:
        """Make verbs apply to a thread, by GDB's number, until the rank has run."""
        return await self._group.select_thread(ranks, number)

    async def thread_apply(
        self, ranks: RankSet, command: str, numbers: tuple[int, ...] | None = None
    ) -> Mapping[int, Answers[str]]:
        """GDB's answers to a command as typed, for each of these threads (None: for all of them),
        by the threads' numbers. The selected thread stays."""
        limit = Deadline(self.settings.command)
        found = await self._group.look(ranks, asked(threads.apply, numbers, command, limit))
        return {
            number: await heard(self.history, command, answers)
            for number, answers in _by_thread(found, numbers).items()
        }

    async def thread_backtraces(
        self, ranks: RankSet, limit: int = 0, numbers: tuple[int, ...] | None = None
    ) -> Mapping[int, Answers[tuple[Frame, ...]]]:
        """The stacks of these threads (None: all), by the threads' numbers, innermost frame first,
        at most `limit` frames unless it is 0."""
        deadline = Deadline(self.settings.command)
        found = await self._group.look(ranks, asked(threads.backtraces, numbers, limit, deadline))
        return _by_thread(found, numbers)


def _by_thread(
    found: Answers[tuple[tuple[int, T | CrdebugError], ...]], numbers: tuple[int, ...] | None
) -> dict[int, Answers[T]]:
    """The ranks' answers for each of their threads, by the threads' numbers. An error of a whole
    rank counts for all threads that were asked for, or for thread 0."""
    values: dict[int, dict[int, T]] = {}
    errors: dict[int, dict[int, CrdebugError]] = {}
    for rank, told in found.values.items():
        for number, answer in told:
            if isinstance(answer, CrdebugError):
                errors.setdefault(number, {})[rank] = answer
            else:
                values.setdefault(number, {})[rank] = answer
    for number in numbers or (0,):
        if found.errors:
            errors.setdefault(number, {}).update(found.errors)
    return {
        number: Answers(values.get(number, {}), errors.get(number, {}))
        for number in sorted(values.keys() | errors.keys())
    }
