"""The transcript: what was typed and what was shown, in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from crdebug.base.errors import BadInput


class Transcript:
    """Keeps one file at a time; each line is in it as soon as it is shown."""

    def __init__(self) -> None:
        self._file: TextIO | None = None

    @property
    def path(self) -> str:
        """Where it goes; empty when none is kept."""
        return self._file.name if self._file is not None else ""

    def begin(self, path: Path) -> None:
        """From now on append to a file, which only its owner can read if it is new.

        Raises BadInput when it cannot be written.
        """
        try:
            path.touch(mode=0o600)
            file = path.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)
        except OSError as error:
            raise BadInput(f"{path} cannot be written: {error.strerror}") from error
        self.end()
        self._file = file

    def end(self) -> None:
        """Stop keeping one. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def add(self, line: str) -> None:
        """One or more lines, without the last newline; a full disk ends the transcript."""
        if self._file is not None:
            try:
                self._file.write(f"{line}\n")
            except OSError:
                self._file = None
