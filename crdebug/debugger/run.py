"""A run of ranks as data, so that each host carries it out for its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from crdebug.base.errors import CrdebugError
from crdebug.base.events import RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger.question import Question, question
from crdebug.debugger.target import Target


@dataclass(frozen=True, slots=True)
class Run:
    """Ranks run until one of them stops for a reason that ends the run; then the others are
    stopped.

    verb: for messages.
    start: makes one rank run; its answer comes once it runs.
    completes: does a stop complete one rank's part, so that it ends the run only when all ranks
    have such a stop? Its arguments, but for the stop, which is the first. None: every stop ends
    the run.
    stop_seconds: how long the others may take to stop.
    """

    verb: str
    start: Question[None]
    completes: Question[bool] | None
    stop_seconds: float

    @property
    def known(self) -> bool:
        """See Question.known."""
        return self.start.known and (self.completes is None or self.completes.known)


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run has ended for ranks: each of them has a stop or an error.

    completed: those whose stop completes their part.
    """

    stops: Mapping[int, RankStopped]
    errors: Mapping[int, CrdebugError]
    completed: RankSet


async def is_completed(target: Target, stop: RankStopped, completes: Question[bool]) -> bool:
    """See Run. It may ask the rank."""
    return await replace(completes, arguments=(stop, *completes.arguments))(target)


@question
async def stopped_by(target: Target, stop: RankStopped, reason: StopReason) -> bool:
    """Completes a rank's part: a stop for this reason."""
    return stop.reason is reason


@question
async def stopped_at(
    target: Target, stop: RankStopped, points: Mapping[int, tuple[int, tuple[int, ...]]]
) -> bool:
    """Completes a rank's part: a stop at a breakpoint. points: by rank, GDB's number for it, and
    its addresses, since of several breakpoints in one place GDB names the first."""
    if stop.reason is not StopReason.BREAKPOINT or stop.rank not in points:
        return False
    number, addresses = points[stop.rank]
    at = stop.location.address if stop.location is not None else None
    return stop.detail == str(number) or at in addresses


@question
async def stopped_at_all(target: Target, stop: RankStopped) -> bool:
    """Completes a rank's part: any stop."""
    return True
