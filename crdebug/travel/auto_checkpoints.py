"""Checkpoints that crdebug takes by itself while a job runs: how often, and which of them stay."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

from crdebug.attached.job import AttendedJob
from crdebug.base.errors import CrdebugError, InQuietRegion, OfTheMoment, Refused
from crdebug.base.events import Event, JobSays
from crdebug.base.instant import Cut
from crdebug.checkpoint.store import Checkpoint
from crdebug.timeline.elapsed import Elapsed
from crdebug.timeline.thinning import Dated, Drop, thin
from crdebug.travel.restore_points import Base
from crdebug.travel.seek import Traveller

EVERY = 10.0  # seconds of run between two of them, if the user does not choose
LONG = 60.0  # seconds of run without one, after which the user hears of it


@dataclass(frozen=True, slots=True)
class Bound:
    """How much of a disk they may take: this many bytes or, if that is 0, a part of the space that
    would be free without them."""

    size: int = 0
    part: float = 0.1

    def bytes(self, free: int) -> int:
        return self.size or int(free * self.part)


class Automatic:
    """The automatic checkpoints of one job. tell: gets what the user should know of them."""

    def __init__(
        self, job: AttendedJob, traveller: Traveller, tell: Callable[[Event], None]
    ) -> None:
        self.bound = Bound()
        self.elapsed = Elapsed()
        self._job = job
        self._traveller = traveller
        self._tell = tell
        self._too_small: Bound | None = None  # for which the user heard of it
        self._since: float | None = None  # seconds of run, when one was put off and none came yet
        self._told = ""  # the last trouble; the same one again is no news

    async def take(self) -> Checkpoint:
        """Take one of the job, which stands, and give up those that it makes superfluous.

        Raises CrdebugError when it cannot be taken; the job is as before then.
        """
        taken = await self._job.checkpoint("", self._job.directory.history)
        try:
            self._thin()
        except CrdebugError as error:  # another crdebug has the lock: the next one makes room
            self._say(f"no automatic checkpoint was removed: {error}")
        return taken

    async def take_base(self) -> None:
        """Make a way back to here, where a branch begins. Raises CrdebugError if there is none."""
        if not self._job.has_no_checkpoints:
            await self.take()
        elif await self._snapshot() is None:
            raise Refused(self._traveller.near.why_not)

    async def take_snapshot(self) -> None:
        """Begin the history of a job that has no checkpoints, or report why that is impossible."""
        if await self._snapshot() is None:
            self._say(f"there is no way back to here: {self._traveller.near.why_not}")

    async def _snapshot(self) -> Base | None:
        return await self._traveller.near.keep(self._traveller.recorded.cut(), stays=True)

    async def take_if_useful(self) -> None:
        """The same while the user lets the job run: a problem is reported, and hinders nothing; no
        second one is taken of the same place."""
        try:
            cut = self._traveller.recorded.cut()
            if self._traveller.recorded.in_epochs:
                self._put_off(cut)
                return  # the next one: no replay from here would know what is on its way
            self._since = None
            if all(base.cut != cut for base in self._checkpoints()):
                await self.take()
        except (InQuietRegion, OfTheMoment):
            return  # the next one
        except CrdebugError as error:
            self._say(f"no automatic checkpoint was taken: {error}")

    def _put_off(self, cut: Cut) -> None:
        """None is taken at this cut: ranks are inside epochs of one-sided communication."""
        now = self.elapsed.at(cut)
        if self._since is None:
            self._since = now
        if now - self._since >= LONG:
            self._say(
                f"no automatic checkpoint was taken for {LONG:.0f} s of run: each time a rank was "
                "inside an epoch of one-sided communication; ways back take longer"
            )

    def _say(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._tell(JobSays(text))

    def _checkpoints(self) -> list[Base]:
        return [base for base in self._traveller.bases() if base.number]

    def _thin(self) -> None:
        directory = self._job.directory
        sizes = {each.number: each.size for each in directory.history.list()}
        total = sum(sizes.values())
        bound = self.bound.bytes(shutil.disk_usage(directory.path).free + total)
        bases = sorted(self._checkpoints(), key=lambda base: sum(base.cut))
        own = {base.number for base in bases if base.history}
        elsewhere = sum(size for number, size in sizes.items() if number not in own)
        # History, or its branch, begins with the first one: it stays, whatever its size.
        first = sizes.get(bases[0].number, 0) if bases and bases[0].history else 0
        kept = [
            Dated(
                base.name,
                self.elapsed.at(base.cut),
                sizes.get(base.number, 0) if base.history else 0,
                automatic=base.history and base != bases[0],
            )
            for base in bases
        ]
        now = self.elapsed.at(self._traveller.recorded.cut())
        drops = thin(kept, now, max(bound - elsewhere - first, 0))
        numbers = {base.name: base.number for base in bases}
        with directory.lock("remove automatic checkpoints"):
            for drop in drops:
                directory.history.delete(numbers[drop.name])
        left = total - sum(drop.bytes for drop in drops)
        self._say_what_was_forced(drops, total, left, bound)

    def _say_what_was_forced(
        self, drops: tuple[Drop, ...], total: int, left: int, bound: int
    ) -> None:
        forced = [drop.name for drop in drops if drop.forced]
        hint = "'set auto-checkpoint-disk' changes that"
        if forced:
            plural = "s" if len(forced) > 1 else ""
            took = f"together they took {_mib(total)}, of {_mib(bound)} that they may take"
            text = f"automatic checkpoint{plural} {', '.join(forced)} given up: {took}; "
            self._tell(JobSays(f"{text}going back to there takes longer now ({hint})"))
        elif left > bound and self._too_small != self.bound:
            self._too_small = self.bound
            self._say(
                f"automatic checkpoints take {_mib(left)}, more than the {_mib(bound)} that they "
                f"may take: the first and the last one stay ({hint})"
            )


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"
