"""Where a job stands, to be brought back there after it was taken elsewhere for an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crdebug.base.errors import CrdebugError, Interrupted
from crdebug.base.events import Event, JobSays
from crdebug.travel.branching import Branching
from crdebug.travel.moment import Moment
from crdebug.travel.restore_points import Base
from crdebug.travel.reverse_step import Reverse
from crdebug.travel.seek import Traveller


@dataclass(frozen=True, slots=True)
class Standing:
    """state: by what the place of the focused rank is recognised.  ways: how often the job had been
    taken elsewhere by then.  kept: a snapshot of it, if there is one."""

    here: Moment
    state: str
    ways: int
    kept: Base | None = None


class Returning:
    """Remembers where the job stands, and brings it back there. All ranks must be stopped."""

    def __init__(
        self,
        traveller: Traveller,
        reverse: Reverse,
        branching: Branching,
        tell: Callable[[Event], None],
    ) -> None:
        self._traveller = traveller
        self._reverse = reverse
        self._branching = branching
        self._tell = tell

    async def note(self, here: Moment, *, keep: bool = False) -> Standing:
        """keep: also by a snapshot, if that is possible."""
        state = await self._reverse.recall(here.focus)
        kept = await self._traveller.near.keep(here.cut, further=True) if keep else None
        return Standing(here, state, self._traveller.position.ways, kept)

    async def go(self, to: Standing) -> None:
        """Raises CrdebugError if the job cannot be brought there, nor near it."""
        traveller, here = self._traveller, to.here
        if traveller.position.ways == to.ways:
            return
        if to.kept is not None and traveller.near.has(to.kept.kept):
            await traveller.bring_back(to.kept)
            return
        if here.branch != self._branching.current:
            await self._branching.to(here.branch, here.cut)
        focus = here.focus
        try:
            await self._reverse.to_state(focus, here.cut[focus], to.state)
        except Interrupted:
            raise
        except CrdebugError as error:  # threads that begin on the way cannot be stepped through
            await traveller.to_cut(here.cut, focus)
            at = f"the job is at tick {here.tick} of rank {focus}, not at the line where it was"
            self._tell(JobSays(f"{at}: {error}"))
