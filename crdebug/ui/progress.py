"""Progress of long operations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TextIO

from crdebug.base.events import ENDED, Progress
from crdebug.ui.printable import printable

if TYPE_CHECKING:
    from rich.status import Status


class ProgressView(Protocol):
    """Shows the present phase of a long operation."""

    def show(self, progress: Progress) -> None: ...

    def clear(self) -> None:
        """Make room for other text."""

    def again(self) -> None:
        """The other text has been written; show the operation again."""

    def end(self) -> None:
        """The operation is over."""


def words(progress: Progress) -> str:
    """``checkpoint: dump``."""
    ranks = f" [{progress.ranks}]" if progress.ranks else ""
    return printable(f"{progress.operation}: {progress.phase}{ranks}")


class PlainProgress:
    """A line for each new phase; none if a phase is reported again."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._last: tuple[str, str] | None = None

    def show(self, progress: Progress) -> None:
        phase = (progress.operation, progress.phase)
        if phase != self._last:
            self._last = phase
            self._write(words(progress))

    def clear(self) -> None:
        pass

    def again(self) -> None:
        pass

    def end(self) -> None:
        self._last = None


class StatusLine:
    """One line at the bottom of the terminal, with a spinner, that leaves nothing behind."""

    def __init__(self, stream: Callable[[], TextIO]) -> None:
        self._stream = stream
        self._status: Status | None = None
        self._progress: Progress | None = None

    def show(self, progress: Progress) -> None:
        from rich.text import Text

        if progress.phase == ENDED:  # this is not part of the present operation
            self.end()
            return
        self._progress = progress
        if self._status is not None:
            self._status.update(Text(words(progress)))
            return
        from rich.console import Console
        from rich.status import Status

        console = Console(file=self._stream())
        self._status = Status(Text(words(progress)), console=console, spinner="line")
        with contextlib.suppress(OSError):  # the terminal has gone
            self._status.start()

    def clear(self) -> None:
        if self._status is not None:
            with contextlib.suppress(OSError):
                self._status.stop()
            self._status = None

    def again(self) -> None:
        if self._progress is not None:
            self.show(self._progress)

    def end(self) -> None:
        self._progress = None
        self.clear()
