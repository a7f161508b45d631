"""What a user gives a job that starts, besides its command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Given:
    """What a job's launcher gets besides its command line.

    environment: variables that it has besides crdebug's own, or in their place.  directory: where
    it runs; None is where crdebug does.  stdin: a file or descriptor that is read to its end before
    the job starts; None is nothing.  more: more will be sent; else its standard input ends there.
    relayed: that is what crdebug itself reads.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    stdin: Path | int | None = None
    more: bool = False
    relayed: bool = False

    @property
    def input_text(self) -> str:
        """What the job reads from its standard input, for people."""
        if self.relayed or isinstance(self.stdin, int):
            return "crdebug's own"
        if self.stdin is not None:
            return str(self.stdin)
        return "what 'send' gives it" if self.more else "empty"
