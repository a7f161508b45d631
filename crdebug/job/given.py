"""The environment, directory and input that a user gives a new job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Given:
    """The environment, directory and input of a job's launcher.

    environment: variables that it has besides crdebug's own, or instead of them.
    directory: where it runs; None is crdebug's own.
    stdin: a file or descriptor that crdebug reads to its end before the job starts; None is empty.
    more: more input will be sent; otherwise the job's standard input ends there.
    relayed: the further input is crdebug's own standard input.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    stdin: Path | int | None = None
    more: bool = False
    relayed: bool = False

    @property
    def input_text(self) -> str:
        """The source of the job's standard input, for people."""
        if self.relayed or isinstance(self.stdin, int):
            return "crdebug's own"
        if self.stdin is not None:
            return str(self.stdin)
        return "what 'send' gives it" if self.more else "empty"
