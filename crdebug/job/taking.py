"""One checkpoint from its image to its publication, with or without a debugger."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crdebug.base.events import Event, JobSays
from crdebug.checkpoint.store import Checkpoint
from crdebug.job.holds import naming_the_ended
from crdebug.job.imaging import Image, Imaging, Stand
from crdebug.job.incarnation import Incarnation


class Taking:
    """Owns the image until it is published; `close` discards an image that was not.

    checkpoint: the published one.
    """

    def __init__(self, imaging: Imaging, tell: Callable[[Event], None], note: str) -> None:
        self.checkpoint: Checkpoint | None = None
        self._imaging = imaging
        self._tell = tell
        self._note = note
        self._image: Image | None = None

    async def dump(self, job: Incarnation, *, running: bool, stop: bool = False) -> None:
        """See Imaging.dump. Raises a CrdebugError that names the ranks that ended meanwhile."""
        with naming_the_ended(job.holds):
            self._image = await self._imaging.dump(job, running=running, stop=stop)
        if self._image.told:
            self._tell(JobSays(self._image.told))

    async def publish(self, stands: Mapping[int, Stand] | None) -> None:
        """See Imaging.publish."""
        assert self._image is not None
        image, self._image = self._image, None
        self.checkpoint = await self._imaging.publish(image, note=self._note, stands=stands)

    def close(self) -> None:
        if self._image is not None:
            self._imaging.store.discard(self._image.draft)
