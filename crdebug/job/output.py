"""Report the job's output, and its end, as events."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from crdebug.base.events import Event, JobEnded, JobOutput, JobSays, Progress
from crdebug.job.output_again import Again
from crdebug.job.output_labels import Labels
from crdebug.job.starter_events import starter_events
from crdebug.node import file_watch

NO_LABELS = (
    "this launcher does not say which rank wrote a line, so lines have no label (in a script, Open "
    "MPI 5 does with 'mpirun --output tag')"
)


class OutputRelay:
    """Follows one incarnation's stdout, stderr and events until `stop`.

    from_now: only output from now on; otherwise all of it.
    since: leave out what the checkpoint in this directory has.
    told: leave out what another relay has already reported, up to these offsets.
    again: by stream, what is expected to come again, and is left out.
    labelled: the launcher was asked to mark each line with its rank (see output_labels.py): then
    lines are told when they are whole, as ``[2] text``.
    ended: the launcher's status once it is known.
    """

    def __init__(
        self,
        run: Path,
        tell: Callable[[Event], None],
        *,
        from_now: bool,
        since: Path | None = None,
        told: Mapping[Path, int] | None = None,
        labelled: bool = False,
        again: Mapping[str, Again] | None = None,
    ) -> None:
        self.ended: int | None = None
        self._run = run
        self._tell = tell
        names = ("stdout", "stderr", "events")
        known = run if from_now else since / "run" if since is not None else None
        offsets = {run / name: _size(known / name) if known else 0 for name in names}
        offsets |= told or {}
        self._decoders = {
            run / name: codecs.getincrementaldecoder("utf-8")("replace") for name in names[:2]
        }
        self._labels = {path: Labels() for path in self._decoders} if labelled else {}
        # It was told that the launcher makes no marks; what begins here may be within a line.
        self._unmarked = from_now or since is not None or bool(told)
        self._again = again or {}
        self._follower = file_watch.Follower(offsets)
        self._over = asyncio.Event()
        self._said = 0
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async for news in self._follower.changes():
            self._take(news)

    def _take(self, news: list[tuple[Path, bytes]]) -> None:
        self._tell_output(news)
        known = starter_events(self._run / "events")
        for line in known.said[self._said :]:
            self._tell(JobSays(line))
        self._said = len(known.said)
        status = known.status
        if status is not None and self.ended is None:
            # Report output that was written before the end, but not read yet, before the end.
            self.ended = status
            self._tell_output(self._follower.read(), final=True)
            self._over.set()
            self._tell(JobEnded(status))

    def _tell_output(self, news: list[tuple[Path, bytes]], *, final: bool = False) -> None:
        """final: no more output will come, so half a character is shown as a broken one."""
        data = dict(news)
        for path, decoder in self._decoders.items():
            wrote = data.get(path, b"")
            if path in self._labels:  # marks may be between the bytes of a character
                wrote = self._labelled(self._labels[path], wrote, final=final)
            text = decoder.decode(wrote, final)
            if path.name in self._again:
                text = self._again[path.name].feed(text, final=final and self.ended is not None)
            if text:
                self._tell(JobOutput(path.name, text))

    def _labelled(self, labels: Labels, text: bytes, *, final: bool) -> bytes:
        text = labels.feed(text, final=final)
        if labels.unmarked and not self._unmarked:
            self._unmarked = True
            self._tell(JobSays(NO_LABELS))
        return text

    def catch_up(self) -> None:
        """Pass on everything written so far, without waiting for the kernel's notice."""
        self._take(self._follower.read())

    @property
    def told(self) -> Mapping[Path, int]:
        """How much of each file has been passed on."""
        return self._follower.offsets

    async def over(self) -> int:
        """Wait for the job's end; returns the launcher's status."""
        await self._over.wait()
        assert self.ended is not None
        return self.ended

    async def stop(self) -> None:
        """Pass on nothing more, but the beginnings of lines that were kept back."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self._labels and self.ended is None:
            self._tell_output([], final=True)
        self._follower.close()


def shown_of(data: bytes, *, labelled: bool) -> str:
    """How a relay shows this part of a stream."""
    return (Labels().feed(data, final=True) if labelled else data).decode(errors="replace")


def tell_phase(tell: Callable[[Event], None] | None, what: str, phase: str) -> None:
    """Report the next phase of a long operation."""
    if tell is not None:
        tell(Progress(what, phase))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
