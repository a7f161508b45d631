"""A checkpoint or a restart without a debugger: what each of the protocol's instructions does."""

from __future__ import annotations

from collections.abc import Callable

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.base.events import Event
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.checkpoint.driver import drive
from crdebug.checkpoint.protocol import Protocol
from crdebug.checkpoint.store import Checkpoint
from crdebug.job import half_back, standard_input
from crdebug.job.imaging import Imaging
from crdebug.job.incarnation import Incarnation
from crdebug.job.launch import end
from crdebug.job.taking import Taking


class Undisturbed:
    """JobActions for a job without a debugger: only the CRS acts.

    number: of the checkpoint to bring back.  held: its ranks wait for a debugger then. Afterwards
    `job` is the incarnation that is there, and `checkpoint` is what was published.
    """

    def __init__(
        self,
        imaging: Imaging,
        job: Incarnation,
        tell: Callable[[Event], None],
        *,
        note: str = "",
        stop: bool = False,
        number: int | None = None,
        held: bool = False,
    ) -> None:
        self.job = job
        self._before = job
        self._imaging = imaging
        self._tell = tell
        self._taking = Taking(imaging, tell, note)
        self._stop = stop
        self._number = number
        self._held = held

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self._taking.checkpoint

    async def dump(self) -> None:
        await self._taking.dump(self.job, running=True, stop=self._stop)

    async def publish(self) -> None:
        await self._taking.publish(None)

    def close(self) -> None:
        self._taking.close()

    async def restore(self) -> None:
        assert self._number is not None
        manifest = self._imaging.store.load(self._number)
        self.job = await self._imaging.replace(
            manifest, self.job.record, debugger=self._held, end=self.retire, tell=self._tell
        )
        standard_input.give_again(self.job.run, self.job.record.pid)

    async def retire(self) -> None:
        await end(self._before.record, Deadline(self._imaging.settings.stop))


async def make_whole(job: Incarnation, settings: Settings) -> str:
    """Let a job run on from a checkpoint that was half on its way back in memory. Callers hold its
    lock. Raises Refused, StoreError, CrsFailed."""
    directory, record = job.directory, job.record
    problem: CrdebugError = half_back.none_left(directory.name)
    for store, manifest in half_back.ways_out(directory, record):
        imaging = Imaging(directory, settings, store)
        actions = Undisturbed(imaging, job, _say_nothing, number=manifest.number)
        machine = Protocol(RankSet(), restart=True, debugger=False, replaces=True)
        await drive(machine, actions)
        if not machine.problems:
            kind = "an automatic checkpoint" if store is directory.history else "a checkpoint"
            return (
                f"crdebug died while it took job '{directory.name}' back in memory: it goes on "
                f"from {kind} ({manifest.number}), and repeats what was recorded since then"
            )
        problem = machine.problems[0]
    raise problem


def _say_nothing(event: Event) -> None:
    """The line that `make_whole` returns is what its users are told."""
