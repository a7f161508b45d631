"""The environment, directory and input that a user gives a new job."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crdebug.job import standard_input
from crdebug.job.over_hosts import Named


@dataclass(frozen=True, slots=True)
class Given:
    """The environment, directory and input of a job's launcher.

    environment: variables that it has besides crdebug's own, or instead of them.
    directory: where it runs; None is crdebug's own.
    stdin: a file or descriptor that crdebug reads to its end before the job starts; None is empty.
    more: more input will be sent; otherwise the job's standard input ends there.
    relayed: the further input is crdebug's own standard input.
    hosts: those that the launcher is to use; by default what it knows itself, or the allocation.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    stdin: Path | int | None = None
    more: bool = False
    relayed: bool = False
    hosts: Named = Named()  # noqa: RUF009 - immutable

    @property
    def input_text(self) -> str:
        """The source of the job's standard input, for people."""
        if self.relayed or isinstance(self.stdin, int):
            return "crdebug's own"
        if self.stdin is not None:
            return str(self.stdin)
        return "what 'send' gives it" if self.more else "empty"


def from_a_shell(
    env: Mapping[str, str], cwd: Path | None, stdin: Path | int | None, *, ours: bool, hosts: Named
) -> Given:
    """What a job without a debugger is started with. ours: it may read crdebug's own standard
    input, unless that is a terminal, as a launcher passes on its own. hosts: see Given."""
    if stdin is None and ours and sys.stdin is not None and not sys.stdin.isatty():
        stdin = 0
    if stdin == 0 and standard_input.waits(0):
        return Given(env, cwd, more=True, relayed=True, hosts=hosts)
    return Given(env, cwd, stdin, hosts=hosts)
