"""A checkpoint or a restart without a debugger: what each of the protocol's instructions does."""

from __future__ import annotations

from collections.abc import Callable

from crdebug.checkpoint.store import Checkpoint, describe
from crdebug.deadline import Deadline
from crdebug.events import Event, JobSays
from crdebug.job import inputs
from crdebug.job.imaging import Image, Imaging
from crdebug.job.launch import end
from crdebug.job.ranks import RankShim, naming_the_ended
from crdebug.job.record import JobRecord


class Undisturbed:
    """checkpoint.driver.Actions for a job without a debugger: only the CRS acts."""

    def __init__(
        self,
        imaging: Imaging,
        record: JobRecord,
        shims: tuple[RankShim, ...],
        tell: Callable[[Event], None],
        *,
        note: str = "",
        stop: bool = False,
        number: int | None = None,
        held: bool = False,
    ) -> None:
        self.record = record
        self.shims = shims
        self.checkpoint: Checkpoint | None = None
        self._imaging = imaging
        self._tell = tell
        self._note = note
        self._stop = stop
        self._number = number
        self._held = held
        self._image: Image | None = None

    async def dump(self) -> None:
        with naming_the_ended(self.shims):
            self._image = await self._imaging.dump(
                self.record, self.shims, running=True, stop=self._stop
            )
        if self._image.told:
            self._tell(JobSays(self._image.told))

    async def publish(self) -> None:
        assert self._image is not None
        self.checkpoint = await self._imaging.publish(
            self._image, self.record, self.shims, note=self._note, threads=None
        )

    async def restore(self) -> None:
        assert self._number is not None
        manifest = self._imaging.directory.store.load(self._number)
        self._old = self.record
        why = self._imaging.why_end_first(manifest, self.record)
        if why is not None:
            await self._imaging.before_the_end(manifest, self.record)
            self._tell(why)
            await self.retire()
        self.record, self.shims = await self._imaging.restore(
            manifest, self.record, debugger=self._held
        )
        self.checkpoint = describe(manifest)
        inputs.give_again(self._imaging.directory.run(self.record.incarnation), self.record.pid)

    async def retire(self) -> None:
        await end(self._old, Deadline(self._imaging.settings.stop))

    async def _no_debugger(self, rank: int) -> None:
        raise AssertionError(f"nothing is to be done with rank {rank}")

    record_threads = herd = detach = await_waitpoint = attach = walk_out = _no_debugger

    async def announce(self) -> None:
        raise AssertionError("there is nobody to announce to")
