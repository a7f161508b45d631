"""The commands that crdebug has."""

from __future__ import annotations

from crdebug.commands.breakpoints import BREAKPOINTS
from crdebug.commands.checkpoints import CHECKPOINTS
from crdebug.commands.data import DATA
from crdebug.commands.help import HELP
from crdebug.commands.job import JOB
from crdebug.commands.registry import Registry
from crdebug.commands.running import RUNNING


def standard() -> Registry:
    """A registry of all commands."""
    return Registry((RUNNING, DATA, BREAKPOINTS, CHECKPOINTS, JOB, HELP))
