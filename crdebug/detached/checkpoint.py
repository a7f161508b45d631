"""A checkpoint or a restart without a debugger: what each of the protocol's instructions does."""

from __future__ import annotations

from collections.abc import Callable

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.base.events import Event, JobSays
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.checkpoint.driver import drive
from crdebug.checkpoint.protocol import Protocol
from crdebug.checkpoint.store import Checkpoint, describe
from crdebug.job import half_back, standard_input
from crdebug.job.directory import JobDirectory, JobRecord
from crdebug.job.holds import Hold, naming_the_ended
from crdebug.job.imaging import Image, Imaging
from crdebug.job.launch import end


class Undisturbed:
    """checkpoint.driver.Actions for a job without a debugger: only the CRS acts."""

    def __init__(
        self,
        imaging: Imaging,
        record: JobRecord,
        holds: tuple[Hold, ...],
        tell: Callable[[Event], None],
        *,
        note: str = "",
        stop: bool = False,
        number: int | None = None,
        held: bool = False,
    ) -> None:
        self.record = record
        self.holds = holds
        self.checkpoint: Checkpoint | None = None
        self._imaging = imaging
        self._tell = tell
        self._note = note
        self._stop = stop
        self._number = number
        self._held = held
        self._image: Image | None = None

    async def dump(self) -> None:
        with naming_the_ended(self.holds):
            self._image = await self._imaging.dump(
                self.record, self.holds, running=True, stop=self._stop
            )
        if self._image.told:
            self._tell(JobSays(self._image.told))

    async def publish(self) -> None:
        assert self._image is not None
        image, self._image = self._image, None
        self.checkpoint = await self._imaging.publish(
            image, self.record, self.holds, note=self._note, threads=None
        )

    def close(self) -> None:
        """An image is discarded that was not to be published: the checkpoint failed before that."""
        if self._image is not None:
            self._imaging.store.discard(self._image.draft)

    async def restore(self) -> None:
        assert self._number is not None
        manifest = self._imaging.store.load(self._number)
        self._old = self.record
        why = self._imaging.why_end_first(manifest, self.record)
        if why is not None:
            await self._imaging.before_the_end(manifest, self.record)
            self._tell(why)
            await self.retire()
        self.record, self.holds = await self._imaging.restore(
            manifest, self.record, debugger=self._held
        )
        self.checkpoint = describe(manifest)
        standard_input.give_again(
            self._imaging.directory.run(self.record.incarnation), self.record.pid
        )

    async def retire(self) -> None:
        await end(self._old, Deadline(self._imaging.settings.stop))

    async def _no_debugger(self, rank: int) -> None:
        raise AssertionError(f"nothing is to be done with rank {rank}")

    record_threads = herd = detach = await_waitpoint = attach = walk_out = _no_debugger

    async def announce(self) -> None:
        raise AssertionError("there is nobody to announce to")


async def make_whole(directory: JobDirectory, record: JobRecord, settings: Settings) -> str:
    """Let a job run on from a checkpoint that was half on its way back in memory. Callers hold its
    lock. Raises Refused, StoreError, CrsFailed."""
    problem: CrdebugError = half_back.none_left(directory.name)
    for store, manifest in half_back.ways_out(directory, record):
        imaging = Imaging(directory, settings, store)
        actions = Undisturbed(imaging, record, (), lambda event: None, number=manifest.number)
        machine = Protocol(RankSet(), restart=True, debugger=False, replaces=True)
        await drive(machine, actions, lambda phase, ranks: None)
        if not machine.problems:
            kind = "an automatic checkpoint" if store is directory.history else "a checkpoint"
            return (
                f"crdebug died while it took job '{directory.name}' back in memory: it goes on "
                f"from {kind} ({manifest.number}), and repeats what was recorded since then"
            )
        problem = machine.problems[0]
    raise problem
