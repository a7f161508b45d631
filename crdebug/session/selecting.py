"""Rank sets by name, state and predicate."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crdebug.base.answers import Answers, some
from crdebug.base.errors import Ended
from crdebug.base.events import Event, JobSays
from crdebug.base.gdb_values import not_a_number, number
from crdebug.base.rank_expressions import resolve
from crdebug.base.ranks import RankSet
from crdebug.debugger.target import TargetState
from crdebug.session.looking import Looking

_STATES = {
    "stopped": TargetState.STOPPED,
    "running": TargetState.RUNNING,
    "exited": TargetState.EXITED,
    "dead": TargetState.DEAD,
}


class Selecting(Looking):
    """The verbs that answer with ranks. `sets` has the named sets."""

    @property
    def hosts(self) -> Mapping[str, RankSet]:
        """By the name of each host, the ranks there."""
        return {host.name: host.ranks for host in self.info_hosts()}

    def in_state(self, word: str) -> RankSet:
        """The ranks that are in a state now; word: one of crdebug.base.rank_expressions.STATES."""
        return self._group.in_state(_STATES[word])

    async def select(self, text: str) -> RankSet:
        """The ranks that an expression means now: ``0,3-7``, ``all - edge``, ``where x > 3``.

        See crdebug.base.rank_expressions for the notation. Raises BadInput; NoRankAnswered if
        `where` failed on all ranks. Ranks on which it failed are not in the set, and an event says
        why.
        """
        return await resolve(text, self)

    async def where(self, expression: str, ranks: RankSet) -> RankSet:
        """Those of `ranks` on which an expression is true; see `select`."""
        return true_ranks(expression, some(await self.truth(ranks, expression)), self._tell)

    async def truth(self, ranks: RankSet, expression: str) -> Answers[bool]:
        """Is an expression true (as in C: not 0)? A value that is not a number is an error of its
        rank."""
        return truths(expression, await self.evaluate(ranks, expression))


def truths(expression: str, answers: Answers[str]) -> Answers[bool]:
    """See Selecting.truth."""
    values: dict[int, bool] = {}
    errors = dict(answers.errors)
    for rank, text in answers.values.items():
        found = number(text)
        if found is None:
            errors[rank] = not_a_number(expression, text, rank)
        else:
            values[rank] = bool(found)
    return Answers(values, errors)


def true_ranks(expression: str, answers: Answers[bool], tell: Callable[[Event], None]) -> RankSet:
    """The ranks on which it is true. tell: called with the reasons why it failed on others."""
    for failed, text in answers.merged_errors():
        if isinstance(answers.errors[failed.first], Ended):
            tell(JobSays(f"[{failed}] {text}, so not in 'where {expression}'"))
        else:
            tell(JobSays(f"[{failed}] error, so not in 'where {expression}': {text}"))
    return RankSet.of(rank for rank, true in answers.values.items() if true)
