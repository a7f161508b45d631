"""The text of source lines."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crdebug.base.events import Location

ReadLine = Callable[[str, int], str | None]
"""From a path and a line number the line's text; None if there is none."""


def read_line(path: str, number: int) -> str | None:
    """A line of a file as it is now; None if it cannot be read. Never raises."""
    file = Path(path)
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            return None  # opening a FIFO may block for ever
        with file.open(encoding="utf-8", errors="backslashreplace", newline="\n") as lines:
            text = next(islice(lines, number - 1, None), None)
    except (OSError, ValueError):
        return None
    if text is None:
        return None
    # Leave out the characters that a terminal would take for a command.
    return "".join(c for c in text.rstrip() if c == "\t" or c.isprintable())


class SourceLines:
    """The source lines of one message, as GDB shows them: each place once."""

    def __init__(self, read: ReadLine = read_line) -> None:
        self._read = read
        self._shown: set[tuple[str, int]] = set()

    def at(self, location: Location | None, indent: str = "") -> Iterator[str]:
        """The line there, unless it has been shown, or cannot be read."""
        if location is None or not location.path or location.line < 1:
            return
        place = location.path, location.line
        if place in self._shown:
            return
        self._shown.add(place)
        text = self._read(*place)
        if text is not None:
            yield f"{indent}{location.line}\t{text}"
