"""The interface of another host that has some of the ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from crdebug.base.answers import Answers, T
from crdebug.base.deadline import Deadline
from crdebug.base.events import StopReason
from crdebug.base.ranks import RankSet

if TYPE_CHECKING:
    from crdebug.debugger.question import Question
    from crdebug.debugger.rank_host import RankHost
    from crdebug.debugger.run import Ran, Run

MARGIN = 2.0  # seconds beyond the time that a host has: its own error says more than ours


class Node(Protocol):
    """Another host, where an agent has the debuggers of the ranks there. One message carries a
    question to all of them, and one brings back their answers, equal ones as one."""

    @property
    def host(self) -> str:
        """Its name, as the launcher has it."""
        ...

    @property
    def lost(self) -> str:
        """Why its agent cannot be reached any more, as words that follow the host's name; "" as
        long as it can."""
        ...

    @property
    def rank_host(self) -> RankHost:
        """What can be asked about the ranks there, besides their debuggers."""
        ...

    async def ask(self, question: Question[T], ranks: RankSet) -> Answers[T]:
        """See questions.ask. If the agent does not answer, every rank has that as its error."""
        ...

    async def look(
        self, question: Question[T], ranks: RankSet, deadline: Deadline, also_ended: bool
    ) -> Answers[T]:
        """See questions.look."""
        ...

    async def run(
        self, number: int, run: Run, ranks: RankSet, stand: Callable[[RankSet, bool], None]
    ) -> Ran:
        """Carry out a run of ranks there. number: of the run, another each time.  stand: gets the
        ranks that have stopped so far, and whether the run is over because of that. If this is
        cancelled, the ranks run on. Raises GdbDied if the agent is lost, CrdebugError."""
        ...

    def stop(self, number: int, reason: StopReason, seconds: float) -> None:
        """Have the ranks of this run stopped that still run, so that `run` returns. seconds: they
        may take so long."""
        ...

    async def renew(self, rank: int) -> None:
        """Have another GDB attached to a rank there whose GDB has died, without breakpoints: the
        rank stands where it is then, or has ended. Raises CrdebugError."""
        ...

    async def close(self, deadline: Deadline) -> None:
        """End the agent, once it has no ranks any more. Idempotent."""
        ...
